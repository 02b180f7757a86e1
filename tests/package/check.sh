#!/usr/bin/env bash
# Installs the build into a private prefix, moves the prefix, and builds and runs consumer/ against it. Run by ctest,
# which sets CMAKE, GENERATOR, COMPILER, SOURCE, BUILD, BUILD_TYPE, LIBRARIES, VERSION and SANITIZE.
set -euo pipefail

die() {
  printf 'FAILED: %s\n' "$1" >&2
  exit 1
}

here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
work=$(mktemp -d "${TMPDIR:-/tmp}/crossfade_package.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

"$CMAKE" --install "$BUILD" --prefix "$work/first" >"$work/install.log" || die "$(cat -- "$work/install.log")"
# Whatever remembers where it was installed stops working here.
mv -- "$work/first" "$work/prefix"
prefix=$work/prefix

# --- what is there, and nothing else --------------------------------------------------------------------------------

for file in bin/crossfade include/crossfade/cutover/migrator.hpp include/crossfade/core/spec.hpp \
  "$LIBRARIES"/libcrossfade_{core,shadow,phases,cutover}.a \
  "$LIBRARIES"/cmake/crossfade/crossfade{Config,ConfigVersion,Targets}.cmake; do
  [[ -f $prefix/$file ]] || die "$file is not installed"
done
strange=$(cd -- "$prefix" && find . -type f \( ! -path './include/crossfade/*.hpp' -a ! -path './bin/crossfade' \
  -a ! -path "./$LIBRARIES/libcrossfade_*.a" -a ! -path "./$LIBRARIES/cmake/crossfade/*.cmake" \))
[[ -z $strange ]] || die "these are installed and nobody expects them: $strange"

# A debug build names its sources for the debugger; text never does.
binaries=()
if [[ $BUILD_TYPE == Debug ]]; then binaries=(-I); fi
for folder in "$SOURCE" "$BUILD" "$work"; do
  named=$(grep -rlF "${binaries[@]}" -e "$folder/" -- "$prefix" || true)
  [[ -z $named ]] || die "these name the folder $folder: $named"
done

# --- a program that uses it -----------------------------------------------------------------------------------------

flags=${SANITIZE:+-fsanitize=$SANITIZE}
"$CMAKE" -S "$here/consumer" -B "$work/build" -G "$GENERATOR" -DCMAKE_CXX_COMPILER="$COMPILER" \
  -DCMAKE_BUILD_TYPE="$BUILD_TYPE" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON >"$work/configure.log" 2>&1 || die "$(cat -- "$work/configure.log")"
if grep -qi boost "$work/build/CMakeCache.txt"; then die "a user is asked for Boost"; fi
"$CMAKE" --build "$work/build" >"$work/build.log" 2>&1 || die "$(cat -- "$work/build.log")"

answer=$("$work/build/consumer") || die "the consumer ended with status $?: $answer"
printf '%s\n' "$answer"
[[ $(head -n 1 <<<"$answer") == "crossfade $VERSION" ]] || die "it is not version $VERSION"
grep -qE '^compare +advance +switched' <<<"$answer" || die "the transition table is not in the answer"
[[ $("$prefix/bin/crossfade" --version) == "crossfade $VERSION" ]] || die "the installed command is not version $VERSION"

#!/usr/bin/env bash
# Installs, builds and runs the tests. The last lines are ctest's.
set -euo pipefail

usage() {
  cat <<TEXT
usage: ${0##*/} [--preset release|debug|asan-ubsan|tsan] [--no-install] [-j N] [-L LABEL] [-R REGEX] [ctest options]

  --preset NAME  how to build (default release); the build folder is build/NAME in this checkout
  --no-install   do not look for missing packages
  -j N           jobs for the build and for ctest (default: one per processor)
  -L, -R, ...    everything else goes to ctest as it is
TEXT
}

fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit 2
}

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
preset=release
install=yes
jobs=$(nproc)
ctest_options=()
while (($#)); do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --preset=*) preset=${1#*=}; shift ;;
    --no-install) install=no; shift ;;
    -j) jobs=${2:?-j needs a number}; shift 2 ;;
    -j[0-9]*) jobs=${1#-j}; shift ;;
    -h | --help) usage; exit 0 ;;
    --) shift; ctest_options+=("$@"); break ;;
    *) ctest_options+=("$1"); shift ;;
  esac
done
case $preset in
  release | debug | asan-ubsan | tsan) ;;
  *) fail "no preset '$preset'; there are release, debug, asan-ubsan and tsan" ;;
esac
[[ $jobs =~ ^[1-9][0-9]*$ ]] || fail "-j takes a number, found '$jobs'"

cd -- "$root"
if [[ $install == yes ]]; then tests/install_packages.sh; fi

mkdir -p "build/$preset"
# One run per build folder. Nothing started below inherits the descriptor, so a stray child cannot hold it.
exec 9>"build/$preset/run.lock"
if ! flock -n 9; then
  printf 'another run is using build/%s; waiting for it\n' "$preset"
  flock 9
fi

# Sanitizers need a predictable memory map, which some kernels' address randomisation does not leave.
fixed_addresses=()
case $preset in
  asan-ubsan | tsan)
    if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi
    ;;
esac

# The compiler cache needs a home; without one the build does.
if [[ -z ${CCACHE_DIR-} && ! -w ${HOME:-/nonexistent} ]]; then export CCACHE_DISABLE=1; fi

cmake --preset "$preset" 9>&-
"${fixed_addresses[@]}" cmake --build --preset "$preset" --parallel "$jobs" 9>&-
"${fixed_addresses[@]}" ctest --preset "$preset" --parallel "$jobs" --output-on-failure --no-tests=error \
  "${ctest_options[@]}" 9>&-

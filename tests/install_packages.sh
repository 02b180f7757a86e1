#!/usr/bin/env bash
# The one list of packages (Debian 12, Ubuntu 24.04) for building, testing and the quickstart, and their installation.
# Installs only what is missing, removes nothing, starts no service: tests and examples run private servers.
set -euo pipefail

usage() {
  cat <<TEXT
usage: ${0##*/}                     install what is missing (with sudo unless root)
       ${0##*/} --with PACKAGE...   and these
       ${0##*/} --list              print the packages, one a line
TEXT
}

readonly oldest_boost_minor=81 oldest_postgres=14
packages=(
  g++ cmake ninja-build pkg-config ccache mold
  libpqxx-dev libpq-dev libhiredis-dev libspdlog-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev
  redis-server pgbouncer util-linux libfaketime
)

installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }
available() { apt-cache policy -- "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'; }

# Boost by version: the package libboost-dev may be too old (1.74 on Debian 12 does not compile as C++20), and two
# versions conflict, so what is installed already wins if it is new enough.
boost_package() {
  local package minor offered=''
  while read -r package; do
    minor=${package#libboost1.} minor=${minor%-dev}
    ((minor >= oldest_boost_minor)) || continue
    if installed "$package"; then
      echo "$package"
      return
    fi
    if [[ -z $offered ]] && available "$package"; then offered=$package; fi
  done < <({ apt-cache pkgnames libboost1. && dpkg-query -W -f '${Package}\n' 'libboost1.*-dev' 2>/dev/null; } |
    grep -E '^libboost1\.[0-9]+-dev$' | sort -uV)
  echo "${offered:-libboost1.$oldest_boost_minor-dev}"
}

# Any server that is new enough will do; pgbench comes with the server or its contrib package.
postgres_packages() {
  local folder version
  for folder in /usr/lib/postgresql/*/bin; do
    version=${folder#/usr/lib/postgresql/} version=${version%/bin}
    if [[ $version =~ ^[0-9]+$ && -x $folder/initdb && -x $folder/postgres && -x $folder/pgbench ]] &&
      ((version >= oldest_postgres)); then
      return
    fi
  done
  printf '%s\n' postgresql postgresql-contrib
}

missing_packages() {
  local package
  for package in "${packages[@]}" "$(boost_package)"; do
    if [[ $package == redis-server ]] && command -v redis-server >/dev/null; then continue; fi
    installed "$package" || echo "$package"
  done
  postgres_packages
}

# --- as root --------------------------------------------------------------------------------------------------------

# Packages start their services when installed, unless this policy says no. It holds for our three services and only
# while this process lives, so that even if it is left behind (kill -9) it denies nothing.
deny_service_starts() {
  local policy=/usr/sbin/policy-rc.d
  [[ ! -e $policy && ! -L $policy ]] || return 0
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  cat >"$policy" <<POLICY
#!/bin/sh
[ -d /proc/$$ ] || exit 0
case "\$1" in postgresql* | redis* | pgbouncer*) exit 101 ;; esac
exit 0
POLICY
  chmod 755 "$policy"
}

install_missing() {
  local -a missing options=(-y --no-install-recommends -o DPkg::Lock::Timeout=300)
  local plan package unknown=''
  exec 9>/run/lock/crossfade-install-packages
  flock 9
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  for package in "${missing[@]}"; do available "$package" || unknown+=" $package"; done
  if [[ -n $unknown ]] || ! apt-get install "${options[@]}" --no-remove --download-only "${missing[@]}" \
    >/dev/null 2>&1 9>&-; then
    apt-get update -q 9>&- || echo "apt-get update failed; going on with the lists at hand" >&2
    mapfile -t missing < <(missing_packages)
  fi
  if ! plan=$(apt-get install -s "${options[@]}" "${missing[@]}" 2>&1 9>&-); then
    printf 'apt-get cannot install: %s\n%s\n' "${missing[*]}" "$plan" >&2
    return 1
  fi
  if grep -q '^Remv ' <<<"$plan"; then
    printf 'Installing these packages: %s\nwould remove these, so nothing was done:\n' "${missing[*]}" >&2
    sed -n 's/^Remv \([^ ]*\).*/  \1/p' <<<"$plan" >&2
    return 1
  fi
  deny_service_starts
  apt-get install "${options[@]}" --no-remove "${missing[@]}" 9>&-
}

# --- as anybody -----------------------------------------------------------------------------------------------------

main() {
  local -a missing
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    printf 'no apt-get here; install what corresponds to these Debian packages:\n' >&2
    printf '  %s\n' "${packages[@]}" 'libboost-dev (1.81 or newer)' 'postgresql (14 or newer, with pgbench)' >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  local as_root=no
  if [[ ${1-} == --as-root ]]; then
    as_root=yes
    shift
  fi
  local -a more=("$@")
  case ${1-} in
    --with)
      shift
      packages+=("$@")
      ;;
    --list) printf '%s\n' "${packages[@]}" "$(boost_package)" postgresql postgresql-contrib; return ;;
    '') ;;
    -h | --help) usage; return ;;
    *) usage >&2; exit 2 ;;
  esac
  if [[ $as_root == yes ]]; then
    install_missing
    return
  fi
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then return; fi
  printf 'installing: %s\n' "${missing[*]}"
  if ((EUID == 0)); then
    install_missing
  elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    sudo DEBIAN_FRONTEND=noninteractive bash "${BASH_SOURCE[0]}" --as-root "${more[@]}"
  else
    printf 'not root and no sudo without a password; ask an administrator to run:\n' >&2
    printf '  apt-get install --no-remove --no-install-recommends %s\n' "${missing[*]}" >&2
    exit 1
  fi
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]})); then
    printf 'still missing after the installation: %s\n' "${missing[*]}" >&2
    exit 1
  fi
}

main "$@"

#!/usr/bin/env bash
# Schemas that nobody here wrote: what pgbench, Django and ActiveRecord make by themselves. Columns of them are led
# through the whole life, there, back and there again; the catalog must be that of a copy in which PostgreSQL itself
# changed the type. Not part of tests/run.sh. It installs the Debian packages that it needs and builds crossfade.
#
#   tests/schemas/run.sh [--no-install] [pgbench|django|active_record ...]
#
# CROSSFADE_BINARY   use this crossfade instead of building one
#
# Exit status: 0 all catalogs were as they should be, 1 one was not, 2 wrong usage, 69 a package cannot be had (named).
set -euo pipefail
readonly unavailable=69
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=SCRIPTDIR/../../examples/common.sh
source "$here/../../examples/common.sh"

readonly python=/usr/bin/python3 ruby=/usr/bin/ruby

packages_of() { # APPLICATION
  case $1 in
    django) printf '%s\n' python3-django python3-psycopg2 ;;
    active_record) printf '%s\n' ruby-activerecord ruby-pg ;;
  esac
}

# Left out are those of applications that are not asked for.
install_packages() { # APPLICATION...
  local application
  local -a packages=()
  for application in "$@"; do mapfile -t -O "${#packages[@]}" packages < <(packages_of "$application"); done
  if ! "$root/tests/install_packages.sh" --with "${packages[@]}"; then
    printf '\nNOT RUN: of the packages that %s need, some cannot be had; they are named above.\n' "$*" >&2
    exit "$unavailable"
  fi
}

as_superuser() { "$examples/sandbox" psql "$work/sandbox" -U postgres -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }
ask() { "$(pg_tool psql)" -X -q -A -t -v ON_ERROR_STOP=1 -d "$CROSSFADE_DSN" -c "$1"; }

# A database of its own for each application, as the owner.
use_database() { # NAME
  CROSSFADE_DSN=$(sed -E "s/dbname=[^ ]+/dbname=$1/" <<<"$app_dsn")
  export CROSSFADE_DSN
}
make_database() { # NAME
  as_superuser "CREATE DATABASE $1 OWNER crossfade_owner"
  use_database "$1"
}

# Sorted, because a column that came later stands elsewhere. A default that is a number is carried as a literal.
catalog() {
  "$(pg_tool pg_dump)" --schema-only -N crossfade -d "$CROSSFADE_DSN" |
    grep -vE '^(\\(un)?restrict|--|$)' | sed -E "s/,\$//; s/DEFAULT '([0-9.]+)'::[a-z]+/DEFAULT \1/" | sort
}

expect_catalog() { # FILE WHERE [FILTER]
  catalog >"$work/now"
  if [[ ${3-} == switched ]]; then
    # The old column and what keeps it in step are there until the drop.
    grep -vE '_cf|crossfade\.|~~~crossfade_' "$work/now" >"$work/now.filtered" || true
    mv -- "$work/now.filtered" "$work/now"
  fi
  diff -u "$1" "$work/now" >"$work/difference" || die "the catalog $2: $(cat -- "$work/difference")"
  note "the catalog is as it should be $2"
}

on_refusal() { sleep 1; }

# What the catalog should be in the end, by PostgreSQL's own hand.
expected_catalog() { # DATABASE STATEMENTS
  as_superuser "CREATE DATABASE reference TEMPLATE $1 OWNER crossfade_owner"
  use_database reference
  ask "$2"
  catalog >"$work/expected"
  use_database "$1"
  as_superuser "DROP DATABASE reference"
}

# The whole life of one column; with follow=yes together with the foreign keys that refer to it.
life() { # DATABASE TABLE COLUMN TYPE [STATEMENTS that PostgreSQL needs besides]
  local database=$1 table=$2 column=$3 type=$4 more=${5-} name="life_${2#*.}_$3"
  name=${name:0:40}
  heading "$database: $table.$column becomes $type"
  catalog >"$work/before"
  expected_catalog "$database" "ALTER TABLE $table ALTER COLUMN $column TYPE $type; $more"
  printf '[migration]\nname = "%s"\ntable = "%s"\n[[column]]\nname = "%s"\ntype = "%s"\n[drop]\nsoak = "0s"\n' \
    "$name" "$table" "$column" "$type" >"$work/spec.toml"
  if [[ ${follow-} == yes ]]; then printf '[switch]\nfollow_foreign_keys = true\n' >>"$work/spec.toml"; fi
  crossfade start "$work/spec.toml" || die "the start was refused"
  reach "$name" switched --until switched
  expect_catalog "$work/expected" "after the switch" switched
  crossfade rollback "$name" --to rolled_back || die "no way back"
  expect_catalog "$work/before" "after the way back"
  crossfade start "$work/spec.toml" || die "the second start was refused"
  reach "$name" switched --until switched
  reach "$name" dropped --until dropped --confirm "$name"
  expect_catalog "$work/expected" "after the drop"
  if [[ $more ]]; then note "and: $more"; fi
  lives=$((lives + 1))
}

# A column that something else refers to, which is refused by its name.
refused() { # TABLE COLUMN TYPE WORD
  heading "$1.$2 to $3 is refused"
  printf '[migration]\nname = "refused"\ntable = "%s"\n[[column]]\nname = "%s"\ntype = "%s"\n' "$1" "$2" "$3" \
    >"$work/spec.toml"
  local answer status=0
  answer=$("$crossfade_binary" start "$work/spec.toml" 2>&1) || status=$?
  ((status == 3)) || die "it should be refused with status 3 and ended with $status: $answer"
  grep -q -- "$4" <<<"$answer" || die "the refusal does not name $4: $answer"
  note "$(grep -m 1 -- "$4" <<<"$answer")"
}

# shellcheck source=SCRIPTDIR/applications.sh
source "$here/applications.sh"

install=yes
applications=()
for word in "$@"; do
  case $word in
    pgbench | django | active_record) applications+=("$word") ;;
    --no-install) install=no ;;
    -h | --help) sed -n '2,/^set/ s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'usage: %s [--no-install] [pgbench|django|active_record ...]\n' "${0##*/}" >&2; exit 2 ;;
  esac
done
if ((${#applications[@]} == 0)); then applications=(pgbench django active_record); fi

heading "Packages and build"
if [[ $install == yes ]]; then install_packages "${applications[@]}"; fi
if [[ -z ${CROSSFADE_BINARY-} ]]; then build_binary; fi
find_binary
started=$SECONDS
lives=0
start_sandbox
app_dsn=$CROSSFADE_DSN
for application in "${applications[@]}"; do "${application}_life"; done
heading "$lives columns went all their ways in $((SECONDS - started)) seconds, and every catalog was as it should be"

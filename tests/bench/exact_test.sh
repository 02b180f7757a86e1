#!/usr/bin/env bash
# What of docs/performance.md can be said exactly, on a small table: each row is written once, a replay writes nothing, the
# process stays small, and so does its state. No duration is looked at.
set -euo pipefail

crossfade=$1 measure=$2 memory_limit_kib=$3
here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
root=${here%/tests/bench}
readonly rows=60000

work=$(mktemp -d "${TMPDIR:-/tmp}/crossfade-exact.XXXXXX")
chmod 711 -- "$work"
take_down() {
  local status=$?
  trap - EXIT
  if [[ -f $work/sandbox/sandbox.conf ]]; then "$root/examples/sandbox" down "$work/sandbox" || status=1; fi
  rm -rf -- "$work"
  exit "$status"
}
trap take_down EXIT
"$root/examples/sandbox" up "$work/sandbox" >"$work/up.log"
eval "$("$root/examples/sandbox" env "$work/sandbox")"
unset CROSSFADE_REDIS

fail() {
  printf '%s\n' "$1"
  exit 1
}
sql() { "$root/examples/sandbox" psql "$work/sandbox" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }
run() { # ARGUMENT...
  local seconds memory_kib status
  "$measure" "$work/timing" "$crossfade" "$@" >"$work/out" 2>&1 || fail "crossfade $* failed: $(cat -- "$work/out")"
  # shellcheck disable=SC2034  # the time is not looked at
  read -r seconds memory_kib status <"$work/timing"
  ((memory_kib <= memory_limit_kib)) || fail "crossfade $* held $memory_kib KiB, more than $memory_limit_kib"
}

sql "CREATE TABLE accounts (id integer PRIMARY KEY, balance integer, filler char(84))"
sql "ALTER TABLE accounts SET (autovacuum_enabled = off)"
sql "INSERT INTO accounts SELECT g, g, '' FROM generate_series(1, $rows) g"
sql "VACUUM (ANALYZE) accounts"
cat >"$work/spec.toml" <<'SPEC'
[migration]
name = "exact"
table = "public.accounts"
[[column]]
name = "balance"
type = "bigint"
SPEC
run init
run start "$work/spec.toml" --accept isolation_conflict --reason "a test"
run next exact --until dry_run
run next exact --until backfill

# The sessions tell the statistics when they end.
written=0
for ((look = 0; look < 300 && written < rows; ++look)); do
  written=$(sql "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'accounts'")
  sleep 0.1
done
((written == rows)) || fail "the backfill of $rows rows made $written updates"

run next exact --until compare
[[ $(sql "SELECT rows_read || ' ' || rows_written FROM crossfade.pass WHERE kind = 'replay' ORDER BY id DESC LIMIT 1") == \
  "$rows 0" ]] || fail "the replay: $(sql "SELECT rows_read, rows_written FROM crossfade.pass WHERE kind = 'replay'")"
[[ $(sql "SELECT rows_read || ' ' || differences FROM crossfade.pass WHERE kind = 'compare' ORDER BY id DESC LIMIT 1") == \
  "$rows 0" ]] || fail "the comparison did not read $rows rows without a difference"
(($(sql "SELECT max(n) FROM (SELECT count(*) AS n FROM crossfade.unit GROUP BY pass_id) u") <= 10000)) ||
  fail "a pass has more than 10,000 units"

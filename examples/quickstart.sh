#!/usr/bin/env bash
# The whole life of a migration on a table under load: builds crossfade, makes a private PostgreSQL and Redis, fills
# pgbench's tables, keeps pgbench writing, and moves pgbench_accounts.abalance from integer to bigint, with a rollback
# on the way, and two worker processes beside the first sweep, one of which is killed. Ends with status 0 only if every
# check held. Leaves nothing behind but build/quickstart.
#
# CROSSFADE_QUICKSTART_SCALE  pgbench scale, 100,000 accounts each (default 10)
# CROSSFADE_BINARY            use this crossfade instead of building one
set -euo pipefail
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/common.sh"

case ${1-} in
  '') ;;
  -h | --help) sed -n '2,/^set/ s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) printf 'usage: %s   (no arguments; see --help)\n' "${0##*/}" >&2; exit 2 ;;
esac
scale=${CROSSFADE_QUICKSTART_SCALE:-10}
[[ $scale =~ ^[1-9][0-9]{0,3}$ ]] || die "CROSSFADE_QUICKSTART_SCALE is a number from 1 to 9999, found '$scale'"
name=accounts_balance_bigint
spec=$examples/int_to_bigint/spec.toml

# A refusal of next: nothing to help with but trying again.
on_refusal() { note "not yet; trying again"; }

# The column that Crossfade added beside pgbench's own: the shadow before the switch, the old column after it.
other_column() {
  sql "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 'public.pgbench_accounts'::regclass
       AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('aid', 'bid', 'abalance', 'filler')"
}

# Both columns hold the same number in every row, while pgbench goes on writing.
verify_mapping() {
  local other answer
  other=$(other_column)
  [[ -n $other && $other != *$'\n'* ]] || die "one column beside pgbench's own was expected, found: '$other'"
  answer=$(sql "SELECT count(*) || ' rows, ' || count(*) FILTER (WHERE abalance IS DISTINCT FROM $other) || ' differ'
                FROM public.pgbench_accounts")
  note "abalance is $(balance_type), $other is the other side: $answer"
  [[ $answer == "$((scale * 100000)) rows, 0 differ" ]] || die "the two columns differ"
}

balance_type() {
  sql "SELECT format_type(atttypid, atttypmod) FROM pg_attribute
       WHERE attrelid = 'public.pgbench_accounts'::regclass AND attname = 'abalance'"
}

require_type() { [[ $(balance_type) == "$1" ]] || die "abalance should be $1 and is $(balance_type)"; }

show_pause() {
  local held
  held=$(status_field "$name" switch,lock_held_ms)
  [[ -n $held ]] || die "status does not tell how long the switch held its lock"
  note "the switch held its lock for $held ms"
}

# Worker processes beside `next`, as other hosts would start them; the first is killed in the middle of the sweep.
worker_pids=()
start_workers() {
  local number
  for number in 1 2; do
    "$crossfade_binary" work "$name" --workers 1 >"$work/worker.$number.log" 2>&1 &
    worker_pids+=($!)
  done
  kill_a_worker "${worker_pids[0]}" &
  load_pids+=($!)
}

kill_a_worker() { # PID
  trap - EXIT
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    if [[ $(sql "SELECT count(*) FROM crossfade.unit u JOIN pg_stat_activity a ON a.pid = u.lease_pid
                 WHERE NOT u.done AND a.application_name LIKE 'crossfade/%/work-%'") != 0 ]]; then break; fi
    if ! kill -0 "$1" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
}

# The one that was not killed ends by itself when there is nothing left to sweep.
expect_workers_end() {
  local status=0
  wait "${worker_pids[0]}" 2>/dev/null || status=$?
  ((status == 137 || status == 0)) || die "the first worker ended with $status: $(cat -- "$work/worker.1.log")"
  wait "${worker_pids[1]}" || die "the second worker failed: $(cat -- "$work/worker.2.log")"
  note "one worker process was killed on the way; the other says: $(tail -n 1 -- "$work/worker.2.log")"
}

if [[ -z ${CROSSFADE_BINARY-} ]]; then
  heading "Packages and build"
  "$root/tests/install_packages.sh"
  build_binary
fi
find_binary
started=$SECONDS

heading "A private PostgreSQL and Redis, and $((scale * 100000)) accounts"
start_sandbox
"$(pg_tool pgbench)" -i -q -s "$scale" "$CROSSFADE_DSN" >"$work/pgbench_init.log" 2>&1 ||
  die "pgbench -i failed: $(cat -- "$work/pgbench_init.log")"
require_type integer

heading "The application: pgbench with four clients, from now to the end"
start_load -b tpcb-like

heading "Prepare: the schema of crossfade, and the plan"
crossfade init
crossfade plan "$spec"

heading "planned"
crossfade start "$spec"
expect_phase "$name" planned

for phase in dry_run backfill dual_write compare switched; do
  heading "$phase"
  if [[ $phase == backfill ]]; then start_workers; fi
  reach "$name" "$phase"
  if [[ $phase == backfill ]]; then expect_workers_end; fi
  crossfade status "$name"
  case $phase in
    planned | dry_run) [[ -z $(other_column) ]] || die "$phase touched the table" ;;
    *) verify_mapping ;;
  esac
done
require_type bigint
show_pause

heading "Second thoughts: back from switched to compare"
crossfade rollback "$name"
expect_phase "$name" compare
require_type integer
verify_mapping

heading "Forward again"
reach "$name" compare
reach "$name" switched
crossfade status "$name"
require_type bigint
verify_mapping
show_pause

heading "dropped"
reach "$name" dropped --confirm "$name"
expect_phase "$name" dropped
crossfade history "$name"

heading "What is left"
stop_load
sums=$(sql "SELECT concat_ws(' ', (SELECT sum(abalance) FROM public.pgbench_accounts),
  (SELECT sum(tbalance) FROM public.pgbench_tellers), (SELECT sum(bbalance) FROM public.pgbench_branches),
  (SELECT sum(delta) FROM public.pgbench_history))")
note "sums of accounts, tellers, branches and history: $sums"
read -r accounts tellers branches history rest <<<"$sums"
[[ -n $history && -z $rest && $accounts == "$tellers" && $accounts == "$branches" && $accounts == "$history" ]] ||
  die "a write was lost: the four sums differ"
require_type bigint
[[ -z $(other_column) ]] || die "a column was left behind: $(other_column)"
[[ $(sql "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.pgbench_accounts'::regclass") == 0 ]] ||
  die "a trigger was left behind"
note "abalance is bigint, nothing was left behind, and everything held, in $((SECONDS - started)) seconds"

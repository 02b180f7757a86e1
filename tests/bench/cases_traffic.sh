# P6 P7 P11 P11b: what the application notices.
# shellcheck shell=bash

# Latencies in microseconds of the transactions that began between two moments, from pgbench's log; with a rate the lag
# behind the schedule is part of what a client waits.
latencies() { # PREFIX FROM TO
  cat -- "$1".* | awk -v from="$2" -v to="$3" '{ at = $5 + $6 / 1e6 - $3 / 1e6; if (at >= from && at <= to) print $3 }'
}

traffic_while() { # DATABASE RATE COMMAND...: sets p99 and tps of the time that the command took
  local load prefix=$work/latency from to
  rm -f -- "$prefix".*
  (cd "$work" && exec "$binaries/pgbench" -h "$sockets" -U "$owner" -n -c 4 -j 2 -R "$2" -T 600 -l \
    --log-prefix="$prefix" "$1" >"$work/load.log" 2>&1) &
  load=$!
  background+=("$load")
  sleep 2
  from=$(date +%s.%N)
  "${@:3}"
  to=$(date +%s.%N)
  sleep 1
  end_background "$load"
  latencies "$prefix" "$from" "$to" >"$work/latencies"
  p99=$(percentile 0.99 "$work/latencies")
  tps=$(calc "$(wc -l <"$work/latencies") / ($to - $from)")
}

# The controller may hold the sweep back for as long as it likes; a minute of it is enough.
backfill_for_a_minute() { # DATABASE
  local status=0
  CROSSFADE_DSN=$(dsn "$1") CROSSFADE_REDIS='' timeout -s INT 60 "$tool" next "$migration" --until backfill \
    >"$work/tool.out" 2>"$work/tool.err" || status=$?
  ((status == 0 || status == 124)) || die "crossfade next failed: $(cat -- "$work/tool.err")"
}

held_rate() {
  local pair maximum rate control='probe = "SELECT abalance FROM pgbench_accounts WHERE aid = 1"'
  local -a tuning=("$control" 'probe_p99 = "5ms"' 'chunk_target = "20ms"')
  make_accounts 0
  copy_database accounts_0 bench
  maximum=$(pgbench bench -n -c 4 -j 2 -T 10 2>/dev/null | sed -n 's/^tps = \([0-9]*\).*/\1/p')
  rate=$((maximum / 2))
  note "P6: at most $maximum transactions per second, held at $rate"
  if ! prepare accounts_0 bench "$cast_column" "${tuning[@]}"; then
    missing P6.p99 "the pace controller is not built"
    missing P6.tps "the pace controller is not built"
    return
  fi
  for ((pair = 1; pair <= pairs; ++pair)); do
    note "P6: pair $pair of $pairs"
    prepare accounts_0 bench "$cast_column" "${tuning[@]}"
    local began ended
    began=$(date +%s.%N)
    traffic_while bench "$rate" backfill_for_a_minute bench
    ended=$(date +%s.%N)
    sample P6.p99 tool "$pair" "$p99"
    sample P6.tps tool "$pair" "$tps"
    copy_database accounts_0 bench
    traffic_while bench "$rate" sleep "$(calc "$ended - $began")"
    sample P6.p99 rival "$pair" "$p99"
    sample P6.tps rival "$pair" "$tps"
  done
}

# Two streams whose slices end at different moments, so that there is always one; every failed transaction counts.
load_stream() { # DATABASE STREAM
  local slice
  for ((slice = 1;; ++slice)); do
    if [[ -e $work/stop_load ]]; then return; fi
    pgbench "$1" -n -c 2 -T $((2 + $2)) >"$work/stream.$2.$slice" 2>&1 || echo aborted >>"$work/stream.$2.$slice"
  done
}

switch_and_back() {
  local cycles=20 cycle stream pids=() held failed
  case $size in full) cycles=100 ;; quick) cycles=5 ;; esac
  make_accounts 0 1 accounts_small
  prepare accounts_small bench "$cast_column"
  require_crossfade bench next "$migration" --until compare
  rm -f -- "$work/stop_load" "$work"/stream.*
  for stream in 1 2; do
    load_stream bench "$stream" &
    pids+=($!)
    background+=($!)
  done
  for ((cycle = 1; cycle <= cycles; ++cycle)); do
    note "P7: cycle $cycle of $cycles"
    require_crossfade bench next "$migration" --until switched --wait=120s
    held=$(sql bench "$held_sql")
    sample P7.held_p50 tool $((2 * cycle)) "$held"
    sample P7.held_max tool $((2 * cycle)) "$held"
    until crossfade bench rollback "$migration"; do
      grep -q 'old_snapshot\|older than the last write' "$work/tool.err" || die "the way back: $(cat "$work/tool.err")"
      sleep 0.2
    done
    held=$(sql bench "$held_sql")
    sample P7.held_p50 tool $((2 * cycle + 1)) "$held"
    sample P7.held_max tool $((2 * cycle + 1)) "$held"
  done
  touch -- "$work/stop_load"
  wait "${pids[@]}" || true
  failed=$(cat -- "$work"/stream.* | awk '/^number of failed transactions:/ { n += $5 } /aborted|ERROR:/ { ++n } END { print n + 0 }')
  sample P7.failed tool 1 "$failed"
}
readonly held_sql="SELECT lock_held_ms FROM crossfade.switch_attempt WHERE lock_held_ms IS NOT NULL ORDER BY id DESC LIMIT 1"

# The table as it is with the capture in place and nobody sweeping, and the same table without.
make_captured() { # NAME COLUMN
  if have_database "$1"; then return; fi
  make_accounts 0
  prepare accounts_0 "$1" "$2"
  require_crossfade "$1" next "$migration" --until backfill
  sql "$1" 'VACUUM FULL pgbench_accounts'
  settle_table "$1" pgbench_accounts
}

tps_with_capture() { # CASE CAPTURED
  local pair side from seconds_each=8
  if [[ $size == quick ]]; then seconds_each=4; fi
  for ((pair = 1; pair <= pairs; ++pair)); do
    note "$1: pair $pair of $pairs"
    for side in tool rival; do
      from=accounts_0
      if [[ $side == tool ]]; then from=$2; fi
      copy_database "$from" bench
      checkpoint
      sample "$1" "$side" "$pair" \
        "$(pgbench bench -n -c 2 -j 2 -T "$seconds_each" 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p')"
    done
  done
}

bulk_with_capture() { # SUFFIX CAPTURED
  local pair side from count=500000
  if ((count > rows)); then count=$rows; fi
  # Where the server reads it: a file that everybody may read, in a folder that everybody may enter.
  awk -v n="$count" -v from="$rows" 'BEGIN { for (i = 1; i <= n; ++i) printf "%d\t1\t%d\tx\n", from + i, i }' >"$work/rows"
  chmod 644 -- "$work/rows"
  for ((pair = 1; pair <= pairs; ++pair)); do
    note "P11b$1: pair $pair of $pairs"
    for side in tool rival; do
      from=accounts_0
      if [[ $side == tool ]]; then from=$2; fi
      copy_database "$from" bench
      checkpoint
      timed_sql bench "\\copy pgbench_accounts (aid, bid, abalance, filler) FROM '$work/rows'"
      sample "P11b.copy$1" "$side" "$pair" "$seconds"
      copy_database "$from" bench
      checkpoint
      timed_sql bench 'UPDATE pgbench_accounts SET abalance = abalance + 1'
      sample "P11b.update$1" "$side" "$pair" "$seconds"
    done
  done
  rm -f -- "$work/rows"
}

cases_traffic() {
  if wanted P6.p99 P6.tps; then held_rate; fi
  if wanted P7.held_p50 P7.held_max P7.failed; then switch_and_back; fi
  if wanted P11.cast P11b.copy P11b.update; then make_captured captured_cast "$cast_column"; fi
  if wanted P11.expression P11b.copy.expression P11b.update.expression; then
    make_captured captured_expression "$expression_column"
  fi
  if wanted P11.cast; then tps_with_capture P11.cast captured_cast; fi
  if wanted P11.expression; then tps_with_capture P11.expression captured_expression; fi
  if wanted P11b.copy P11b.update; then bulk_with_capture '' captured_cast; fi
  if wanted P11b.copy.expression P11b.update.expression; then bulk_with_capture .expression captured_expression; fi
}

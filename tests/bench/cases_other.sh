# P8 P9 P13 P14 P15: comparison, recovery, status, and the fixed cost of a chunk.
# shellcheck shell=bash

against_one_query() { # CASE FIXTURE WORKERS
  local pair shadow
  prepare "$2" bench "$cast_column" "workers = $3"
  require_crossfade bench next "$migration" --until compare
  shadow=$(sql bench "SELECT attname FROM pg_attribute WHERE attrelid = 'pgbench_accounts'::regclass
                      AND attnum > 0 AND NOT attisdropped ORDER BY attnum DESC LIMIT 1")
  sql bench 'VACUUM (ANALYZE) pgbench_accounts'  # both read pages whose rows are known to be visible
  local query="SET max_parallel_workers_per_gather = 0; SELECT count(*) FILTER (WHERE \"$shadow\" IS DISTINCT FROM
               abalance::bigint) FROM pgbench_accounts"
  timed_sql bench "$query"
  for ((pair = 1; pair <= pairs; ++pair)); do
    note "$1: pair $pair of $pairs"
    timed_crossfade bench compare "$migration"
    sample "$1" tool "$pair" "$seconds"
    timed_sql bench "$query"
    sample "$1" rival "$pair" "$seconds"
  done
}

chunks_done() { sql bench 'SELECT coalesce(sum(chunks), 0) FROM crossfade.unit'; }

# One session that looks every two milliseconds and says when the first chunk after those of before was committed.
first_chunk_after() { # CHUNKS
  sql bench "DO \$\$ BEGIN
    WHILE (SELECT coalesce(sum(chunks), 0) FROM crossfade.unit) <= $1 LOOP PERFORM pg_sleep(0.002); END LOOP; END \$\$;
    SELECT extract(epoch FROM clock_timestamp())" >"$work/first_chunk"
}

killed() {
  local run pid before began watcher workers=2 written chunk
  make_accounts 0
  for ((run = 1; run <= few_pairs; ++run)); do
    note "P9: run $run of $few_pairs"
    prepare accounts_0 bench "$cast_column" "workers = $workers"
    # A chunk lives a quarter of it. What a busy machine makes run out of time is undone too, and is not what is asked.
    admin bench "ALTER DATABASE bench SET deadlock_timeout = '10s'"
    CROSSFADE_DSN=$(dsn bench) CROSSFADE_REDIS='' "$tool" next "$migration" --until backfill \
      >"$work/killed.out" 2>&1 &
    pid=$!
    background+=("$pid")
    until (($(sql bench 'SELECT coalesce(sum(rows_written), 0) FROM crossfade.unit') > rows / 3)); do sleep 0.05; done
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    # The server ends the statement that it was at, commits it, and only then finds nobody to answer.
    until [[ -z $(admin bench "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'crossfade/%' LIMIT 1") ]]; do
      sleep 0.05
    done
    before=$(chunks_done)
    first_chunk_after "$before" &
    watcher=$!
    began=$(date +%s.%N)
    require_crossfade bench next "$migration" --until backfill
    wait "$watcher"
    sample P9.seconds tool "$run" "$(calc "$(cat "$work/first_chunk") - $began")"
    written=$(updates bench "$rows")
    chunk=$(sql bench 'SELECT sum(rows_read) / sum(chunks) FROM crossfade.unit')
    sample P9.rows tool "$run" "$(calc "(${written% *} - $rows) / ($chunk * $workers)")"
  done
}

# Stopped as soon as its units are planned.
planned_units() { # FIXTURE [TUNING_LINE...]
  local status=0
  prepare "$1" bench "$cast_column" "${@:2}"
  { CROSSFADE_FAILPOINTS=units.planned=abort crossfade bench next "$migration"; } 2>/dev/null || status=$?
  ((status != 0)) || die "the failpoint units.planned was not hit"
}

# Copies of the first one.
more_units() { # COUNT
  sql bench "INSERT INTO crossfade.unit
             SELECT (jsonb_populate_record(o.one, jsonb_build_object('number', 100000 + g))).*
             FROM (SELECT u AS one FROM crossfade.unit u ORDER BY number LIMIT 1) o, generate_series(1, $1) g"
}

status_of_many() {
  local run plain units
  make_accounts 0
  planned_units accounts_0
  units=$(sql bench 'SELECT count(*) FROM crossfade.unit')
  more_units $((10000 - units))
  timed_crossfade bench status "$migration" --json
  for ((run = 1; run <= 3 * pairs; ++run)); do
    timed_sql bench 'SELECT 1'
    plain=$seconds
    timed_crossfade bench status "$migration" --json
    sample P13 tool "$run" "$(calc "1000 * ($seconds - $plain)")"
  done
}

# From the server's log: the time of the statements that match, bind and execute together, in milliseconds. The first
# eight of a session are left out: until the sixth a prepared statement is planned each time. PostgreSQL begins the
# further lines of a statement with a tab.
statement_times() { # PATTERN LOG
  awk -v pattern="$1" '
    function finish() {
      if (text ~ pattern && match(text, /duration: [0-9.]+ ms  (bind|execute)/)) {
        split(substr(text, RSTART, RLENGTH), part, " ")
        if (part[4] == "bind") bound[pid] = part[2]; else { if (++seen[pid] > 8) print bound[pid] + part[2]; bound[pid] = 0 }
      }
    }
    /^\t/ { text = text " " $0; next }
    { finish(); text = $0; match(text, /\[[0-9]+\]/); pid = substr(text, RSTART, RLENGTH) }
    END { finish() }' "$2"
}

# Units are planned over a full table that is empty when they are swept: each ends with a chunk that finds no row. The
# log has the time of a statement without its COMMIT, which both commit asynchronously in the same round trip. So a chunk
# takes what an UPDATE takes for its client, and what its own statement takes longer.
empty_chunks() {
  local run log=$work/sandbox/postgres.log from chunk_ms update_ms client_ms
  make_accounts 0
  for ((run = 1; run <= few_pairs; ++run)); do
    note "P14: run $run of $few_pairs"
    planned_units accounts_0 'workers = 1'
    more_units 200
    sql bench 'DELETE FROM pgbench_accounts WHERE aid > 1'
    sql bench 'VACUUM pgbench_accounts'
    admin bench "ALTER DATABASE bench SET log_min_duration_statement = 0"
    from=$(($(wc -c <"$log") + 1))
    require_crossfade bench next "$migration"
    tail -c "+$from" "$log" >"$work/log"
    statement_times 'UPDATE ONLY .* UPDATE crossfade.unit u SET' "$work/log" >"$work/chunks"
    from=$(($(wc -c <"$log") + 1))
    printf 'UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = 1;\n' >"$work/update.sql"
    PGOPTIONS='-c synchronous_commit=off -c jit=off' pgbench bench -n -M prepared -t 300 -f "$work/update.sql" >"$work/update.log" 2>&1
    tail -c "+$from" "$log" >"$work/log"
    statement_times 'UPDATE pgbench_accounts SET abalance' "$work/log" >"$work/updates"
    chunk_ms=$(percentile 0.5 "$work/chunks") update_ms=$(percentile 0.5 "$work/updates")
    client_ms=$(sed -n 's/^latency average = \([0-9.]*\) ms$/\1/p' "$work/update.log")
    [[ -n $chunk_ms && -n $update_ms && -n $client_ms ]] || die "no chunk or no update was found in the server's log"
    sample P14 tool "$run" "$(calc "$client_ms + $chunk_ms - $update_ms")"
    sample P14 rival "$run" "$client_ms"
  done
}

cases_other() {
  if wanted P8.integer; then
    make_accounts 0
    against_one_query P8.integer accounts_0 1
  fi
  if wanted P8.uuid; then
    make_uuids
    against_one_query P8.uuid uuids 1
  fi
  if wanted P8.two; then
    make_accounts 0
    against_one_query P8.two accounts_0 2
  fi
  if wanted P9.rows P9.seconds; then killed; fi
  if wanted P13; then status_of_many; fi
  if wanted P14; then empty_chunks; fi
  if wanted P15; then missing P15 "not built"; fi
}

# P1 P2 P3 P4 P5 P10 P12 and the ablations: what the backfill costs beside what would be done without the tool.
# shellcheck shell=bash

readonly one_update='UPDATE pgbench_accounts SET abalance_new = abalance'
readonly add_column='ALTER TABLE pgbench_accounts ADD abalance_new bigint'

# What people write by hand: batches in key order, a commit after each, one worker. In the server, so that no round trip
# counts against it.
batches() { # ROWS
  cat <<SQL
DO \$\$ DECLARE low integer := 0; high integer; BEGIN LOOP
SELECT max(aid) INTO high FROM (SELECT aid FROM pgbench_accounts WHERE aid > low ORDER BY aid LIMIT $1) s;
EXIT WHEN high IS NULL;
UPDATE pgbench_accounts SET abalance_new = abalance WHERE aid > low AND aid <= high;
COMMIT; low := high; END LOOP; END \$\$
SQL
}

# Each of these runs on a fresh copy after a checkpoint and sets seconds, written (WAL), grown_table and grown_indexes (%).
grown() { # SIZES_BEFORE SIZES_AFTER
  grown_table=$(calc "100 * (${2% *} / ${1% *} - 1)") grown_indexes=$(calc "100 * (${2#* } / ${1#* } - 1)")
}
rival_run() { # FIXTURE STATEMENT
  local before start
  copy_database "$1" bench
  sql bench "$add_column"
  before=$(sizes bench)
  checkpoint
  start=$(wal)
  timed_sql bench "$2"
  written=$(wal_since "$start")
  grown "$before" "$(sizes bench)"
}
tool_run() { # FIXTURE [TUNING_LINE...]; 1 when this version refuses the tuning
  local before start
  prepare "$1" bench "$cast_column" "${@:2}" || return 1
  before=$(sizes bench)
  checkpoint
  start=$(wal)
  timed_crossfade bench next "$migration" --until backfill
  written=$(wal_since "$start")
  grown "$before" "$(sizes bench)"
}
peer_run() { # FIXTURE
  copy_database "$1" bench
  sql bench "$add_column"
  checkpoint
  timed "$CROSSFADE_BENCH_PEER" "$(dsn bench)" pgbench_accounts abalance
}

against_rivals() { # INDEXES TIME_CASE WAL_CASE
  local fixture=accounts_$1 pair batch
  make_accounts "$1"
  if [[ $warm_up == yes ]]; then tool_run "$fixture" && rival_run "$fixture" "$one_update"; fi
  for ((pair = 1; pair <= pairs; ++pair)); do
    note "$2: pair $pair of $pairs"
    tool_run "$fixture"
    sample "$2" tool "$pair" "$seconds"
    sample "$3" tool "$pair" "$written"
    if (($1 == 3)); then
      sample P3.table tool "$pair" "$grown_table"
      sample P3.indexes tool "$pair" "$grown_indexes"
    fi
    for batch in b1000 b5000; do sample "$2.$batch" tool "$pair" "$seconds"; done
    if [[ -n ${CROSSFADE_BENCH_PEER-} ]] && (($1 == 0)); then
      sample P1.peer tool "$pair" "$seconds"
      peer_run "$fixture"
      sample P1.peer rival "$pair" "$seconds"
    fi
    rival_run "$fixture" "$one_update"
    sample "$2" rival "$pair" "$seconds"
    sample "$3" rival "$pair" "$written"
    if (($1 == 3)); then
      sample P3.rival.table tool "$pair" "$grown_table"
      sample P3.rival.indexes tool "$pair" "$grown_indexes"
    fi
    if ((pair <= hand_pairs)); then
      for batch in 1000 5000; do
        rival_run "$fixture" "$(batches "$batch")"
        sample "$2.b$batch" rival "$pair" "$seconds"
      done
    fi
  done
}

# Somebody reads from before the sweep until after it, so that nothing can be pruned.
growth_under_reader() {
  local reader
  make_accounts 3
  prepare accounts_3 bench "$cast_column"
  local before
  before=$(sizes bench)
  "$binaries/psql" -h "$sockets" -U "$owner" -d bench -X -q >/dev/null 2>&1 <<'SQL' &
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM pgbench_branches;
SELECT pg_sleep(600);
SQL
  reader=$!
  background+=("$reader")
  until [[ -n $(admin bench "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()") ]]; do
    sleep 0.1
  done
  timed_crossfade bench next "$migration" --until backfill
  grown "$before" "$(sizes bench)"
  sample P3.reader.table tool 1 "$grown_table"
  sample P3.reader.indexes tool 1 "$grown_indexes"
  end_background "$reader"
}

checkpoint_often() { while true; do sleep 3; checkpoint; done; }

random_keys() {
  local pair often side
  local -a tuning
  make_uuids
  for ((pair = 1; pair <= pairs; ++pair)); do
    note "P5: pair $pair of $pairs"
    for side in tool rival; do
      tuning=()
      if [[ $side == rival ]]; then tuning=('order = "key"' 'interleave = 1'); fi
      prepare uuids bench "$cast_column" "${tuning[@]}"
      checkpoint
      run_background checkpoint_often
      often=$!
      local start
      start=$(wal)
      timed_crossfade bench next "$migration" --until backfill
      sample P5 "$side" "$pair" "$(wal_since "$start")"
      end_background "$often"
    done
  done
}

# The fixed cost of a command weighs more on a small table, which is why neither may be tiny.
cost_per_row() {
  local pair name=accounts_large large=$((scale * 3))
  if [[ $size == full ]]; then large=$((scale * 10)); fi
  make_accounts 0
  make_accounts 0 "$large" "$name"
  for ((pair = 1; pair <= few_pairs; ++pair)); do
    note "P10: pair $pair of $few_pairs ($large against $scale)"
    tool_run "$name"
    sample P10.cost tool "$pair" "$(calc "$seconds / $large")"
    sample P10.memory tool $((pair * 2)) "$(calc "$memory_kib / 1024")"
    tool_run accounts_0
    sample P10.cost rival "$pair" "$(calc "$seconds / $scale")"
    sample P10.memory tool $((pair * 2 + 1)) "$(calc "$memory_kib / 1024")"
  done
  drop_database "$name"
}

# pgbench's own updates of the table, which are HOT or not as they like, are counted against us.
hot_share() {
  local run load found transactions
  make_accounts 3
  for ((run = 1; run <= few_pairs; ++run)); do
    note "P12: run $run of $few_pairs"
    prepare accounts_3 bench "$cast_column" 'workers = 2'
    : >"$work/load.log"
    pgbench bench -n -N -c 2 -R 200 -T 600 -P 1 >"$work/load.log" 2>&1 &
    load=$!
    background+=("$load")
    until grep -q progress "$work/load.log"; do sleep 0.1; done
    require_crossfade bench next "$migration" --until backfill
    end_background "$load"
    found=$(updates bench "$rows")
    transactions=$((${found% *} - rows))
    ((transactions >= 0)) || transactions=0
    sample P12 tool "$run" "$(calc "100 * (${found#* } - $transactions) / $rows")"
  done
}

ablation() { # TIME_CASE WAL_CASE FIXTURE "TOOL_TUNING" "RIVAL_TUNING"; an empty case is not recorded
  local pair side tuning
  make_accounts "${3#accounts_}"
  for ((pair = 1; pair <= few_pairs; ++pair)); do
    note "$1: pair $pair of $few_pairs"
    for side in tool rival; do
      tuning=$4
      if [[ $side == rival ]]; then tuning=$5; fi
      if ! tool_run "$3" ${tuning:+"$tuning"}; then
        missing "$1" "refused by this version"
        if [[ -n $2 ]]; then missing "$2" "refused by this version"; fi
        return
      fi
      sample "$1" "$side" "$pair" "$seconds"
      if [[ -n $2 ]]; then sample "$2" "$side" "$pair" "$written"; fi
    done
  done
}

cases_backfill() {
  if wanted P1 P1.b1000 P1.b5000 P1.peer P4.none; then against_rivals 0 P1 P4.none; fi
  if wanted P2 P2.b1000 P2.b5000 P3.table P3.indexes P3.rival.table P4.three; then against_rivals 3 P2 P4.three; fi
  if wanted P3.reader.table P3.reader.indexes; then growth_under_reader; fi
  if wanted P5; then random_keys; fi
  if wanted P10.cost P10.memory; then cost_per_row; fi
  if wanted P12; then hot_share; fi
  if wanted A.interleave.time; then ablation A.interleave.time A.interleave.wal accounts_3 'interleave = 1' ''; fi
  if wanted A.order.time; then
    ablation A.order.time A.order.wal accounts_0 'order = "physical"' 'order = "key"'
  fi
  if wanted A.workers.time; then ablation A.workers.time '' accounts_0 'workers = 1' 'workers = 2'; fi
}

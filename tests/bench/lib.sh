# What the cases share: a private server, databases that are copies of a prepared one, samples. Sourced by run.sh.
# shellcheck shell=bash

readonly owner=crossfade_owner migration=bench
work='' conf='' binaries='' sockets='' samples=''
background=()  # processes to end

note() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() {
  printf 'run.sh: %s\n' "$1" >&2
  exit 1
}

# --- server ---------------------------------------------------------------------------------------------------------

take_down() {
  local status=$? pid
  trap - EXIT
  trap '' INT TERM HUP
  for pid in "${background[@]}"; do kill "$pid" 2>/dev/null || true; done
  if [[ -n $work ]]; then
    if [[ -f $work/sandbox/sandbox.conf ]]; then "$root/examples/sandbox" down "$work/sandbox" || status=1; fi
    if ((status == 0)); then rm -rf -- "$work"; else note "what happened is in $work"; fi
  fi
  exit "$status"
}

start_server() {
  trap take_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  work=$(mktemp -d "${TMPDIR:-/tmp}/crossfade-bench.XXXXXX")
  chmod 711 -- "$work"
  samples=$work/samples
  : >"$samples"
  "$root/examples/sandbox" up "$work/sandbox" >"$work/up.log" || die "the sandbox did not start"
  conf=$work/sandbox/sandbox.conf
  binaries=$(sed -n 's/^bin=//p' "$conf") sockets=$(sed -n 's/^sockets=//p' "$conf")
  # What a disk has to do is part of the cost. Checkpoints come when a case asks for one.
  cat >>"$work/sandbox/data/postgresql.conf" <<'CONF'
fsync = on
shared_buffers = 1GB
max_wal_size = 16GB
checkpoint_timeout = 1h
max_connections = 60
CONF
  "$root/examples/sandbox" down "$work/sandbox"
  "$root/examples/sandbox" up "$work/sandbox" >"$work/up.log" || die "the sandbox did not start again"
}

sql() { # DATABASE STATEMENT: as the owner
  "$binaries/psql" -h "$sockets" -U "$owner" -d "$1" -X -q -A -t -v ON_ERROR_STOP=1 -c "$2"
}
admin() { # DATABASE STATEMENT: as superuser
  "$binaries/psql" -h "$sockets" -U postgres -d "$1" -X -q -A -t -v ON_ERROR_STOP=1 -c "$2"
}
dsn() { printf 'host=%s dbname=%s user=%s' "$sockets" "$1" "$owner"; }
pgbench() { # DATABASE OPTION...
  local database=$1
  shift
  "$binaries/pgbench" -h "$sockets" -U "$owner" "$@" "$database"
}

# --- databases ------------------------------------------------------------------------------------------------------

have_database() { [[ -n $(admin postgres "SELECT 1 FROM pg_database WHERE datname = '$1'") ]]; }

new_database() { # NAME
  admin postgres "CREATE DATABASE $1 OWNER $owner"
  admin "$1" "GRANT ALL ON SCHEMA public TO $owner"
}

# A copy, file by file, so that each run begins with the same pages.
copy_database() { # FROM TO
  local strategy=''
  (($(admin postgres 'SHOW server_version_num') < 150000)) || strategy='STRATEGY file_copy'
  drop_database "$2"
  admin postgres "CREATE DATABASE $2 TEMPLATE $1 OWNER $owner $strategy"
}
drop_database() { admin postgres "DROP DATABASE IF EXISTS $1 WITH (FORCE)" 2>/dev/null; }

settle_table() { # DATABASE TABLE: nothing is left for anybody to tidy up
  sql "$1" "ALTER TABLE $2 SET (autovacuum_enabled = off)"
  sql "$1" "VACUUM (ANALYZE) $2"
}

# pgbench's tables; the fixture accounts_0 without, accounts_3 with three secondary indexes.
make_accounts() { # INDEXES [SCALE [NAME]]
  local indexes=$1 size=${2-$scale} name=${3-accounts_$1}
  if have_database "$name"; then return; fi
  new_database "$name"
  pgbench "$name" -i -s "$size" -q >"$work/pgbench_init.log" 2>&1 || die "pgbench -i failed"
  if ((indexes == 3)); then
    sql "$name" "CREATE INDEX ON pgbench_accounts (bid)"
    sql "$name" "CREATE INDEX ON pgbench_accounts (abalance)"
    sql "$name" "CREATE INDEX ON pgbench_accounts (filler)"
  fi
  settle_table "$name" pgbench_accounts
}

make_uuids() {
  if have_database uuids; then return; fi
  new_database uuids
  sql uuids "CREATE TABLE pgbench_accounts (aid uuid PRIMARY KEY, bid integer, abalance integer, filler char(84))"
  sql uuids "INSERT INTO pgbench_accounts SELECT gen_random_uuid(), g % 100, 0, '' FROM generate_series(1, $rows) g"
  settle_table uuids pgbench_accounts
}

# --- crossfade ------------------------------------------------------------------------------------------------------

crossfade() { # DATABASE ARGUMENT...
  local database=$1
  shift
  CROSSFADE_DSN=$(dsn "$database") CROSSFADE_REDIS='' "$tool" "$@" >"$work/tool.out" 2>"$work/tool.err"
}
require_crossfade() { crossfade "$@" || die "crossfade ${*:2} failed: $(cat -- "$work/tool.err")"; }

# The forms of the new column: a cast that cannot fail, an expression that can.
readonly cast_column='type = "bigint"'
readonly expression_column='type = "numeric(12,2)"
forward = "abalance / 100.0"
backward = "(round(abalance * 100))::integer"'

write_spec() { # COLUMN [TUNING_LINE...]: into $work/spec.toml
  local column=$1
  shift
  {
    printf '[migration]\nname = "%s"\ntable = "public.pgbench_accounts"\n' "$migration"
    printf '[[column]]\nname = "abalance"\n%s\n' "$column"
    printf '[tuning]\n'
    if (($#)); then printf '%s\n' "$@"; fi
    printf '[drop]\nsoak = "0s"\n'
  } >"$work/spec.toml"
}

# A database with a migration that is settled in dry_run; 1 when this version refuses the tuning.
prepare() { # FROM DATABASE COLUMN [TUNING_LINE...]
  copy_database "$1" "$2"
  write_spec "${@:3}"
  require_crossfade "$2" init
  if ! crossfade "$2" start "$work/spec.toml" --accept isolation_conflict --reason bench; then
    if grep -q 'not supported yet\|not_supported_yet' "$work/tool.err"; then return 1; fi
    die "crossfade start failed: $(cat -- "$work/tool.err")"
  fi
  require_crossfade "$2" next "$migration" --until dry_run
}

# --- samples --------------------------------------------------------------------------------------------------------

sample() { # CASE SIDE PAIR VALUE
  printf '{"case":"%s","side":"%s","pair":%d,"value":%s}\n' "$@" >>"$samples"
}
missing() { # CASE WHY
  printf '{"case":"%s","missing":"%s"}\n' "$@" >>"$samples"
  note "$1: $2"
}
wanted() { # CASE...: whether one of these, or what they begin with, was asked for
  local given name
  ((${#chosen[@]})) || return 0
  for name in "$@"; do
    for given in "${chosen[@]}"; do if [[ $name == "$given" || $name == "$given".* ]]; then return 0; fi; done
  done
  return 1
}
calc() { awk "BEGIN { printf \"%.9g\", $1 }"; }
# `x per y` as awk would have it, of a file of numbers: its percentile.
percentile() { sort -n -- "$2" | awk -v p="$1" '{ v[NR] = $1 } END { i = int(NR * p + 0.999999); if (NR) print v[i < 1 ? 1 : i] }'; }

# Runs a command under the stopwatch. Sets seconds and memory_kib.
timed() { # COMMAND...
  local status
  "$measure" "$work/timing" "$@" >"$work/tool.out" 2>"$work/tool.err" || true
  read -r seconds memory_kib status <"$work/timing"
  ((status == 0)) || die "$1 failed: $(tail -n 5 "$work/tool.err")"
}
timed_crossfade() { # DATABASE ARGUMENT...
  timed env "CROSSFADE_DSN=$(dsn "$1")" CROSSFADE_REDIS= "$tool" "${@:2}"
}
timed_sql() { # DATABASE STATEMENT
  timed "$binaries/psql" -h "$sockets" -U "$owner" -d "$1" -X -q -A -t -v ON_ERROR_STOP=1 -c "$2"
}

wal() { admin postgres 'SELECT pg_current_wal_insert_lsn()'; }
wal_since() { admin postgres "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$1')"; }
sizes() { # DATABASE: bytes of the table and of its indexes
  sql "$1" "SELECT pg_relation_size('pgbench_accounts') || ' ' || pg_indexes_size('pgbench_accounts')"
}

# Updates of the table, and how many were HOT, once the sessions that made them have told the statistics.
updates() { # DATABASE EXPECTED
  local found='' deadline=$((SECONDS + 20))
  while ((SECONDS < deadline)); do
    found=$(sql "$1" "SELECT n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'pgbench_accounts'")
    if ((${found% *} >= $2)); then break; fi
    sleep 0.2
  done
  echo "$found"
}

checkpoint() { admin postgres CHECKPOINT; }
run_background() { # COMMAND...
  "$@" &
  background+=($!)
}
end_background() { # PID
  kill "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

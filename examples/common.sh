# shellcheck shell=bash
# What quickstart.sh and run_example.sh share: a throw-away sandbox, live load, the crossfade command, its answers.
# Sourced. Requires: set -euo pipefail. Sets: root, examples, work, CROSSFADE_DSN, CROSSFADE_REDIS.

examples=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
root=$(dirname -- "$examples")
work=''
load_pids=()

if [[ -t 1 && -z ${NO_COLOR-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

heading() { printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }
note() { printf '   %s\n' "$1"; }
die() {
  printf '\nFAILED: %s\n' "$1" >&2
  exit 1
}

# --- sandbox --------------------------------------------------------------------------------------------------------

# Takes everything down however the script ends. Stopping PostgreSQL also ends the load, whatever it waits for.
take_down() {
  local status=$?
  trap - EXIT
  trap '' INT TERM HUP
  if [[ -n $work ]]; then
    touch -- "$work/stop_load"
    if ((status != 0)) && [[ -f $work/sandbox/postgres.log ]]; then
      printf '\nThe last lines of the server log:\n' >&2
      tail -n 15 -- "$work/sandbox/postgres.log" >&2
    fi
    if [[ -f $work/sandbox/sandbox.conf ]]; then "$examples/sandbox" down "$work/sandbox" || status=1; fi
    if ((${#load_pids[@]})); then wait "${load_pids[@]}" || true; fi
    rm -rf -- "$work"
  fi
  exit "$status"
}

start_sandbox() {
  trap take_down EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  work=$(mktemp -d "${TMPDIR:-/tmp}/crossfade.XXXXXX")
  chmod 711 -- "$work"  # the servers' user must be able to pass
  "$examples/sandbox" up "$work/sandbox" >"$work/sandbox_up.log" || die "the sandbox did not start"
  head -n 1 -- "$work/sandbox_up.log" | sed 's/^/   /'
  local exports
  exports=$("$examples/sandbox" env "$work/sandbox")
  eval "$exports"
}

sandbox_psql() { "$examples/sandbox" psql "$work/sandbox" -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
sql() { sandbox_psql -c "$1"; }
pg_tool() { # NAME: the tool of the server's own version
  printf '%s/%s' "$(sed -n 's/^bin=//p' "$work/sandbox/sandbox.conf")" "$1"
}

# --- live load ------------------------------------------------------------------------------------------------------

# Two streams of pgbench run in slices that end at different moments, so that writes never stop; each slice must end
# well. A stream ends at the end of its slice once stop_load exists.
readonly slice_seconds=4

start_load() { # PGBENCH_OPTION... (each stream has two clients)
  local stream
  for stream in 1 2; do
    load_stream "$stream" "$@" &
    load_pids+=($!)
  done
}

load_stream() { # STREAM PGBENCH_OPTION...
  local stream=$1 slice log seconds
  shift
  trap - EXIT
  seconds=$((slice_seconds * stream / 2))
  for ((slice = 1;; ++slice)); do
    log=$work/load.$stream.$slice.log
    if ! "$(pg_tool pgbench)" -n -M simple -c 2 -T "$seconds" "$@" "$CROSSFADE_DSN" >"$log" 2>&1 ||
      grep -qiE 'aborted|error:' "$log" || grep 'number of failed transactions' "$log" | grep -qv ' 0 (0\.000%)'; then
      if [[ ! -e $work/stop_load ]]; then cp -- "$log" "$work/load_failed"; fi
      return 1
    fi
    if [[ -e $work/stop_load ]]; then return 0; fi
    seconds=$slice_seconds
  done
}

require_load() { [[ ! -e $work/load_failed ]] || die "the application saw an error: $(cat -- "$work/load_failed")"; }

# Lets the running slices end and requires that no transaction of any slice failed.
stop_load() {
  local pid transactions
  touch -- "$work/stop_load"
  for pid in "${load_pids[@]}"; do
    wait "$pid" || die "the application saw an error: $(tail -n 20 -- "$work"/load.*.log)"
  done
  load_pids=()
  require_load
  transactions=$(awk '/^number of transactions actually processed:/ { n += $6 } END { print n + 0 }' "$work"/load.*.log)
  ((transactions > 0)) || die "the live load made no transaction"
  note "the application made $transactions transactions meanwhile, and none failed"
}

# --- crossfade ------------------------------------------------------------------------------------------------------

built_binary() { # BUILD_FOLDER
  if [[ -d $1 ]]; then find "$1" -type f -name crossfade -perm -u+x -print -quit; fi
}

# Builds the command as it is in this checkout. CROSSFADE_BINARY is the result.
build_binary() {
  local log=$root/build/quickstart.log
  mkdir -p -- "$root/build"
  if [[ -z ${CCACHE_DIR-} && ! -w ${HOME:-/nonexistent} ]]; then export CCACHE_DISABLE=1; fi  # it needs a home
  if ! (cd -- "$root" && cmake --preset release -B build/quickstart -DCROSSFADE_BUILD_TESTS=OFF \
    -DCROSSFADE_WERROR=OFF && cmake --build build/quickstart --target crossfade --parallel) >"$log" 2>&1; then
    tail -n 30 -- "$log" >&2
    die "the build failed; all of it is in $log"
  fi
  CROSSFADE_BINARY=$(built_binary "$root/build/quickstart")
  note "built $CROSSFADE_BINARY"
}

find_binary() {
  local preset
  crossfade_binary=${CROSSFADE_BINARY-}
  for preset in release quickstart debug; do
    if [[ -z $crossfade_binary ]]; then crossfade_binary=$(built_binary "$root/build/$preset"); fi
  done
  if [[ -z $crossfade_binary ]]; then crossfade_binary=$(type -P crossfade || true); fi
  [[ -n $crossfade_binary ]] || die "no crossfade binary: build it, or set CROSSFADE_BINARY"
  [[ -x $crossfade_binary ]] || die "CROSSFADE_BINARY=$crossfade_binary cannot be executed"
}

# Shows the command and runs it; the status is its own.
crossfade() {
  require_load
  printf '%s$ crossfade %s%s\n' "$bold" "$*" "$plain"
  local status=0
  "$crossfade_binary" "$@" || status=$?
  if ((status != 0)); then note "(exit status $status)"; fi
  return "$status"
}

# One value of status --json; keys of nested objects are separated by commas.
status_field() { # NAME KEY[,KEY...]
  local json
  json=$("$crossfade_binary" status "$1" --json) || return
  sandbox_psql -v json="$json" -v path="{$2}" <<<"SELECT :'json'::json #>> :'path'"
}

position() { echo "$(status_field "$1" phase) $(status_field "$1" status)"; } # NAME

# Runs next until PHASE is settled. Exit status 3 means "not yet": on_refusal (defined by the caller) may help.
reach() { # NAME PHASE [NEXT_OPTION...]
  local name=$1 phase=$2 attempt status
  shift 2
  for ((attempt = 1; attempt <= 20; ++attempt)); do
    case $(position "$name") in "$phase settled" | "dropped "*) break ;; esac
    status=0
    crossfade next "$name" "$@" || status=$?
    case $status in 0) ;; 3) on_refusal "$name" ;; *) die "next ended with status $status" ;; esac
  done
  case $(position "$name") in
    "$phase settled") return ;;
    "dropped "*) if [[ $phase == dropped ]]; then return; fi ;;
  esac
  die "$name does not settle in $phase; it is at: $(position "$name")"
}

expect_phase() { # NAME PHASE
  local phase
  phase=$(status_field "$1" phase)
  [[ $phase == "$2" ]] || die "the phase should be $2 and is $phase"
}

#!/usr/bin/env bash
# The measurements of docs/performance.md, on a private server. Not part of the tests: it takes minutes and wants a quiet
# machine.
set -euo pipefail

usage() {
  cat <<TEXT
usage: ${0##*/} [CASE ...] [--scale N] [--pairs N] [--quick | --full] [--json FILE] [--markdown]

  CASE        P1 … P15, a part of one (P4.three), or A (the ablations); all of them without
  --scale N   pgbench's scale, 100,000 rows each (default 5)
  --pairs N   pairs of runs per case (default 5)
  --quick     scale 1 and 2 pairs: whether the cases work, not what they say
  --full      scale 30 and the long forms of P7 and P10
  --json FILE write every sample there
  --markdown  print the table as docs/performance.md has it
  --exact     print only what no clock was needed for; for a machine that is busy

  CROSSFADE_BINARY      the program to measure; otherwise that of build/release, which is built if it is not there
  CROSSFADE_BENCH_PEER  a program to compare with in P1: called with DSN TABLE COLUMN, fills COLUMN_new from COLUMN
TEXT
}

here=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)
root=${here%/tests/bench}
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
# shellcheck source=tests/bench/cases_backfill.sh
source "$here/cases_backfill.sh"
# shellcheck source=tests/bench/cases_traffic.sh
source "$here/cases_traffic.sh"
# shellcheck source=tests/bench/cases_other.sh
source "$here/cases_other.sh"

chosen=() scale=5 pairs=5 size=default json='' form=()
while (($#)); do
  case $1 in
    --scale) scale=${2:?--scale needs a number}; shift 2 ;;
    --pairs) pairs=${2:?--pairs needs a number}; shift 2 ;;
    --quick) size=quick scale=1 pairs=2; shift ;;
    --full) size=full scale=30; shift ;;
    --json) json=${2:?--json needs a file}; shift 2 ;;
    --markdown | --exact) form+=("$1"); shift ;;
    -h | --help) usage; exit 0 ;;
    P[1-9]* | A | A.*) chosen+=("$1"); shift ;;
    *) usage >&2; exit 2 ;;
  esac
done
for number in "$scale" "$pairs"; do [[ $number =~ ^[1-9][0-9]*$ ]] || die "a number is not one: $number"; done
rows=$((scale * 100000))
few_pairs=$((pairs < 3 ? pairs : 3))   # of what varies little or takes long
hand_pairs=$few_pairs warm_up=yes
if [[ " ${form[*]} " == *" --exact "* ]]; then hand_pairs=0 warm_up=no; fi

programs() {
  local build=$root/build/release name
  if [[ ! -x $build/tests/bench/crossfade_bench_report ]] ||
    [[ -z ${CROSSFADE_BINARY-} && ! -x $build/cutover/crossfade ]]; then
    (cd "$root" && cmake --preset release && cmake --build --preset release --target crossfade \
      crossfade_bench_measure crossfade_bench_report) >&2 || die "the build failed"
  fi
  tool=${CROSSFADE_BINARY:-$build/cutover/crossfade}
  [[ -x $tool ]] || die "no program at $tool"
  measure=$build/tests/bench/crossfade_bench_measure
  report=$build/tests/bench/crossfade_bench_report
  for name in "$measure" "$report"; do [[ -x $name ]] || die "no program at $name"; done
}

facts() {
  cat <<JSON
{"date":"$(date -u +%Y-%m-%d)","crossfade":"$("$tool" --version | sed 's/^crossfade //')",
 "postgresql":"$(admin postgres 'SHOW server_version' | sed 's/ .*//')","cores":$(nproc),
 "memory_gib":$(awk '/MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo),
 "scale":$scale,"rows":$rows,"pairs":$pairs,
 "method":"alternating pairs after a warm-up; a ratio is the median of the pairs' ratios; a fresh copy of the database and a checkpoint before each run; fsync on, shared_buffers 1GB, autovacuum off on the table"}
JSON
}

programs
start_server
facts >"$work/facts"
cases_backfill
cases_other
cases_traffic
"$report" "$samples" --facts "$work/facts" ${json:+--json "$json"} "${form[@]}"

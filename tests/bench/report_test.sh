#!/usr/bin/env bash
# The statistics on samples whose answer is known: the median of the pairs' ratios, the greatest, what is missing.
set -euo pipefail

report=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/crossfade-report.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT

cat >"$folder/samples" <<'SAMPLES'
{"case":"P1","side":"tool","pair":1,"value":1}
{"case":"P1","side":"rival","pair":1,"value":2}
{"case":"P1","side":"tool","pair":2,"value":30}
{"case":"P1","side":"rival","pair":2,"value":50}
{"case":"P1","side":"tool","pair":3,"value":9}
{"case":"P1","side":"rival","pair":3,"value":10}
{"case":"P1","side":"tool","pair":4,"value":1000}
{"case":"P7.held_max","side":"tool","pair":1,"value":3}
{"case":"P7.held_max","side":"tool","pair":2,"value":51}
{"case":"P12","side":"tool","pair":1,"value":70}
{"case":"P15","missing":"not built"}
SAMPLES
printf '{"scale":1}' >"$folder/facts"
"$report" "$folder/samples" --facts "$folder/facts" --json "$folder/json" >"$folder/table"

expect() { # PATTERN FILE
  grep -Eq -- "$1" "$2" || { printf 'no %s in:\n' "$1"; cat -- "$2"; exit 1; }
}
expect '^P1 .* 0\.60 +0\.50 \.\. 0\.90 +<= 0\.7 +ok$' "$folder/table"  # the pair without a rival does not count
expect '^P7\.held_max .* 51\.0 ms .* missed$' "$folder/table"
expect '^P12 .* 70\.0 % +>= 70 % +ok$' "$folder/table"
expect '^P15 .* not built$' "$folder/table"
expect '"scale": 1' "$folder/json"
expect '"value": 1000' "$folder/json"

"$report" "$folder/samples" --exact >"$folder/exact"
expect '^P12 ' "$folder/exact"
if grep -q '^P1 ' "$folder/exact"; then
  echo 'a duration counted as exact'
  exit 1
fi

printf '{"case":"P99","side":"tool","pair":1,"value":1}\n' >"$folder/unknown"
if "$report" "$folder/unknown" >/dev/null 2>&1; then
  echo 'a sample of an unknown case was taken'
  exit 1
fi

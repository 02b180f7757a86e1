#!/usr/bin/env bash
# The rules of layout and style that a machine can check. Prints "RULE: FILE[:LINE]: why" per violation and ends with 1.
# Each rule is a function rule_NAME below; self_test.sh proves for each that it can fail.
set -euo pipefail
export LC_ALL=C.UTF-8

readonly product='core shadow phases cutover'
readonly header_lines=200 source_lines=500 columns=110
violations=0

report() {
  printf '%s: %s\n' "$rule" "$1"
  violations=$((violations + 1))
}

# Files under the given folders whose names match one of the patterns; this folder names what it forbids, so it is out.
files() { # "FOLDER..." PATTERN...
  local folders=" $1 " file pattern
  shift
  for file in "${tree[@]}"; do
    [[ $folders == *" ${file%%/*} "* ]] || continue
    for pattern in "$@"; do
      # shellcheck disable=SC2053  # a pattern, on purpose
      if [[ ${file##*/} == $pattern ]]; then printf '%s\0' "$file"; fi
    done
  done
}

# Reports each line of the files on standard input that matches an extended regular expression.
forbid() { # REGEX WHY
  local hit
  while IFS= read -r hit; do report "${hit:0:160}: $2"; done < <(xargs -0 -r grep -nHE -e "$1" --)
}

# Reports each #include of what matches, except in files whose names match.
forbid_include() { # REGEX ALLOWED_FILES WHY
  local hit
  while IFS= read -r hit; do
    if [[ ! ${hit%%:*} =~ $2 ]]; then report "$hit: $3"; fi
  done < <(files "$product tests examples" '*.hpp' '*.cpp' |
    xargs -0 -r grep -nHE -e "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($1)" --)
}

rule_top_level() {
  local entry pattern known
  local -a ignored=()
  local -a required=(CMakeLists.txt core phases shadow cutover tests examples docs README.md)
  local -a allowed=("${required[@]}" CMakePresets.json .clang-format .clang-tidy .gitignore .ci LICENSE .git)
  if [[ -f .gitignore ]]; then mapfile -t ignored < <(sed 's|^/||; s|/$||' .gitignore); fi
  for entry in "${required[@]}"; do [[ -e $entry ]] || report "$entry: missing at the top level"; done
  while IFS= read -r -d '' entry; do
    known=no
    for pattern in "${allowed[@]}" "${ignored[@]}"; do
      # shellcheck disable=SC2053  # a pattern, on purpose
      if [[ -n $pattern && $entry == $pattern ]]; then known=yes; fi
    done
    [[ $known == yes ]] || report "$entry: not an entry of the top level"
  done < <(find . -mindepth 1 -maxdepth 1 -printf '%f\0' | sort -z)
}

# core <- shadow <- phases <- cutover; nobody includes tests, and nobody climbs out of a folder by "..".
rule_include_direction() {
  local folder above
  for folder in $product; do
    case $folder in
      core) above='shadow|phases|cutover' ;;
      shadow) above='phases|cutover' ;;
      phases) above='cutover' ;;
      cutover) above='' ;;
    esac
    if [[ -n $above ]]; then
      forbid "^[[:space:]]*#[[:space:]]*include.*[<\"/]($above)/" "$folder may not include $above" \
        < <(files "$folder" '*.hpp' '*.cpp')
    fi
    forbid '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"](.*/)?(\.\.|tests|support)/' \
      "$folder may not include this path" < <(files "$folder" '*.hpp' '*.cpp')
  done
}

rule_file_length() {
  local file lines limit
  while IFS= read -r -d '' file; do
    lines=$(wc -l <"$file")
    case $file in *.hpp) limit=$header_lines ;; *) limit=$source_lines ;; esac
    if ((lines > limit)); then report "$file: $lines lines, at most $limit"; fi
  done < <(files "$product" '*.hpp' '*.cpp')
}

rule_line_width() {
  forbid "^.{$((columns + 1))}" "more than $columns columns" < <(files "$product tests examples" '*.hpp' '*.cpp')
}

rule_pqxx_place() { forbid_include 'pqxx/' '^core/src/sql/' 'only core/src/sql/ includes pqxx'; }
rule_hiredis_place() { forbid_include 'hiredis' '^core/src/redis/' 'only core/src/redis/ includes hiredis'; }
rule_msm_place() {
  forbid_include 'boost/msm' '^cutover/src/machine\.cpp$' 'only cutover/src/machine.cpp includes Boost.MSM'
}
rule_cli11_place() { forbid_include 'CLI/|CLI11' '^cutover/src/cli/' 'only cutover/src/cli/ includes CLI11'; }

# Comments may name the libraries; declarations may not.
rule_public_headers() {
  local folder file hit
  local -r types='pqxx::|msm::|CLI::|spdlog|redis(Context|Reply|Async)|namespace (pqxx|CLI)'
  for folder in $product; do
    while IFS= read -r -d '' file; do
      [[ $file == */include/* ]] || continue
      while IFS= read -r hit; do
        report "$file:$hit: public headers hold no type of pqxx, hiredis, MSM, CLI11 or spdlog"
      done < <(sed 's|//.*||' "$file" | grep -nE -e "$types")
    done < <(files "$folder" '*.hpp')
  done
}

rule_leftover_words() {
  forbid '\b(TODO|FIXME|XXX|GTEST_SKIP)\b|\bDISABLED_' 'finish it, or leave it out' < <(
    files "$product tests examples .ci" '*.hpp' '*.cpp' '*.sh' '*.sql' '*.toml' '*.cmake' CMakeLists.txt sandbox run
  )
}

rule_test_sleeps() {
  forbid '\b(sleep_for|sleep_until|usleep|nanosleep|sleep)[[:space:]]*\(' \
    'wait for a named event, see tests/support' < <(files tests '*.hpp' '*.cpp' | grep -zv '^tests/support/')
}

# A checker that finds no files would be content with anything.
rule_not_blind() {
  local folder
  for folder in $product; do
    [[ -n $(files "$folder" '*.hpp' '*.cpp' | tr '\0' '\n') ]] || report "$folder: no source file found to check"
  done
}

rules() { declare -F | sed -n 's/^declare -f rule_//p'; }

case ${1-} in
  --list) rules; exit 0 ;;
  '' | -*) printf 'usage: %s ROOT | --list\n' "${0##*/}" >&2; exit 2 ;;
esac
cd -- "$1"
mapfile -d '' tree < <(find . -mindepth 2 -type f ! -path './.git/*' ! -path './build*' ! -path './tests/style/*' \
  -printf '%P\0' | sort -z)
for rule in $(rules); do "rule_$rule"; done
if ((violations)); then
  printf '%d violation(s)\n' "$violations"
  exit 1
fi

#!/usr/bin/env bash
# Plants one violation at a time into a clean little tree and requires that exactly its rule reports exactly its file;
# twins that are close to a violation but legal must stay unreported.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failures=0
declare -A planted=()

clean_tree() {
  rm -rf -- "${work:?}/tree"
  mkdir "$work/tree"
  cd -- "$work/tree"
  local folder
  for folder in core shadow phases cutover; do
    mkdir -p "$folder/src" "$folder/include/crossfade/$folder"
    printf '#pragma once\n' >"$folder/include/crossfade/$folder/a.hpp"
    printf '#include "crossfade/%s/a.hpp"\n' "$folder" >"$folder/src/a.cpp"
  done
  mkdir -p core/src/sql core/src/redis cutover/src/cli tests/unit tests/support examples docs .ci
  touch CMakeLists.txt README.md
  printf '/build*/\n' >.gitignore
}

repeat() { # TEXT COUNT
  local i
  for ((i = 0; i < $2; ++i)); do printf '%s' "$1"; done
}

fail() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

# Writes standard input to FILE of a clean tree; RULE must report FILE and nothing else may be reported.
violation() { # RULE FILE
  local output status=0 text
  text=$(cat; printf .)
  planted[$1]=yes
  clean_tree
  mkdir -p "$(dirname -- "$2")"
  printf '%s' "${text%.}" >"$2"
  output=$("$here/check.sh" . 2>&1) || status=$?
  if ((status != 1)) || ! grep -q "^$1: $2[:/]" <<<"$output" || grep -v "^$1: $2[:/]" <<<"$output" | grep -qv '^1 violation'; then
    fail "$1 with a violation in $2: status $status, output: $output"
  fi
}

# The same, but the tree must stay clean.
legal() { # FILE
  local output status=0
  clean_tree
  mkdir -p "$(dirname -- "$1")"
  cat >"$1"
  output=$("$here/check.sh" . 2>&1) || status=$?
  if ((status != 0)); then fail "a legal $1: status $status, output: $output"; fi
}

legal core/src/b.cpp <<<'// nothing'

violation top_level notes.txt <<<'x'
legal build-mine/notes.txt <<<'x'
clean_tree
rm README.md
if "$here/check.sh" . >"$work/out" || ! grep -q '^top_level: README.md: missing' "$work/out"; then
  fail 'a missing README.md is not reported'
fi

violation include_direction core/src/b.cpp <<<'#include "crossfade/shadow/a.hpp"'
violation include_direction core/src/b.cpp <<<'#include <crossfade/cutover/a.hpp>'
violation include_direction shadow/include/crossfade/shadow/b.hpp <<<'#  include "crossfade/phases/a.hpp"'
violation include_direction phases/src/b.cpp <<<'#include "crossfade/cutover/a.hpp"'
violation include_direction cutover/src/b.cpp <<<'#include "../../core/src/a.hpp"'
violation include_direction core/src/b.cpp <<<'#include "tests/support/a.hpp"'
legal cutover/src/b.cpp <<<'#include "crossfade/core/a.hpp"'
legal phases/src/b.cpp <<<'#include "crossfade/shadow/a.hpp"'

violation file_length core/include/crossfade/core/b.hpp < <(repeat $'//\n' 201)
violation file_length shadow/src/b.hpp < <(repeat $'//\n' 201)
violation file_length phases/src/b.cpp < <(repeat $'//\n' 501)
legal core/include/crossfade/core/b.hpp < <(repeat $'//\n' 200)
legal phases/src/b.cpp < <(repeat $'//\n' 500)
legal tests/unit/b_test.cpp < <(repeat $'//\n' 900)

violation line_width core/src/b.cpp < <(repeat x 111)
violation line_width tests/unit/b_test.cpp < <(repeat x 111)
violation line_width tests/support/b.hpp < <(repeat … 111)
legal core/src/b.cpp < <(repeat … 110)

violation pqxx_place shadow/src/b.cpp <<<'#include <pqxx/pqxx>'
violation pqxx_place core/src/b.cpp <<<'#include <pqxx/except>'
violation pqxx_place tests/unit/b_test.cpp <<<'#include <pqxx/pqxx>'
legal core/src/sql/b.cpp <<<'#include <pqxx/pqxx>'

violation hiredis_place core/src/b.cpp <<<'#include <hiredis/hiredis.h>'
violation hiredis_place core/src/sql/b.cpp <<<'#include "hiredis.h"'
legal core/src/redis/b.cpp <<<'#include <hiredis/hiredis.h>'

violation msm_place cutover/src/b.cpp <<<'#include <boost/msm/back/state_machine.hpp>'
violation msm_place cutover/src/cli/machine.cpp <<<'#include <boost/msm/front/state_machine_def.hpp>'
legal cutover/src/machine.cpp <<<'#include <boost/msm/back/state_machine.hpp>'

violation cli11_place cutover/src/b.cpp <<<'#include <CLI/CLI.hpp>'
violation cli11_place core/src/b.cpp <<<'#include "CLI11.hpp"'
legal cutover/src/cli/b.cpp <<<'#include <CLI/CLI.hpp>'

violation public_headers core/include/crossfade/core/b.hpp <<<'namespace pqxx { class connection; }'
violation public_headers core/include/crossfade/core/b.hpp <<<'const pqxx::result& rows();'
violation public_headers cutover/include/crossfade/cutover/b.hpp <<<'namespace CLI { class App; }'
violation public_headers core/include/crossfade/core/b.hpp <<<'struct redisContext;'
violation public_headers core/include/crossfade/core/b.hpp <<<'#include <spdlog/spdlog.h>'
violation public_headers cutover/include/crossfade/cutover/b.hpp <<<'boost::msm::back::HandledEnum fire();'
violation public_headers cutover/include/crossfade/cutover/b.hpp <<<'void add_options(CLI::App& app);'
legal core/include/crossfade/core/b.hpp <<<'// The door that hides pqxx:: and spdlog.'
legal core/src/b.hpp <<<'#include <spdlog/spdlog.h>'

violation leftover_words core/src/b.cpp <<<'// TODO: think'
violation leftover_words tests/unit/b_test.cpp <<<'// FIXME later'
violation leftover_words examples/b.sh <<<'# XXX'
violation leftover_words tests/unit/b_test.cpp <<<'  GTEST_SKIP();'
violation leftover_words tests/unit/b_test.cpp <<<'TEST(A, DISABLED_b) {}'
violation leftover_words examples/b/setup.sql <<<'-- FIXME'
violation leftover_words core/CMakeLists.txt <<<'# TODO'
violation leftover_words .ci/run <<<'# TODO'
legal tests/support/b.cpp <<<'auto t = "/tmp/crossfade.XXXXXX"; // TODOS'

violation test_sleeps tests/unit/b_test.cpp <<<'std::this_thread::sleep_for(1ms);'
violation test_sleeps tests/unit/b_test.cpp <<<'std::this_thread::sleep_until(then);'
violation test_sleeps tests/unit/b_test.cpp <<<'::usleep(5);'
violation test_sleeps tests/recovery/b_test.cpp <<<'sleep (1);'
violation test_sleeps tests/recovery/b.hpp <<<'nanosleep(&t, nullptr);'
legal tests/support/b.cpp <<<'std::this_thread::sleep_for(1ms);'
legal tests/unit/b_test.cpp <<<'run("SELECT pg_sleep(1)"); expect_asleep();'
legal core/src/b.cpp <<<'std::this_thread::sleep_for(1ms);'

planted[not_blind]=yes
clean_tree
rm -r shadow/src/* shadow/include/*
if "$here/check.sh" . >"$work/out" || ! grep -q '^not_blind: shadow: ' "$work/out"; then
  fail 'a folder without sources is not reported'
fi

while read -r rule; do
  [[ -n ${planted[$rule]-} ]] || fail "rule $rule has no planted violation"
done < <("$here/check.sh" --list)

if ((failures)); then
  printf '%d self-test(s) failed\n' "$failures"
  exit 1
fi
printf 'every one of %d rules reports its planted violations\n' "${#planted[@]}"

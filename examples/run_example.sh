#!/usr/bin/env bash
# Runs one worked example in a private sandbox under live load: forward with a rollback from each phase, all the way
# back, forward again to the end; checks schema, data and that the application saw no error.
set -euo pipefail
# shellcheck source=SCRIPTDIR/common.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/common.sh"

if (($# != 1)) || [[ ! -f $1/spec.toml ]]; then
  printf 'usage: %s DIR\n\n' "${0##*/}" >&2
  printf 'DIR is a folder with spec.toml, setup.sql, load.sql, verify.sql and perhaps fix.sql:\n' >&2
  printf '  %s\n' "$examples"/*/ >&2
  printf 'CROSSFADE_BINARY names the command to use, otherwise the one under build/.\n' >&2
  exit 2
fi
example=$(cd -- "$1" && pwd -P)
spec=$example/spec.toml
name=$(sed -n 's/^name *= *"\([a-z0-9_]*\)"$/\1/p' "$spec" | head -n 1)
table=$(sed -n 's/^table *= *"\(.*\)"$/\1/p' "$spec")
one_way=no
if grep -q '^forward' "$spec" && ! grep -q '^backward' "$spec"; then one_way=yes; fi
fixed=no

# Without the lines that are random (pg_dump's restrict key) or name its version.
schema() { "$(pg_tool pg_dump)" --schema-only -N crossfade -d "$CROSSFADE_DSN" | grep -vE '^(\\(un)?restrict|--|$)'; }

verify() {
  local answer
  answer=$(sandbox_psql -f "$example/verify.sql")
  [[ $answer == t ]] || die "verify.sql answers '$answer' in phase $(status_field "$name" phase)"
  note "verify.sql: t"
}

# next was refused: the only refusal that an example may meet, apart from lock attempts, is open rejects.
on_refusal() {
  if [[ $fixed == no && -f $example/fix.sql && $(status_field "$name" rejects) != 0 ]]; then
    heading "open rejects: fix.sql, then retry"
    crossfade rejects "$name"
    sandbox_psql -f "$example/fix.sql"
    crossfade rejects "$name" --retry
    [[ $(status_field "$name" rejects) == 0 ]] || die "rejects are still open after fix.sql"
    fixed=yes
  fi
}

# Rolls back; from switched a one-way migration must refuse first.
roll_back() { # PHASE_EXPECTED [OPTION...]
  local expected=$1 status=0
  shift
  if [[ $one_way == yes && $(status_field "$name" phase) == switched ]]; then
    crossfade rollback "$name" "$@" || status=$?
    ((status == 3)) || die "a one-way rollback should be refused with status 3 and ended with $status"
    expect_phase "$name" switched
    set -- "$@" --accept one_way_rollback --reason "worked example"
  fi
  crossfade rollback "$name" "$@" || die "rollback ended with status $?"
  expect_phase "$name" "$expected"
}

find_binary
heading "sandbox and setup.sql"
start_sandbox
sandbox_psql -f "$example/setup.sql"
schema_before=$(schema)
start_load -f "$example/load.sql" --rate=100

heading "init, plan, start"
crossfade init
crossfade plan "$spec"
crossfade start "$spec"
expect_phase "$name" planned
roll_back rolled_back
crossfade start "$spec"

previous=planned
for phase in dry_run backfill dual_write compare switched; do
  heading "$phase, back to $previous, $phase again"
  reach "$name" "$phase"
  if [[ $phase == switched ]]; then verify; fi
  roll_back "$previous"
  reach "$name" "$phase"
  previous=$phase
done
verify

heading "all the way back"
roll_back rolled_back --to rolled_back
schema_after=$(schema)
if [[ $schema_after != "$schema_before" ]]; then
  diff <(echo "$schema_before") <(echo "$schema_after") || die "the schema is not what it was"
fi
note "the schema of $table and of all beside it is what it was"

heading "forward to the end"
crossfade start "$spec"
for phase in dry_run backfill dual_write compare switched; do reach "$name" "$phase"; done
verify
reach "$name" dropped --confirm "$name"
expect_phase "$name" dropped
crossfade history "$name"

heading "result"
stop_load
verify
if [[ -f $example/fix.sql && $fixed == no ]]; then die "fix.sql was never needed: the example does not show its point"; fi
note "everything held, in $SECONDS seconds"

// backfill: shadow column and forward capture come into being in one transaction under ACCESS EXCLUSIVE; then
// workers sweep every unit to its bound.
//
// Why the set to sweep is closed. The lock waits for every writer, so each row version that existed before
// the capture is committed when it is taken and visible to the first chunk; each later one passes the
// trigger. The upper bound is read in that transaction, under that lock. A writer that queued behind the lock
// finds the trigger.
#include "handlers.hpp"

#include <fmt/format.h>

#include "crossfade/core/log.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/capture.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

StepResult BackfillHandler::step(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  const auto table = current_table(env.session, m);
  // A sibling's unit may still be open although nothing was left to claim.
  const StepResult not_over{StepResult::Kind::again, {}, std::chrono::milliseconds(50)};
  auto backfill = newest_pass(env.session, m.row.id, "backfill");
  if (!backfill || backfill->state != "ended") {
    if (!backfill || backfill->state != "running") {
      const auto order = StateStore(env.session).tuning(m.row.id, m.spec.tuning).order;
      backfill = open_sweep_pass(env.session, m, table, "backfill", m.row.capture_high, order);
    }
    // Ended: an empty table.
    if (backfill->state != "ended") {
      const auto swept = sweep_.slice(env, m, *backfill, slice);
      if (swept.kind != StepResult::Kind::settled) return swept;
    }
  }
  const auto catch_up = open_catch_up(env.session, m, backfill->id);
  if (!catch_up) return not_over;
  if (catch_up->state != "ended") {
    const auto caught_up = sweep_.slice(env, m, *catch_up, slice);
    if (caught_up.kind != StepResult::Kind::settled) return caught_up;
    if (!end_sweep_pass(env.session, catch_up->id)) return not_over;
  }
  sweep_.end();
  const auto resolution = resolve_rejects(env.session, m, table, env.token, [] {});
  StateStore(env.session).stamp_last_write(m.row.id);
  auto blockers = unaccepted(reject_blockers(env, m), env.accepted);
  if (!blockers.empty()) return {StepResult::Kind::waiting, std::move(blockers), {}};
  if (!resolution.complete) return {StepResult::Kind::again, {}, std::chrono::milliseconds(100)};
  return {StepResult::Kind::settled, {}, {}};
}

std::vector<Blocker> BackfillHandler::exit_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  if (auto lost = lost_key(env.session, m)) blockers.push_back(*std::move(lost));
  const auto pass = newest_pass(env.session, m.row.id, "backfill");
  if (!pass || pass->state == "void") {
    blockers.push_back({ErrorCode::not_ready, "the sweep has not begun", "", ""});
  } else if (pass->state != "ended") {
    const auto totals = unit_totals(env.session, pass->id);
    blockers.push_back(
        {ErrorCode::not_ready,
         fmt::format("units: {} of {} not at their bound{}", totals.total - totals.done, totals.total,
                     totals.leftovers > 0 ? fmt::format(", {} rows set aside", totals.leftovers) : ""),
         "", ""});
  } else {
    const auto catch_up = newest_pass(env.session, m.row.id, "catch_up");
    if (!catch_up || catch_up->id < pass->id || catch_up->state != "ended") {
      const auto left = catch_up ? unit_totals(env.session, catch_up->id).leftovers : 0;
      blockers.push_back(
          {ErrorCode::not_ready, fmt::format("catch_up: {} rows that the sweep set aside", left), "", ""});
    }
  }
  for (auto& blocker : reject_blockers(env, m)) blockers.push_back(std::move(blocker));
  return blockers;
}

Crossing BackfillHandler::enter(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  Crossing crossing;
  crossing.locks_table = true;
  // New columns of one table stand in the order of the old ones.
  crossing.position = m.binding.column.old_attnum;
  const auto id = quote_literal(m.row.id.text) + "::uuid";
  crossing.statements =
      install_forward_sql(m, table, shadow_settings_sql(m, table, load_ledger(env.session, m.row.id)));
  crossing.statements += fmt::format(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = {0} AND kind <> 'profile';\n"
      "DELETE FROM crossfade.reject WHERE migration_id = {0};\n"
      "DELETE FROM crossfade.misfit WHERE migration_id = {0};\n"
      "DELETE FROM crossfade.reject_note WHERE migration_id = {0};\n",
      id);
  crossing.assignments = {
      "capture_xid = pg_current_xact_id()",
      fmt::format("capture_blocks = pg_relation_size({0}::oid) / current_setting('block_size')::bigint,"
                  " capture_relfilenode = pg_relation_filenode({0}::oid)",
                  m.row.table_oid.value),
      fmt::format("capture_high = ({})", greatest_key_sql(table, m.binding.key)),
      "fingerprint = " + fingerprint_sql(m), "last_write_xid = NULL"};
  return crossing;
}

Crossing BackfillHandler::leave_back(PhaseEnv& env, const Migration& m) {
  Crossing crossing;
  crossing.locks_table = true;
  crossing.statements = remove_forward_sql(m, current_table(env.session, m));
  crossing.statements += fmt::format(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = {}::uuid AND kind <> 'profile';\n",
      quote_literal(m.row.id.text));
  crossing.assignments = {
      "capture_xid = NULL, capture_blocks = NULL, capture_relfilenode = NULL, capture_high = NULL,"
      " fingerprint = NULL, last_write_xid = NULL"};
  return crossing;
}

}  // namespace crossfade

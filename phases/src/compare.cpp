// compare: the backfill once more, which must write nothing; then the full comparison by an independent
// reader.
#include "handlers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "crossfade/shadow/twins.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

namespace {
// After a switch back the shadow may differ from forward(old) in rows that were written under the new name,
// so the first replay writes them and the second must not. More than that is something else writing the
// shadow.
constexpr int kMostReplaysThatWrite = 3;
}  // namespace

StepResult CompareHandler::replay(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  const auto table = current_table(env.session, m);
  const auto newest = newest_pass(env.session, m.row.id, "replay");
  if (newest && newest->state == "ended" && newest->rows_written == 0)
    return {StepResult::Kind::settled, {}, {}};
  const auto pass =
      open_sweep_pass(env.session, m, table, "replay", greatest_key(env.session, table, m.binding.key));
  if (pass.state == "ended") return {StepResult::Kind::settled, {}, {}};
  if (const auto swept = sweep_.slice(env, m, pass, slice); swept.kind != StepResult::Kind::settled)
    return swept;
  // Before the pass ends: if we die between the two, the pass is still open and is stamped again.
  StateStore(env.session).stamp_last_write(m.row.id);
  if (!end_sweep_pass(env.session, pass.id)) return {StepResult::Kind::again, {}, {}};
  sweep_.end();
  failpoint::hit("replay.ended");
  const auto written = unit_totals(env.session, pass.id).rows_written;
  if (written == 0) return {StepResult::Kind::again, {}, {}};
  void_passes(env.session, m.row.id, "compare");
  if (++replays_that_wrote_ < kMostReplaysThatWrite) return {StepResult::Kind::again, {}, {}};
  return {
      StepResult::Kind::failed,
      {{ErrorCode::phase_failed,
        fmt::format("the replay still wrote {} rows; something other than crossfade changes the new column",
                    written),
        "", "find what writes it (triggers, jobs), then 'crossfade next " + m.row.name + "'"}},
      {}};
}

// What a switch back left to do: the old column's NOT NULL, proved online. A table that went further back
// without it would not be what it was.
StepResult CompareHandler::prepare_rollback(PhaseEnv& env, const Migration& m) {
  if (auto unsettled = settle_column(env, m, m.names.old_column, lock_)) return *unsettled;
  return drop_forerunners(env, m, lock_);
}

StepResult CompareHandler::step(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  if (auto unsettled = settle_column(env, m, m.names.old_column, lock_)) return *unsettled;
  // A switch back gives a constraint its spare index: both are built again for the next switch.
  if (const auto built = build_twins(env, m, lock_, refused_); built.kind != StepResult::Kind::settled)
    return built;
  const auto replayed = replay(env, m, slice);
  if (replayed.kind != StepResult::Kind::settled) return replayed;
  return resolve_and_compare(env, m, slice);
}

// What is written after a comparison began must be compared again: it is given up before the first such
// write.
StepResult CompareHandler::resolve_and_compare(PhaseEnv& env, const Migration& m,
                                               std::chrono::milliseconds slice) {
  const auto newest = newest_pass(env.session, m.row.id, "compare");
  // Between passes only: a writer that leaves notes all the time must not keep a pass from ending.
  if (!newest || newest->state != "running") {
    resolve_rejects(env.session, m, current_table(env.session, m), env.token,
                    [&] { void_passes(env.session, m.row.id, "compare"); });
  }
  return run_comparison(env, m, CompareDirection::forward, slice, comparison_);
}

// Forerunners last, since they cost the application's writes, and only when nothing that a person must answer
// is in the way; before the comparison is looked at, which may grow too old meanwhile.
StepResult CompareHandler::refresh(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  if (forerunner_blockers(env, m).empty()) return resolve_and_compare(env, m, slice);
  if (!forerunners_begun(env.session, m, load_ledger(env.session, m.row.id))) {
    const auto shut = unaccepted(exit_blockers(env, m), env.accepted);
    const auto stays = [](const Blocker& b) {
      return b.code != ErrorCode::not_ready && b.code != ErrorCode::old_snapshot;
    };
    if (std::ranges::any_of(shut, stays)) return resolve_and_compare(env, m, slice);
  }
  if (auto built = build_forerunners(env, m, lock_); built.kind != StepResult::Kind::settled) return built;
  return resolve_and_compare(env, m, slice);
}

void CompareHandler::before_attempt(PhaseEnv& env, const Migration& m) {
  if (const auto table = relation_name(env.session, m.row.table_oid))
    drop_empty_notes(env.session, m, *table, NoteDirection::forward);
}

std::vector<Blocker> CompareHandler::exit_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  if (auto lost = lost_key(env.session, m)) blockers.push_back(*std::move(lost));
  const auto newest = newest_pass(env.session, m.row.id, "replay");
  if (!newest || newest->state != "ended" || newest->rows_written != 0) {
    blockers.push_back({ErrorCode::not_ready, "no replay has ended without writing a row", "", ""});
  }
  for (const auto& missing :
       TwinBuilder(m, current_table(env.session, m), load_ledger(env.session, m.row.id)).missing(env.session))
    blockers.push_back({ErrorCode::not_ready, missing, "", ""});
  for (auto& blocker : comparison_blockers(env, m, CompareDirection::forward))
    blockers.push_back(std::move(blocker));
  for (auto& blocker : forerunner_blockers(env, m)) blockers.push_back(std::move(blocker));
  for (auto& blocker : reject_blockers(env, m)) blockers.push_back(std::move(blocker));
  for (auto& blocker : dependent_blockers(env, m)) blockers.push_back(std::move(blocker));
  for (auto& blocker : old_snapshot_blockers(env, m)) blockers.push_back(std::move(blocker));
  return blockers;
}

// Whatever was found before says nothing about now.
Crossing CompareHandler::enter(PhaseEnv&, const Migration& m) {
  Crossing crossing;
  crossing.statements = fmt::format(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = {}::uuid AND kind IN ('replay', "
      "'compare');\n",
      quote_literal(m.row.id.text));
  return crossing;
}

Crossing CompareHandler::leave_back(PhaseEnv&, const Migration&) { return {}; }

}  // namespace crossfade

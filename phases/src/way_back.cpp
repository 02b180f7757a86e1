// What the way back from switched needs before the names move, brought into being online: NOT NULL of the old
// column where a key stands on it, the indexes that the switch took off it, and the forerunners of the
// foreign keys of partitioned tables. Each can fail the application's writes from its first step on, so
// nothing is begun for a way back that is refused anyway, and what a refusal leaves is taken away again.
#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "crossfade/shadow/twins.hpp"
#include "handlers.hpp"

namespace crossfade {

namespace {
constexpr const char* kCheckViolation = "23514";
}

// A primary key or a replica identity goes back to a column that is NOT NULL, and no row is read under the
// lock.
StepResult SwitchedHandler::prepare_rollback(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  const auto ledger = load_ledger(env.session, m.row.id);
  const bool proves = needs_not_null(ledger) && !old_not_null_is_proved(env.session, m);
  const TwinBuilder owed(m, table, ledger, BuildSet::owed);
  const bool runs_ahead = !missing_forerunners(env.session, m, ledger).empty();
  if (!proves && !runs_ahead && !refused_ && owed.missing(env.session).empty())
    return {StepResult::Kind::settled, {}, {}};
  resolve_misfits(env.session, m, table);
  const bool begun = owed_indexes_begun(env.session, m, table, ledger) ||
                     old_not_null_has_proof(env.session, m) || forerunners_begun(env.session, m, ledger);
  // Nothing is prepared for a way back that is refused anyway.
  if (!begun && !refused_) {
    const auto shut = unaccepted(rollback_blockers(env, m), env.accepted);
    if (std::ranges::any_of(shut, [](const Blocker& b) { return b.code == ErrorCode::rollback_refused; }))
      return {StepResult::Kind::settled, {}, {}};
  }
  // First what may be refused.
  if (auto built = build_owed(env, m, lock_, refused_); built.kind != StepResult::Kind::settled) return built;
  if (auto ahead = build_forerunners(env, m, lock_); ahead.kind != StepResult::Kind::settled) return ahead;
  if (!proves) return {StepResult::Kind::settled, {}, {}};
  env.progress(-1, -1, "proving the old column NOT NULL");
  return with_short_lock(env, m, lock_, [&](std::chrono::milliseconds wait) {
    try {
      const bool proved = prove_old_not_null(env.session, m, table, wait);
      failpoint::hit("way_back.proof");
      return proved;
    } catch (const Error& error) {
      // A misfit that was written since: nothing is to be proved then.
      if (error.sqlstate() != kCheckViolation) throw;
      drop_old_not_null_proof(env.session, m, table, wait);
      return true;
    }
  });
}

StepResult SwitchedHandler::abandon_rollback(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  const auto ledger = load_ledger(env.session, m.row.id);
  if (auto dropped = drop_forerunners(env, m, lock_); dropped.kind != StepResult::Kind::settled)
    return dropped;
  const bool proof = old_not_null_has_proof(env.session, m);
  if (!proof && !owed_indexes_begun(env.session, m, table, ledger))
    return {StepResult::Kind::settled, {}, {}};
  return with_short_lock(env, m, lock_, [&](std::chrono::milliseconds wait) {
    if (proof) {
      drop_old_not_null_proof(env.session, m, table, wait);
      failpoint::hit("way_back.unproved");
      return false;
    }
    drop_owed_indexes(env.session, m, table, ledger, wait);
    return true;
  });
}

}  // namespace crossfade

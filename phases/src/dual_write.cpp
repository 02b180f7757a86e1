// dual_write: twins of what hangs on the column are built online, and every transaction older than the
// capture ends.
#include "handlers.hpp"

#include <fmt/format.h>

#include "crossfade/core/log.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "crossfade/shadow/twins.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

namespace {

// Prepared transactions count: they keep their transaction id in the snapshot until they end.
std::vector<Blocker> barrier_blockers(PhaseEnv& env, const Migration& m) {
  const auto passed = env.session
                          .exec("SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::xid8",
                                {m.row.capture_xid.value_or("0")})
                          .one("barrier");
  if (bool_of(passed[0])) return {};
  const auto oldest =
      env.session
          .exec(
              "SELECT string_agg(who, ', ') FROM (SELECT format('pid %s (%s, since %s)', a.pid, a.usename, "
              "a.xact_start) AS who"
              " FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND age(a.backend_xid) >= "
              "age($1::xid8::xid)"
              " UNION ALL SELECT format('prepared transaction %L', p.gid) FROM pg_prepared_xacts p"
              " WHERE age(p.transaction) >= age($1::xid8::xid) LIMIT 10) q",
              {m.row.capture_xid.value_or("0")})
          .one("oldest");
  return {{ErrorCode::not_ready,
           "a transaction older than the capture is still open: " +
               oldest[0].value_or("(not visible to this role)"),
           "", "end it; its writes could still become visible"}};
}

}  // namespace

StepResult DualWriteHandler::step(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  const auto table = current_table(env.session, m);
  if (const auto arrived = newest_pass(env.session, m.row.id, "catch_up");
      arrived && arrived->state == "running") {
    const auto swept = sweep_.slice(env, m, *arrived, slice);
    if (swept.kind != StepResult::Kind::settled) return swept;
    StateStore(env.session).stamp_last_write(m.row.id);
    if (!end_sweep_pass(env.session, arrived->id))
      return {StepResult::Kind::again, {}, std::chrono::milliseconds(50)};
    sweep_.end();
  }
  if (const auto built = build_twins(env, m, lock_, refused_); built.kind != StepResult::Kind::settled)
    return built;
  if (const auto blockers = barrier_blockers(env, m); !blockers.empty()) {
    env.progress(-1, -1, blockers.front().text);
    return {StepResult::Kind::again, {}, std::chrono::milliseconds(250)};
  }
  if (auto violated = check_blockers(env, m, m.names.new_column); !violated.empty())
    return {StepResult::Kind::failed, std::move(violated), {}};
  // The planner must know the new column before the first query on it.
  const Interruptible interruptible(env.interruptible);
  env.session.exec(analyze_sql(env.session, m, table, load_ledger(env.session, m.row.id)));
  return {StepResult::Kind::settled, {}, {}};
}

std::vector<Blocker> DualWriteHandler::exit_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  if (auto lost = lost_key(env.session, m)) blockers.push_back(*std::move(lost));
  if (const auto arrived = newest_pass(env.session, m.row.id, "catch_up");
      arrived && arrived->state == "running")
    blockers.push_back(
        {ErrorCode::not_ready, "partitions that came since the backfill are being swept", "", ""});
  TwinBuilder builder(m, current_table(env.session, m), load_ledger(env.session, m.row.id));
  for (const auto& missing : builder.missing(env.session)) {
    blockers.push_back({ErrorCode::not_ready, "twin missing: " + missing, "", ""});
  }
  if (const auto progress = build_progress(env.session, m.row.table_oid); progress && !blockers.empty())
    blockers.front().text += " (" + *progress + ")";
  for (auto& blocker : barrier_blockers(env, m)) blockers.push_back(std::move(blocker));
  return blockers;
}

Crossing DualWriteHandler::enter(PhaseEnv&, const Migration&) { return {}; }

Crossing DualWriteHandler::leave_back(PhaseEnv& env, const Migration& m) {
  Crossing crossing;
  crossing.locks_table = true;
  const auto ledger = load_ledger(env.session, m.row.id);
  // A way back from compare takes them away; before any twin of the group in any case, on which they stand.
  crossing.parts.push_back({Stage::foreign_keys_off, drop_forerunners_sql(m, ledger)});
  crossing.statements = drop_twins_sql(m, current_table(env.session, m), ledger);
  return crossing;
}

}  // namespace crossfade

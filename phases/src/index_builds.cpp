// Indexes that are built online, and what is done when the values do not go into one. CREATE UNIQUE INDEX
// CONCURRENTLY that fails leaves an index which is not valid and may refuse live writes all the same. So it
// is dropped first, within the lock budget, whatever that takes; then the rows are counted and named by their
// keys. Killed in between, the next command finds the leftover, drops it, and begins anew.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/shadow/collisions.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/twins.hpp"
#include "handlers.hpp"

namespace crossfade {

namespace {

// Tells how far an index build has come, once a second, from a connection of its own, while the runner's is
// busy with it. Without a connection nothing is told; the build does not mind.
class BuildWatch {
 public:
  BuildWatch(PhaseEnv& env, Oid table, const std::string& what)
      : thread_([&env, table, what, this](const std::stop_token& stop) {
          try {
            auto session = env.connect("progress");
            while (!stop.stop_requested()) {
              if (const auto progress = build_progress(session, table))
                env.progress(-1, 0, what + ": " + *progress);
              std::unique_lock lock(mutex_);
              wake_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
            }
          } catch (const Error& error) {
            log::write(log::Level::info, "progress_unknown", {{"reason", error.message()}});
          }
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // ends before what it waits with
};

// A duplicate, a value that an expression of the index fails on, one that is too long for it.
bool is_about_values(const Error& error) {
  return std::ranges::any_of(std::array{"22", "23", "54"},
                             [&](const char* two) { return error.sqlstate().starts_with(two); });
}

StepResult build_step(PhaseEnv& env, const Migration& m, ShortLock& lock, TwinBuilder& builder,
                      RefusedBuild& refused, const std::string& what) {
  env.progress(-1, -1, what);
  if (!builder.builds_next(env.session)) {
    return with_short_lock(env, m, lock,
                           [&](std::chrono::milliseconds wait) { return builder.step(env.session, wait); });
  }
  // It needs no lock that anybody waits for: an old transaction is waited for by the server.
  const Interruptible interruptible(env.interruptible);
  const BuildWatch watch(env, m.row.table_oid, what);
  const auto missing = builder.missing(env.session);
  try {
    builder.step(env.session, std::chrono::milliseconds(0));
  } catch (const Error& error) {
    if (!is_about_values(error)) throw;
    // The first that is missing is the one that was tried.
    refused = fmt::format("{}: {}", missing.empty() ? "an index" : missing.front(), error.message());
  }
  return {StepResult::Kind::again, {}, std::chrono::milliseconds(50)};
}

// Which rows they are, of the indexes in `names`.
std::vector<Blocker> collision_blockers(PhaseEnv& env, const Migration& m, const QualifiedName& table,
                                        ComparedValue value, const std::vector<std::string>& names,
                                        const Blocker& as) {
  env.progress(-1, -1, "counting rows that collide");
  const Interruptible interruptible(env.interruptible);
  auto checks = collision_checks(env.session, m, table, value);
  std::erase_if(checks, [&](const CollisionCheck& check) {
    return check.sql.empty() || std::ranges::find(names, check.name) == names.end();
  });
  std::vector<Blocker> blockers;
  for (const auto& found : count_collisions(env.session, checks)) {
    if (found.rows == 0) continue;
    const auto& [one, other] = found.samples.front();
    blockers.push_back(as);
    blockers.back().text = fmt::format(
        "{} rows in {} groups are distinct under unique index {} and equal in the {} column, for "
        "example keys {} and {}",
        found.rows, found.groups, found.index, value == ComparedValue::old ? "old" : "new",
        array_literal(one), array_literal(other));
  }
  return blockers;
}

// The rows, or what PostgreSQL said when they cannot be found (any more).
std::vector<Blocker> what_was_refused(std::vector<Blocker> rows, RefusedBuild& refused, Blocker as) {
  if (rows.empty()) {
    as.text = *refused;
    rows.push_back(std::move(as));
  }
  refused.reset();
  return rows;
}

}  // namespace

StepResult build_twins(PhaseEnv& env, const Migration& m, ShortLock& lock, RefusedBuild& refused) {
  const auto table = current_table(env.session, m);
  const auto ledger = load_ledger(env.session, m.row.id);
  TwinBuilder builder(m, table, ledger);
  if (!refused && builder.missing(env.session).empty()) return {StepResult::Kind::settled, {}, {}};
  // The leftover is gone when its build would be next.
  if (!refused || !builder.builds_next(env.session))
    return build_step(env, m, lock, builder, refused, "building twins");
  std::vector<std::string> names;
  for (const auto& entry : ledger.carried) {
    if (entry.unique) names.push_back(entry.name);
  }
  const Blocker as{ErrorCode::phase_failed, "", "",
                   fmt::format("change those rows, then 'crossfade next {}'", m.row.name)};
  auto rows = collision_blockers(env, m, table, ComparedValue::shadow, names, as);
  return {StepResult::Kind::failed, what_was_refused(std::move(rows), refused, as), {}};
}

StepResult build_owed(PhaseEnv& env, const Migration& m, ShortLock& lock, RefusedBuild& refused) {
  const auto table = current_table(env.session, m);
  const auto ledger = load_ledger(env.session, m.row.id);
  TwinBuilder builder(m, table, ledger, BuildSet::owed);
  const bool begun = owed_indexes_begun(env.session, m, table, ledger);
  if (refused && begun) {
    return with_short_lock(env, m, lock, [&](std::chrono::milliseconds wait) {
      drop_owed_indexes(env.session, m, table, ledger, wait);
      return false;
    });
  }
  if (!refused && builder.missing(env.session).empty()) return {StepResult::Kind::settled, {}, {}};
  if (refused || !begun) {
    std::vector<std::string> names;
    for (const auto& entry : ledger.carried) {
      if (entry.shed && entry.unique) names.push_back(entry.name);
    }
    const Blocker as{ErrorCode::rollback_refused, "", "",
                     fmt::format("change those rows, then 'crossfade rollback {}'", m.row.name)};
    auto rows = collision_blockers(env, m, table, ComparedValue::old, names, as);
    if (refused) rows = what_was_refused(std::move(rows), refused, as);
    if (!rows.empty()) return {StepResult::Kind::waiting, std::move(rows), {}};
    failpoint::hit("owed.counted");
  }
  return build_step(env, m, lock, builder, refused, "building the old column's indexes again");
}

}  // namespace crossfade

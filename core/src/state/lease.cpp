#include "crossfade/core/lease.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/state_schema.hpp"

namespace crossfade {

namespace {

// A holder whose start time is hidden from us (another role's) counts as alive while its pid is: the careful
// answer.
constexpr const char* kHolderGone =
    "NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.pid = m.runner_pid"
    " AND coalesce(a.backend_start, m.runner_backend_start) = m.runner_backend_start)";

enum class Force { no, yes };

std::optional<Token> try_acquire(SqlSession& session, const MigrationId& id, const std::string& operator_name,
                                 const std::string& host, Force force) {
  const auto taken = session.exec(
      fmt::format(
          // The members of a group carry the same token: each chunk is fenced by its own row.
          "WITH taken AS (UPDATE crossfade.migration m SET token = gen_random_uuid(),"
          " epoch = epoch + CASE WHEN lease_until IS NULL THEN 0 ELSE 1 END,"
          " runner_pid = pg_backend_pid(), runner_backend_start ="
          " (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),"
          " runner_host = $2, runner_operator = $3, runner_version = $5, stop_requested = false,"
          " lease_until = clock_timestamp() + $4::interval"
          " WHERE m.id = $1 AND (m.lease_until IS NULL OR m.lease_until < clock_timestamp() OR {} OR {})"
          " RETURNING m.id, m.token),"
          " members AS (UPDATE crossfade.migration m SET token = t.token, epoch = m.epoch + 1 FROM taken t"
          " WHERE m.leader_id = t.id)"
          " SELECT token FROM taken",
          force == Force::yes ? "true" : "false", kHolderGone),
      {id.text, host, operator_name, fmt::format("{} s", kLeaseLength.count()), crossfade_version()});
  if (taken.empty()) return std::nullopt;
  return Token{text_of(taken[0][0])};
}

LeaseHolder holder(SqlSession& session, const MigrationId& id) {
  const auto row =
      session
          .exec(
              "SELECT coalesce(runner_operator, ''), coalesce(runner_host, ''), coalesce(runner_pid, 0),"
              " coalesce(lease_until::text, '') FROM crossfade.migration WHERE id = $1",
              {id.text})
          .one("migration");
  return {text_of(row[0]), text_of(row[1]), static_cast<int>(int_of(row[2])), text_of(row[3])};
}

}  // namespace

RunnerLease RunnerLease::acquire(SqlSession& session, const MigrationId& id, const std::string& operator_name,
                                 const std::string& host, std::chrono::milliseconds patience,
                                 Contention contention) {
  const auto first = holder(session, id);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const bool over = std::chrono::steady_clock::now() >= deadline;
    const auto force = over && contention == Contention::take_over ? Force::yes : Force::no;
    if (auto token = try_acquire(session, id, operator_name, host, force)) {
      failpoint::hit("lease.acquired");
      return RunnerLease(id, *token);
    }
    const auto now = holder(session, id);
    // Renewed while we watched: it is alive, and waiting longer would only wait longer.
    const bool alive = contention == Contention::give_up && now.until != first.until && !now.until.empty();
    if (alive || over) {
      throw Error(ErrorCode::busy,
                  fmt::format("another runner holds the migration: {} on {} (backend pid {}, lease until {})",
                              now.operator_name, now.host, now.pid, now.until),
                  "wait for it, or stop it; its lease ends 15 s after its last sign of life");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

namespace {
void require_held(SqlSession& session, const MigrationId& id, const SqlResult& updated) {
  if (updated.affected_rows == 1) return;
  const auto now = holder(session, id);
  throw Error(ErrorCode::superseded,
              fmt::format("another runner took the migration over: {} on {}{}", now.operator_name, now.host,
                          now.pid == 0 ? ", which has ended" : fmt::format(" (backend pid {})", now.pid)),
              "nothing of this run is lost; see 'crossfade status'");
}
}  // namespace

void RunnerLease::renew(SqlSession& session) {
  require_held(session, id_,
               session.exec("UPDATE crossfade.migration SET lease_until = clock_timestamp() + $3::interval "
                            "WHERE id = $1 AND token = $2",
                            {id_.text, token_.text, fmt::format("{} s", kLeaseLength.count())}));
}

void RunnerLease::rebind(SqlSession& session) {
  require_held(session, id_,
               session.exec("UPDATE crossfade.migration SET lease_until = clock_timestamp() + $3::interval, "
                            "runner_pid = pg_backend_pid(),"
                            " runner_backend_start = (SELECT a.backend_start FROM pg_stat_activity a WHERE "
                            "a.pid = pg_backend_pid())"
                            " WHERE id = $1 AND token = $2",
                            {id_.text, token_.text, fmt::format("{} s", kLeaseLength.count())}));
}

void RunnerLease::release(SqlSession& session) noexcept {
  try {
    session.exec(
        "UPDATE crossfade.migration SET lease_until = NULL, runner_pid = NULL, runner_backend_start = NULL"
        " WHERE id = $1 AND token = $2",
        {id_.text, token_.text});
  } catch (const std::exception&) {
    // The backend is gone or the server is: the lease frees itself.
  }
}

}  // namespace crossfade

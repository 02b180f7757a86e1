#include "crossfade/core/lock_attempts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "crossfade/core/identifier.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {
// These queue nobody; only after them does an attempt stand in the queue, where it holds up every reader
// behind it.
constexpr int kAttemptsWithoutWaiting = 8;
// The deadline of everything that is done under the lock.
constexpr milliseconds kLongestHold{2000};
}  // namespace

milliseconds lock_wait(int attempt, milliseconds budget) {
  if (attempt <= kAttemptsWithoutWaiting) return milliseconds(0);
  static constexpr int kWaits[] = {10, 25, 50, 100, 200, 500, 1000, 2000};
  const auto step = std::min<std::size_t>(static_cast<std::size_t>(attempt - kAttemptsWithoutWaiting - 1), 7);
  return std::min(milliseconds(kWaits[step]), budget);
}

namespace {
constexpr const char* kSomebodyWaitsLong =
    "EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE NOT l.granted AND (l.waitstart IS NULL OR l.waitstart <"
    " pg_catalog.clock_timestamp() - pg_catalog.current_setting('deadlock_timeout')::interval / 2))";
}  // namespace

milliseconds wait_with_locks(SqlSession& session, milliseconds wait) {
  if (wait.count() == 0) return wait;
  const auto row =
      session
          .exec(fmt::format(
              "SELECT (extract(epoch FROM current_setting('deadlock_timeout')::interval) * 250)::bigint, {}",
              kSomebodyWaitsLong))
          .one("deadlock_timeout");
  if (bool_of(row[1])) return milliseconds(0);
  return std::min(wait, milliseconds(int_of(row[0])));
}

std::string calm_or_miss_sql() {
  return fmt::format("DO {};\n",
                     quote_literal(fmt::format("BEGIN IF {} THEN RAISE lock_not_available USING MESSAGE ="
                                               " 'somebody waits for a lock for long'; END IF; END",
                                               kSomebodyWaitsLong)));
}

milliseconds pause_after(int attempt) {
  thread_local std::mt19937 random{std::random_device{}()};
  const int most = attempt <= kAttemptsWithoutWaiting ? 25 : std::min(20 * attempt, 400);
  return milliseconds(std::uniform_int_distribution<int>(most / 5 + 1, most)(random));
}

// lock_timeout counts for each relation anew, statement_timeout for all of them; it is a little longer so
// that of one relation the plainer error is told. NOWAIT waits for nothing: its second is for a machine that
// stands still.
std::string lock_tables_sql(const std::vector<std::string>& tables, milliseconds wait, milliseconds budget,
                            const std::string& before) {
  const bool nowait = wait.count() == 0;
  std::string first = under_one_deadline_sql(before);
  if (!first.empty() && !nowait) {
    first += fmt::format(
        "SELECT set_config(s.name, greatest(1, s.most - 1000 * extract(epoch FROM clock_timestamp()"
        " - current_setting('crossfade.lock_began')::timestamptz))::integer::text, true)"
        " FROM (VALUES ('lock_timeout', {}), ('statement_timeout', {})) s(name, most);\n",
        wait.count(), wait.count() + 5);
  }
  return fmt::format(
      "SET LOCAL lock_timeout = {0}; SET LOCAL statement_timeout = {1};\n"
      "SET LOCAL idle_in_transaction_session_timeout = 5000;\n"
      "SELECT set_config('crossfade.lock_began', clock_timestamp()::text, true);\n"
      "{6}LOCK TABLE {2} IN ACCESS EXCLUSIVE MODE{3};\n"
      "SELECT set_config('crossfade.lock_got', clock_timestamp()::text, true);\n"
      "SELECT set_config('lock_timeout', greatest(1, {4} - 1000 * extract(epoch FROM clock_timestamp()"
      " - current_setting('crossfade.lock_began')::timestamptz))::integer::text, true);\n"
      "SET LOCAL statement_timeout = {5};\n",
      nowait ? 1 : wait.count(), nowait ? 1000 : wait.count() + 5, fmt::join(tables, ", "),
      nowait ? " NOWAIT" : "", budget.count(), kLongestHold.count(), first);
}

// In dollar quotes, so that the statements stand in the message as they are: whoever reads the server's log
// finds what `plan` said.
std::string under_one_deadline_sql(const std::string& statements) {
  if (statements.empty()) return {};
  std::string tag = "cf";
  while (statements.find("$" + tag) != std::string::npos) tag += "x";
  return fmt::format("DO ${0}_block$BEGIN EXECUTE ${0}_text$\n{1}${0}_text$; END${0}_block$;\n", tag,
                     statements);
}

std::string record_success_sql(const MigrationId& id, const std::vector<Oid>& tables,
                               const std::string& to_phase, int attempt) {
  return fmt::format(
      "INSERT INTO crossfade.switch_attempt (migration_id, to_phase, attempt, outcome, transition,"
      " lock_wait_ms, lock_held_ms, waiting_sessions, longest_wait_ms, total_wait_ms)"
      " SELECT {0}::uuid, {1}, {2}, 'done', (SELECT max(h.number) FROM crossfade.transition h"
      "  WHERE h.migration_id = {0}::uuid), extract(epoch FROM "
      "current_setting('crossfade.lock_got')::timestamptz"
      " - current_setting('crossfade.lock_began')::timestamptz) * 1000,"
      " extract(epoch FROM clock_timestamp() - current_setting('crossfade.lock_got')::timestamptz) * 1000,"
      " count(*), coalesce(max(w.ms), 0), coalesce(sum(w.ms), 0)"
      " FROM (SELECT extract(epoch FROM clock_timestamp() - l.waitstart) * 1000 AS ms FROM pg_locks l"
      "  WHERE l.locktype = 'relation' AND l.relation = ANY ({3}::oid[]) AND NOT l.granted) w;\n",
      quote_literal(id.text), quote_literal(to_phase), attempt, quote_literal(oid_array(tables)));
}

void add_cost(SqlSession& session, const MigrationId& id, const AttemptCost& cost) {
  if (cost.sessions == 0) return;
  session.exec(
      "UPDATE crossfade.switch_attempt SET waiting_sessions = greatest(waiting_sessions, $2::integer),"
      " longest_wait_ms = greatest(longest_wait_ms, $3::float8),"
      " total_wait_ms = greatest(total_wait_ms, $4::float8)"
      " WHERE id = (SELECT max(a.id) FROM crossfade.switch_attempt a WHERE a.migration_id = $1)",
      {id.text, std::to_string(cost.sessions), fmt::format("{}", cost.longest_ms),
       fmt::format("{}", cost.total_ms)});
}

void record_miss(SqlSession& session, const MigrationId& id, const std::string& to_phase, int attempt,
                 const std::string& outcome, const std::vector<LockHolder>& holders,
                 const AttemptCost& cost) {
  SqlValue waited;
  if (cost.lock_wait_ms) waited = fmt::format("{}", *cost.lock_wait_ms);
  session.exec(
      "INSERT INTO crossfade.switch_attempt (migration_id, to_phase, attempt, outcome, blockers, "
      "lock_wait_ms,"
      " waiting_sessions, longest_wait_ms, total_wait_ms)"
      " VALUES ($1, $2, $3, $4, $5::jsonb, $6, $7, $8, $9)",
      {id.text, to_phase, std::to_string(attempt), outcome, to_json(holders), waited,
       std::to_string(cost.sessions), fmt::format("{}", cost.longest_ms), fmt::format("{}", cost.total_ms)});
}

std::vector<LockAttempt> lock_attempts(SqlSession& session, const MigrationId& id) {
  std::vector<LockAttempt> attempts;
  const auto number = [](const SqlValue& value) {
    return value ? std::optional<double>(double_of(value)) : std::nullopt;
  };
  for (const auto& row :
       session
           .exec("SELECT coalesce(transition, 0), to_phase, outcome, at, attempt, coalesce(waiting_sessions, "
                 "0),"
                 " lock_wait_ms, lock_held_ms, longest_wait_ms, blockers::text FROM crossfade.switch_attempt"
                 " WHERE migration_id = $1 ORDER BY id DESC LIMIT 1000",
                 {id.text})
           .rows) {
    attempts.push_back({int_of(row[0]), text_of(row[1]), text_of(row[2]), text_of(row[3]),
                        static_cast<int>(int_of(row[4])), static_cast<int>(int_of(row[5])), number(row[6]),
                        number(row[7]), number(row[8]), text_of(row[9])});
  }
  return attempts;
}

}  // namespace crossfade

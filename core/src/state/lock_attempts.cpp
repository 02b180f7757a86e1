#include "crossfade/core/lock_attempts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "crossfade/core/identifier.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {
// These queue nobody; only after them does an attempt stand in the queue, where it holds up every reader
// behind it.
constexpr int kAttemptsWithoutWaiting = 8;
// On a machine under load every transaction outlives a short budget; one that is younger than this is likely
// to end while an attempt waits, and an attempt holds up nobody for longer than the budget anyway.
constexpr milliseconds kYoung{1000};
}  // namespace

std::vector<LockHolder> old_holders(SqlSession& session, Oid table, milliseconds budget) {
  const auto found = session.exec(
      "SELECT coalesce(l.pid, 0), CASE WHEN l.pid IS NULL THEN 'a prepared transaction'"
      " ELSE format('pid %s (%s, %s, %s s): %s', a.pid, a.usename, coalesce(a.state, a.backend_type),"
      " round(extract(epoch FROM clock_timestamp() - a.xact_start)::numeric, 1), left(a.query, 100)) END,"
      " coalesce(a.backend_type = 'client backend' AND a.application_name NOT LIKE 'crossfade/%', false)"
      " FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
      " WHERE l.locktype = 'relation' AND l.relation = $1::oid AND l.granted AND l.pid IS DISTINCT FROM "
      "pg_backend_pid()"
      " AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
      " AND (l.pid IS NULL OR a.xact_start < clock_timestamp() - $2::interval)"
      " GROUP BY 1, 2, 3 ORDER BY 1 LIMIT 20",
      {std::to_string(table.value), fmt::format("{} ms", std::max(budget, kYoung).count())});
  std::vector<LockHolder> holders;
  for (const auto& row : found.rows) {
    holders.push_back({static_cast<int>(int_of(row[0])), text_of(row[1]), bool_of(row[2])});
  }
  return holders;
}

milliseconds lock_wait(int attempt, milliseconds budget) {
  if (attempt <= kAttemptsWithoutWaiting) return milliseconds(0);
  static constexpr int kWaits[] = {10, 25, 50, 100, 200, 500, 1000, 2000};
  const auto step = std::min<std::size_t>(static_cast<std::size_t>(attempt - kAttemptsWithoutWaiting - 1), 7);
  return std::min(milliseconds(kWaits[step]), budget);
}

milliseconds pause_after(int attempt) {
  thread_local std::mt19937 random{std::random_device{}()};
  const int most = attempt <= kAttemptsWithoutWaiting ? 25 : std::min(20 * attempt, 400);
  return milliseconds(std::uniform_int_distribution<int>(most / 5 + 1, most)(random));
}

std::string lock_table_sql(const std::string& tables, milliseconds wait, const std::string& before) {
  const auto limit = std::max(wait, milliseconds(1)).count();
  return fmt::format(
      "SET LOCAL lock_timeout = {0}; SET LOCAL statement_timeout = {1};\n"
      "SET LOCAL idle_in_transaction_session_timeout = 5000;\n"
      "SELECT set_config('crossfade.lock_began', clock_timestamp()::text, true);\n"
      "{4}LOCK TABLE {2} IN ACCESS EXCLUSIVE MODE{3};\n"
      // From here on nothing waits for long: whatever else is locked is ours or new.
      "SET LOCAL statement_timeout = 2000; SET LOCAL lock_timeout = 500;\n"
      "SELECT set_config('crossfade.lock_got', clock_timestamp()::text, true);\n",
      limit, limit + 1000, tables, wait.count() == 0 ? " NOWAIT" : "", before);
}

std::string record_success_sql(const MigrationId& id, Oid table, const std::string& to_phase, int attempt) {
  return fmt::format(
      "INSERT INTO crossfade.switch_attempt (migration_id, to_phase, attempt, outcome, lock_wait_ms, "
      "lock_held_ms,"
      " waiting_sessions) SELECT {}::uuid, {}, {}, 'done',"
      " extract(epoch FROM current_setting('crossfade.lock_got')::timestamptz"
      " - current_setting('crossfade.lock_began')::timestamptz) * 1000,"
      " extract(epoch FROM clock_timestamp() - current_setting('crossfade.lock_got')::timestamptz) * 1000,"
      " (SELECT count(*) FROM pg_locks l WHERE l.locktype = 'relation' AND l.relation = {}::oid AND NOT "
      "l.granted);\n",
      quote_literal(id.text), quote_literal(to_phase), attempt, table.value);
}

void record_miss(SqlSession& session, const MigrationId& id, const std::string& to_phase, int attempt,
                 const std::string& outcome, const std::vector<LockHolder>& holders) {
  nlohmann::json blockers = nlohmann::json::array();
  for (const auto& holder : holders) blockers.push_back(holder.who);
  session.exec(
      "INSERT INTO crossfade.switch_attempt (migration_id, to_phase, attempt, outcome, blockers)"
      " VALUES ($1, $2, $3, $4, $5::jsonb)",
      {id.text, to_phase, std::to_string(attempt), outcome, blockers.dump()});
}

}  // namespace crossfade

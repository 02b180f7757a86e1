// What happens to the table and around it: sessions that wait for us, a vacuum at work, dead rows, old
// snapshots, and the disk.
#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "signals.hpp"

namespace crossfade::pace {

namespace {

// pg_blocking_pids stops the lock manager for a moment, so it is asked only for so many, and only when
// anybody waits for a moment at all. Whom our workers are is in the leases of their units, whichever process
// they belong to.
constexpr const char* kWaiters =
    "WITH ours AS MATERIALIZED (SELECT u.lease_pid AS pid FROM crossfade.unit u JOIN crossfade.pass p"
    " ON p.id = u.pass_id WHERE p.migration_id = $1::uuid AND p.state = 'running'"
    " AND u.lease_pid IS NOT NULL AND u.lease_until > clock_timestamp()),"
    " waiting AS MATERIALIZED (SELECT l.pid, min(l.waitstart) AS since FROM pg_locks l"
    " WHERE NOT l.granted AND l.waitstart < clock_timestamp() - interval '5 ms'"
    " AND l.pid NOT IN (SELECT pid FROM ours) AND EXISTS (SELECT FROM ours) GROUP BY l.pid LIMIT 200)"
    " SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - w.since)), 0) FROM waiting w"
    " WHERE pg_blocking_pids(w.pid) && (SELECT array_agg(pid) FROM ours)";

// Of a vacuum everybody sees the process, and in pg_locks the table: the progress of a foreign session hides
// the rest. Where its query is hidden, too, the age of the table tells whether it must prevent wraparound.
constexpr const char* kVacuum =
    "SELECT v.pid, CASE WHEN a.backend_type IS NOT NULL THEN a.query LIKE '%(to prevent wraparound)'"
    " ELSE age(c.relfrozenxid) > coalesce((SELECT o.option_value::bigint FROM"
    " pg_options_to_table(c.reloptions) o WHERE o.option_name = 'autovacuum_freeze_max_age'),"
    " current_setting('autovacuum_freeze_max_age')::bigint) END,"
    " CASE WHEN l.relation <> $1::oid THEN l.relation::regclass::text END"
    " FROM pg_stat_progress_vacuum v JOIN pg_locks l ON l.pid = v.pid AND l.locktype = 'relation'"
    " AND (l.relation = $1::oid OR l.relation IN (SELECT t.relid FROM pg_partition_tree($1::oid) t))"
    " AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted"
    " AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
    " JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_stat_activity a ON a.pid = v.pid ORDER BY 2 DESC "
    "LIMIT "
    "1";

constexpr const char* kOldestXmin =
    "SELECT age(x.xmin), x.holder FROM ("
    " SELECT a.backend_xmin AS xmin, format('pid %s (%s)', a.pid, coalesce(a.usename, a.backend_type)) AS "
    "holder"
    " FROM pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()"
    " UNION ALL SELECT r.backend_xmin, 'standby ' || r.application_name FROM pg_stat_replication r"
    " WHERE r.backend_xmin IS NOT NULL"
    " UNION ALL SELECT s.xmin, 'slot ' || s.slot_name FROM pg_replication_slots s WHERE s.xmin IS NOT NULL"
    " UNION ALL SELECT t.transaction, 'prepared transaction ' || t.gid FROM pg_prepared_xacts t) x"
    " ORDER BY age(x.xmin) DESC LIMIT 1";

}  // namespace

Readings LockWaiters::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.max_lock_waiters == 0) return {};
  const auto row = session.exec_prepared(kWaiters, {migration_.text}).one("waiters");
  return judge({int_of(row[0]), double_of(row[1])}, tuning);
}

Readings LockWaiters::judge(const Facts& facts, const Tuning& tuning) {
  auto value = fmt::format("{} sessions wait for locks of the sweep", facts.waiting);
  if (facts.waiting > 0) value += fmt::format(" (up to {})", milliseconds_text(1000 * facts.longest_seconds));
  return {{"lock_waiters", Response::slows,
           static_cast<double>(facts.waiting) / static_cast<double>(tuning.max_lock_waiters), value,
           std::to_string(tuning.max_lock_waiters)}};
}

Readings TableVacuum::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.yield_to_vacuum == YieldToVacuum::off) return {};
  const auto found = session.exec_prepared(kVacuum, {std::to_string(table_.value)});
  if (found.empty()) return judge({}, tuning);
  return judge({static_cast<int>(int_of(found[0][0])), bool_of(found[0][1]), found[0][2].value_or("")},
               tuning);
}

Readings TableVacuum::judge(const Facts& facts, const Tuning& tuning) {
  const bool yields = facts.pid != 0 && (facts.wraparound || tuning.yield_to_vacuum == YieldToVacuum::any);
  if (!yields) return {{"vacuum", Response::waits, 0, "no vacuum to wait for", ""}};
  return {{"vacuum", Response::waits, 2,
           fmt::format("vacuum of {}{} by pid {}",
                       facts.partition.empty() ? "the table" : "partition " + facts.partition,
                       facts.wraparound ? " to prevent wraparound" : "", facts.pid),
           ""}};
}

Readings DeadTuples::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.max_dead_tuples == 0) return {};
  const auto row = session.exec_prepared(
      "SELECT coalesce(sum(pg_stat_get_dead_tuples(r.oid)), 0) FROM (SELECT $1::oid"
      " UNION SELECT t.relid FROM pg_partition_tree($1::oid) t) r (oid)",
      {std::to_string(table_.value)});
  return judge(int_of(row.one("dead")[0]), tuning);
}

Readings DeadTuples::judge(std::int64_t dead, const Tuning& tuning) {
  return {{"dead_tuples", Response::waits,
           static_cast<double>(dead) / static_cast<double>(tuning.max_dead_tuples),
           fmt::format("{} dead tuples", dead), std::to_string(tuning.max_dead_tuples)}};
}

Readings OldestXmin::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.max_xmin_age == 0) return {};
  require_statistics(session, "max_xmin_age");
  const auto found = session.exec_prepared(kOldestXmin);
  if (found.empty()) return judge({}, tuning);
  return judge({int_of(found[0][0]), text_of(found[0][1])}, tuning);
}

Readings OldestXmin::judge(const Facts& facts, const Tuning& tuning) {
  auto value = fmt::format("oldest snapshot {} transactions old", facts.age);
  if (!facts.holder.empty()) value += ", of " + facts.holder;
  return {{"oldest_xmin", Response::waits,
           static_cast<double>(facts.age) / static_cast<double>(tuning.max_xmin_age), value,
           std::to_string(tuning.max_xmin_age)}};
}

Readings FreeDisk::read(SqlSession& session, const Tuning& tuning, Time) {
  if (tuning.min_free_disk == 0) return {};
  if (tuning.disk_probe.empty()) {
    return {{name(), Response::waits, std::nullopt,
             "free disk unknown: PostgreSQL does not tell; set disk_probe to a query that does", ""}};
  }
  // The operator's own words: whatever they are, nothing is written by them, and they are one statement.
  session.exec("SET default_transaction_read_only = on");
  SqlResult found;
  try {
    found = session.exec_prepared(tuning.disk_probe);
  } catch (const Error&) {
    if (session.is_open()) session.exec("SET default_transaction_read_only = off");
    throw;
  }
  session.exec("SET default_transaction_read_only = off");
  if (found.size() != 1 || found[0].size() != 1 || !found[0][0]) {
    return {{name(), Response::waits, std::nullopt,
             "free disk unknown: disk_probe did not answer with one number", ""}};
  }
  return judge(double_of(found[0][0]), tuning);
}

Readings FreeDisk::judge(double free, const Tuning& tuning) {
  const auto least = static_cast<double>(tuning.min_free_disk);
  return {{"free_disk", Response::waits, free > 0 ? least / free : 1000.0,
           fmt::format("free disk {}", size_text(std::max(free, 0.0))), size_text(least), '<'}};
}

}  // namespace crossfade::pace

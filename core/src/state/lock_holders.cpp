// Who holds the table. pg_locks is open to every role; of pg_stat_activity another role's sessions show pid,
// user and application_name to everybody, the rest to members of pg_read_all_stats.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/core/lock_attempts.hpp"

namespace crossfade {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Kind = LockHolder::Kind;

namespace {

// On a machine under load every transaction outlives a short budget; one that is younger than this is likely
// to end while an attempt waits, and an attempt holds up nobody for longer than the budget anyway.
constexpr milliseconds kYoung{1000};

// Whether one of the tables is so old that an autovacuum of it is one to prevent wraparound.
constexpr const char* kMustBeFrozen = R"sql(EXISTS (SELECT 1 FROM pg_class c LEFT JOIN LATERAL (
    SELECT min(o.option_value::bigint) FILTER (WHERE o.option_name = 'autovacuum_freeze_max_age') AS xids,
      min(o.option_value::bigint) FILTER
        (WHERE o.option_name = 'autovacuum_multixact_freeze_max_age') AS multis
    FROM pg_options_to_table(c.reloptions) o) own ON true
  WHERE c.oid = ANY ($1::oid[]) AND (
    age(c.relfrozenxid) > least(own.xids, current_setting('autovacuum_freeze_max_age')::bigint)
    OR mxid_age(c.relminmxid) >
      least(own.multis, current_setting('autovacuum_multixact_freeze_max_age')::bigint))))sql";

// A prepared transaction has no process; it holds a lock on its transaction id, by which its gid is found.
// An autovacuum worker has no user. What it does is hidden with its query; whether it must prevent wraparound
// is also in the age of the table. A backend that ended between the two views is no holder any more.
constexpr const char* kHolders = R"sql(
SELECT coalesce(l.pid, 0), l.virtualtransaction,
  CASE WHEN l.pid IS NULL THEN 'prepared'
       WHEN l.pid IN (SELECT r.pid FROM pg_stat_replication r WHERE r.pid IS NOT NULL)
         OR l.pid IN (SELECT s.pid FROM pg_stat_subscription s WHERE s.pid IS NOT NULL)
         OR a.backend_type = 'walsender' THEN 'replication'
       WHEN coalesce(a.backend_type = 'autovacuum worker', a.usesysid IS NULL) THEN
         CASE WHEN coalesce(a.query, '') LIKE '%(to prevent wraparound)%'
           OR (a.backend_type IS NULL AND {0}) THEN 'wraparound' ELSE 'autovacuum' END
       WHEN a.application_name LIKE 'crossfade/%' THEN 'ours'
       WHEN coalesce(a.backend_type, 'client backend') = 'client backend' THEN 'session'
       ELSE 'worker' END,
  coalesce(a.usename, p.owner, ''), coalesce(a.state, ''), coalesce(a.query_start::text, ''),
  CASE WHEN a.backend_type IS NULL THEN '' ELSE left(coalesce(a.query, ''), 200) END,
  extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)),
  l.pid IS NOT NULL AND a.backend_type IS NULL, coalesce(p.gid, '')
FROM (SELECT DISTINCT k.pid, k.virtualtransaction FROM pg_locks k WHERE k.locktype = 'relation'
        AND k.relation = ANY ($1::oid[]) AND k.granted AND k.pid IS DISTINCT FROM pg_backend_pid()
        AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.granted
  AND x.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
WHERE l.pid IS NULL OR a.pid IS NOT NULL)sql";

Kind kind_of(const std::string& word) {
  if (word == "prepared") return Kind::prepared;
  if (word == "replication") return Kind::replication;
  if (word == "wraparound") return Kind::wraparound;
  if (word == "autovacuum") return Kind::autovacuum;
  if (word == "ours") return Kind::ours;
  return word == "session" ? Kind::session : Kind::worker;
}

std::string_view word_of(Kind kind) {
  switch (kind) {
    case Kind::session:
      return "session";
    case Kind::ours:
      return "crossfade";
    case Kind::autovacuum:
      return "autovacuum";
    case Kind::wraparound:
      return "autovacuum to prevent wraparound";
    case Kind::replication:
      return "replication";
    case Kind::worker:
      return "background worker";
    case Kind::prepared:
      return "prepared transaction";
  }
  return "";
}

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

}  // namespace

std::string LockHolder::text() const {
  if (kind == Kind::prepared) {
    const auto name = gid.empty() ? "" : " " + quote_literal(gid);
    return fmt::format("a prepared transaction{} ({}{}{:.1f} s)", name, user, user.empty() ? "" : ", ",
                       age_seconds);
  }
  std::string who = user;
  if (kind != Kind::session) who += fmt::format("{}{}", who.empty() ? "" : ", ", word_of(kind));
  if (!state.empty()) who += ", " + state;
  who += fmt::format(", {:.1f} s", age_seconds);
  if (!query_start.empty()) who += ", query since " + query_start;
  if (hidden) return fmt::format("pid {} ({}; what it does is hidden from this role)", pid, who);
  return fmt::format("pid {} ({}): {}", pid, who, query.substr(0, 100));
}

std::string to_json(const std::vector<LockHolder>& holders) {
  auto list = nlohmann::ordered_json::array();
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  for (const auto& holder : holders) {
    list.push_back({{"pid", holder.pid == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(holder.pid)},
                    {"gid", or_null(holder.gid)},
                    {"kind", word_of(holder.kind)},
                    {"user", or_null(holder.user)},
                    {"age_seconds", holder.age_seconds},
                    {"state", or_null(holder.state)},
                    {"query_start", or_null(holder.query_start)},
                    {"query", or_null(holder.query)}});
  }
  // A query cut in the middle of a character must not make an exception of an answer.
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string oid_array(const std::vector<Oid>& tables) {
  std::string text;
  for (const auto table : tables) text += (text.empty() ? "" : ",") + std::to_string(table.value);
  return "{" + text + "}";
}

std::vector<LockHolder> HolderWatch::look(SqlSession& session, const std::vector<Oid>& tables) {
  std::vector<LockHolder> holders;
  decltype(first_seen_) seen;
  for (const auto& row : session.exec(fmt::format(kHolders, kMustBeFrozen), {oid_array(tables)}).rows) {
    LockHolder holder;
    holder.pid = static_cast<int>(int_of(row[0]));
    holder.virtual_transaction = text_of(row[1]);
    holder.kind = kind_of(text_of(row[2]));
    holder.user = text_of(row[3]);
    holder.state = text_of(row[4]);
    holder.query_start = text_of(row[5]);
    holder.query = text_of(row[6]);
    holder.hidden = bool_of(row[8]);
    holder.gid = text_of(row[9]);
    const auto key = std::pair{holder.pid, holder.virtual_transaction};
    const auto before = first_seen_.find(key);
    const auto since = before == first_seen_.end() ? Clock::now() : before->second;
    seen[key] = since;
    holder.age_seconds = row[7] ? double_of(row[7]) : seconds_since(since);
    holders.push_back(std::move(holder));
  }
  first_seen_ = std::move(seen);
  std::ranges::stable_sort(holders, std::greater<>{}, &LockHolder::age_seconds);
  return holders;
}

std::vector<LockHolder> HolderWatch::old_holders(SqlSession& session, const std::vector<Oid>& tables,
                                                 milliseconds budget) {
  const double old = std::chrono::duration<double>(std::max(budget, kYoung)).count();
  std::vector<LockHolder> found;
  // A prepared transaction has no end that an attempt could wait for.
  std::ranges::copy_if(look(session, tables), std::back_inserter(found), [&](const LockHolder& holder) {
    return holder.kind == Kind::prepared || holder.age_seconds >= old;
  });
  return found;
}

std::vector<std::string> signal_holders(SqlSession& session, const std::vector<Oid>& tables,
                                        const std::vector<LockHolder>& holders, SignalPolicy policy) {
  std::vector<std::string> unreached;
  if (!policy.cancel && !policy.terminate) return unreached;
  for (const auto& holder : holders) {
    if (!holder.may_be_signalled()) continue;
    // A cancel does nothing to an idle transaction; of a hidden one we do not know.
    const bool deaf = holder.state.starts_with("idle in transaction");
    const bool terminate = policy.terminate && (deaf || holder.hidden || !policy.cancel);
    if (!terminate && deaf) {
      unreached.push_back(
          fmt::format("pid {} is idle in transaction, which a cancel does not end; --terminate-blockers does",
                      holder.pid));
      continue;
    }
    try {
      // Only while that very transaction holds the table: the pid may be somebody else's by now.
      session.exec(fmt::format("SELECT {}(l.pid) FROM (SELECT DISTINCT k.pid FROM pg_locks k"
                               " WHERE k.locktype = 'relation' AND k.relation = ANY ($1::oid[]) AND k.granted"
                               " AND k.pid = $2::integer AND k.virtualtransaction = $3) l",
                               terminate ? "pg_terminate_backend" : "pg_cancel_backend"),
                   {oid_array(tables), std::to_string(holder.pid), holder.virtual_transaction});
    } catch (const Error& error) {
      if (error.sqlstate() != "42501") throw;
      const auto role = text_of(session.exec("SELECT quote_ident(current_user)").one("role")[0]);
      unreached.push_back(
          fmt::format("role {} may not signal pid {} of role {}: GRANT pg_signal_backend TO {} (a "
                      "superuser's session only"
                      " a superuser can end)",
                      role, holder.pid, holder.user, role));
    }
  }
  return unreached;
}

Error lock_attempts_exhausted(const std::string& table, int attempts, milliseconds budget,
                              const std::string& missed, const std::vector<LockHolder>& holders,
                              const std::vector<std::string>& unreached) {
  std::string held, hint = "nothing changed; try again";
  bool hidden = false, may_end = false, prepared = false;
  for (const auto& holder : holders) {
    held += (held.empty() ? "; held by " : ", ") + holder.text();
    hidden = hidden || holder.hidden;
    may_end = may_end || holder.may_be_signalled();
    prepared = prepared || holder.kind == Kind::prepared;
  }
  if (may_end) hint += ", or end the holders with --cancel-blockers or --terminate-blockers";
  if (prepared) hint += "; COMMIT PREPARED or ROLLBACK PREPARED ends a prepared transaction";
  for (const auto& sentence : unreached) hint += "; " + sentence;
  if (hidden) hint += "; GRANT pg_read_all_stats to see what they do";
  return Error(ErrorCode::lock_attempts_exhausted,
               fmt::format("table {} could not be locked in {} attempts of {} ms ({}){}", table, attempts,
                           budget.count(), missed, held),
               hint, table)
      .with_blockers(to_json(holders));
}

}  // namespace crossfade

// The lock budget: how each attempt for ACCESS EXCLUSIVE is made, who stands in the way, and what the attempt
// cost the application.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

// Whoever holds a lock on the table, as far as our role may see it.
struct LockHolder {
  enum class Kind {
    session,      // a client's
    ours,         // of another crossfade command
    autovacuum,   // ends by itself
    wraparound,   // an autovacuum to prevent wraparound
    replication,  // a walsender or a subscription's worker
    worker,       // another background process
    prepared,     // a prepared transaction, which has no process
  };
  Kind kind = Kind::session;
  int pid = 0;                      // 0: a prepared transaction
  std::string virtual_transaction;  // with the pid it names one transaction
  std::string gid;                  // of a prepared transaction
  std::string user;
  std::string state, query, query_start;  // empty when hidden from our role
  double age_seconds = 0;                 // of its transaction; since we saw it first when that is hidden
  bool hidden = false;                    // another role's, and pg_read_all_stats is not ours

  // Never an autovacuum, never replication.
  bool may_be_signalled() const { return kind == Kind::session; }
  // "pid 4711 (app, idle in transaction, 12.0 s, query since 2026-01-31 12:00:00+00): SELECT …"
  std::string text() const;
};
// A JSON array of objects: pid, gid, kind, user, age_seconds, state, query_start, query.
std::string to_json(const std::vector<LockHolder>& holders);

// As an input of type oid[].
std::string oid_array(const std::vector<Oid>& tables);

// Looks at the holders of some tables again and again. pg_locks shows every role who holds what, but the age
// of another role's transaction only to members of pg_read_all_stats: for the others the watch remembers when
// it saw a transaction first.
class HolderWatch {
 public:
  // All holders of any lock on one of the tables, the oldest first.
  std::vector<LockHolder> look(SqlSession& session, const std::vector<Oid>& tables);
  // Those whose transaction is older than `budget` and than one second: no attempt is made while there are
  // any.
  std::vector<LockHolder> old_holders(SqlSession& session, const std::vector<Oid>& tables,
                                      std::chrono::milliseconds budget);

 private:
  std::map<std::pair<int, std::string>, std::chrono::steady_clock::time_point> first_seen_;
};

// What the operator allows to be done to holders.
struct SignalPolicy {
  bool cancel = false;     // pg_cancel_backend, which an idle transaction does not hear
  bool terminate = false;  // pg_terminate_backend; with cancel, only where a cancel does nothing
};
// Signals those holders that still hold one of the tables with the transaction that was seen, and may be
// signalled. Returns a sentence for each one that could not be reached, with what to do.
std::vector<std::string> signal_holders(SqlSession& session, const std::vector<Oid>& tables,
                                        const std::vector<LockHolder>& holders, SignalPolicy policy);

// The end of all attempts: who holds the table now, and what can be done. `missed`: what the last one met.
Error lock_attempts_exhausted(const std::string& table, int attempts, std::chrono::milliseconds budget,
                              const std::string& missed, const std::vector<LockHolder>& holders,
                              const std::vector<std::string>& unreached);

// How attempt number `attempt` (from 1) waits: zero means NOWAIT.
std::chrono::milliseconds lock_wait(int attempt, std::chrono::milliseconds budget);
// While one relation is held and another waited for, an application's transaction that holds the other and
// wants the first is in a cycle with us. An attempt that ends within a quarter of deadlock_timeout is gone
// before anybody who began to wait since looks for a deadlock; and while somebody has waited for half of it
// already, an attempt waits for nothing (zero).
std::chrono::milliseconds wait_with_locks(SqlSession& session, std::chrono::milliseconds wait);
// The same question once more where the client cannot stall any more: in the message that locks. A miss
// (55P03) when somebody waits for long.
std::string calm_or_miss_sql();
// Pause before the next attempt, jittered.
std::chrono::milliseconds pause_after(int attempt);

// Locks the relations in the given order, all within one deadline, and sets the marks from which the pause is
// measured. Whatever is locked afterwards has what is left of the budget. `before` takes locks of its own,
// first and within the same deadline.
std::string lock_tables_sql(const std::vector<std::string>& tables, std::chrono::milliseconds wait,
                            std::chrono::milliseconds budget, const std::string& before = "");
// The statements as one, so that statement_timeout is one deadline for everything that happens under the
// lock.
std::string under_one_deadline_sql(const std::string& statements);

// What an attempt cost: sessions that waited for us, and how long, as seen by a second connection.
struct AttemptCost {
  std::optional<double> lock_wait_ms;
  int sessions = 0;
  double longest_ms = 0, total_ms = 0;
};

// Records a successful attempt with its measured pause, as far as its own transaction can see it. Last
// statement before COMMIT, after the history row.
std::string record_success_sql(const MigrationId& id, const std::vector<Oid>& tables,
                               const std::string& to_phase, int attempt);
// Adds what the second connection saw to the attempt recorded last.
void add_cost(SqlSession& session, const MigrationId& id, const AttemptCost& cost);
void record_miss(SqlSession& session, const MigrationId& id, const std::string& to_phase, int attempt,
                 const std::string& outcome, const std::vector<LockHolder>& holders, const AttemptCost& cost);

struct LockAttempt {
  std::int64_t transition = 0;  // number in the history; 0: a miss
  std::string to_phase, outcome, at;
  int attempt = 0, sessions_waited = 0;
  std::optional<double> lock_wait_ms, lock_held_ms, longest_wait_ms;
  std::string blockers;  // JSON array
};
// The newest first, at most a thousand.
std::vector<LockAttempt> lock_attempts(SqlSession& session, const MigrationId& id);

}  // namespace crossfade

// The lock budget: how each attempt for ACCESS EXCLUSIVE is made, and who stands in the way.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

struct LockHolder {
  int pid = 0;
  std::string who;                // "pid 4711 (app, idle in transaction, 12 s): SELECT …"
  bool may_be_signalled = false;  // a client backend that is not ours
};

// Holders of any lock on the table whose transaction is older than `budget` and than one second. One whose
// age is hidden from us is not reported: then only the attempt itself tells.
std::vector<LockHolder> old_holders(SqlSession& session, Oid table, std::chrono::milliseconds budget);

// How attempt number `attempt` (from 1) waits: zero means NOWAIT.
std::chrono::milliseconds lock_wait(int attempt, std::chrono::milliseconds budget);
// Pause before the next attempt, jittered.
std::chrono::milliseconds pause_after(int attempt);

// LOCK TABLE … with the attempt's wait as one deadline, and the marks from which the pause is measured.
std::string lock_table_sql(const std::string& tables, std::chrono::milliseconds wait,
                           const std::string& before = "");
// Records a successful attempt with its measured pause. Last statement before COMMIT.
std::string record_success_sql(const MigrationId& id, Oid table, const std::string& to_phase, int attempt);
void record_miss(SqlSession& session, const MigrationId& id, const std::string& to_phase, int attempt,
                 const std::string& outcome, const std::vector<LockHolder>& holders);

}  // namespace crossfade

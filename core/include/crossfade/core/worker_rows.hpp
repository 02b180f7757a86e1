// Rows of crossfade.worker: the worker processes that joined a migration beside its runner. What they may
// write is decided by the runner's token, never by these rows: they tell people who works, and the workers
// how many of them share the rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

struct WorkerRow {
  std::int64_t id = 0;
  std::string operator_name, host;
  int process_id = 0;  // on its host
  int pid = 0;         // backend of the session that registered it
  std::string version, spec_hash;
  int threads = 1;
  std::string state;  // what it does or waits for, in words
  std::string since;
  double seen_seconds = 0;  // since it was heard of last, by PostgreSQL's clock
};

// A process that was not heard of for so long counts no more, although its backend may still be there.
inline constexpr int kWorkerSilence = 15;

// The row of one process, which lives as long as `session`.
class WorkerRegistration {
 public:
  // Rows whose backend is gone are taken away on the way.
  WorkerRegistration(SqlSession& session, const MigrationId& id, WorkerRow row);
  ~WorkerRegistration();
  WorkerRegistration(const WorkerRegistration&) = delete;
  WorkerRegistration& operator=(const WorkerRegistration&) = delete;

  std::int64_t id() const { return row_.id; }
  // "I am here, and this is what I do"; writes the row again when somebody took it away.
  void touch(const std::string& state);

 private:
  void insert();
  SqlSession& session_;
  MigrationId id_;
  WorkerRow row_;
};

// Those whose backend is there and that were heard of lately, oldest first.
std::vector<WorkerRow> live_workers(SqlSession& session, const MigrationId& id);
// Threads of all of them together.
int live_worker_threads(SqlSession& session, const MigrationId& id);

}  // namespace crossfade

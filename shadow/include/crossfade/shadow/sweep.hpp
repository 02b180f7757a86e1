// The sweep: worker threads that take units and move them chunk by chunk to their bounds. Used by backfill
// and replay.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/pace.hpp"

namespace crossfade {

// Why a slice ended.
enum class SweepState {
  working,    // the slice is over, units remain
  at_bounds,  // every unit is at its bound and no leftover remains
  held,       // the fence was empty: paused, superseded or another phase; read the migration row
  rewritten,  // the table has another storage than the blocks of its units were counted in: sweep anew
  stopped,    // `stop` was set
};

class SweepWorker;

class Sweep {
 public:
  using Connect = std::function<SqlSession(const std::string& role)>;

  // token: the runner's lease; what every chunk presents.
  Sweep(Migration migration, QualifiedName table, Token token, PassRow pass, Connect connect,
        CursorCache& cache);
  ~Sweep();

  // Runs `tuning.workers` threads until the slice is over. Sessions and units are kept between slices. An
  // error of one worker stops the others and is thrown: too_many_rejects, rows_suppressed, connection_lost
  // after five reconnects, or what PostgreSQL said. Transient errors are answered inside (smaller, careful,
  // later).
  SweepState run(const Tuning& tuning, std::chrono::milliseconds slice, const std::atomic<bool>& stop);

  // Threads of other processes that sweep the same migration: they take their part of the rate.
  void share_rate_with(int threads_elsewhere) { threads_elsewhere_ = threads_elsewhere; }

  // Since construction, for progress lines.
  std::int64_t rows_seen() const { return rows_seen_; }
  std::int64_t rows_written() const { return rows_written_; }
  // What the slowest worker waits for, empty when nothing.
  std::string waiting_for() const;
  const PassRow& pass() const { return pass_; }

 private:
  friend class SweepWorker;
  // Records in the pass, for status, in how many visits windows are swept and why.
  void tell(SqlSession& session, int visits, const std::string& reason);

  Migration migration_;
  QualifiedName table_;
  Token token_;
  PassRow pass_;
  Connect connect_;
  CursorCache& cache_;
  std::mutex cache_mutex_;
  void set_pace(const Tuning& tuning);
  Pace pace_;
  int threads_elsewhere_ = 0;
  std::vector<std::unique_ptr<SweepWorker>> workers_;
  std::atomic<std::int64_t> rows_seen_{0}, rows_written_{0};
  mutable std::mutex waiting_mutex_;
  std::string waiting_for_;
  std::mutex told_mutex_;
  std::string told_;  // of the pass row: what the workers decided last
};

}  // namespace crossfade

// Keeps the runner's lease alive while work goes on, and watches for what other people want: stop, takeover,
// a new pace.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/lease.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

class LeaseKeeper {
 public:
  using Connect = std::function<SqlSession(const std::string& role)>;

  // After a renewal, with the phase that the row is in: in the keeper's thread, so however long a statement
  // of the runner takes.
  using Held = std::function<void(Phase phase, Epoch epoch)>;

  // Acquires the lease (throws busy) and starts the thread. `stop` is set when the lease is lost or an end is
  // asked for.
  LeaseKeeper(Connect connect, const std::string& redis, const MigrationId& id,
              const std::string& operator_name, const std::string& host, std::chrono::milliseconds patience,
              Contention contention, std::atomic<bool>& stop, std::function<void()> each_second, Held held);
  ~LeaseKeeper();

  const Token& token() const { return lease_.token(); }
  // Rethrows what ended the lease: superseded, connection_lost. Also superseded when another command (a
  // rollback) asked the runner to end.
  void check();

 private:
  void loop();
  void look();

  Connect connect_;
  SqlSession session_;
  RunnerLease lease_;
  ControlListener listener_;
  std::atomic<bool>& stop_;
  std::function<void()> each_second_;  // called from the keeper's thread
  Held held_;
  std::atomic<bool> ending_{false}, asked_to_end_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace crossfade

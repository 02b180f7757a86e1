// What a lock attempt costs the application: a second connection looks every few milliseconds at who waits
// for our backend on a table of the change, since the one that makes the attempt is busy with it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

class PauseSampler {
 public:
  using Connect = std::function<SqlSession(const std::string& role)>;
  // Connects, before any attempt holds anything. When no connection can be had nothing is measured, and the
  // attempts are made.
  PauseSampler(const Connect& connect, std::vector<Oid> tables);
  ~PauseSampler();

  // From just before the message is sent, to after its answer.
  void begin(int our_backend_pid);
  AttemptCost end();

 private:
  void loop();
  void sample();

  const std::string tables_;  // as an array
  std::optional<SqlSession> session_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false, sampling_ = false, idle_ = true;
  int our_pid_ = 0;
  std::chrono::steady_clock::time_point began_;
  // By pid and the start of the wait: milliseconds.
  std::map<std::pair<int, std::string>, double> waits_;
  std::thread thread_;
};

}  // namespace crossfade

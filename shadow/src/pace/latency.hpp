// The canary: a statement that is run ten times a second in a session of its own, as the application would
// run it, and how long it takes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "signals.hpp"

namespace crossfade::pace {

// The latest samples, at most a hundred and none older than half a minute.
class LatencyWindow {
 public:
  void add(double took_ms, Time now);
  void clear() { samples_.clear(); }
  // The sample that 99 of 100 do not exceed; of fewer samples the greatest. nullopt below ten samples within
  // a second, which say nothing.
  std::optional<double> p99(Time now) const;

 private:
  std::deque<std::pair<double, Time>> samples_;
};

class ProbeLatency : public Signal {
 public:
  using Connect = std::function<SqlSession(const std::string& role)>;
  // canary: the statement of the built-in probe.
  ProbeLatency(Connect connect, std::string canary);
  ~ProbeLatency() override;

  std::string_view name() const override { return "probe"; }
  // The first call with another probe starts it, and waits until it has answered once.
  Readings read(SqlSession& session, const Tuning& tuning, Time now) override;
  static Readings judge(std::optional<double> p99, const Tuning& tuning);
  void rate_lowered() override;

 private:
  void stop();
  void loop(const std::string& statement, std::chrono::milliseconds timeout);
  double ask(std::optional<SqlSession>& session, const std::string& statement,
             std::chrono::milliseconds timeout);

  const Connect connect_;
  const std::string canary_;
  std::string probe_;  // that runs; of the tuning, with its limit
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false, ended_ = true, answered_ = false;
  SqlSession* asking_ = nullptr;  // whose statement may be under way
  std::string trouble_;           // of the last call; empty: none
  LatencyWindow window_;
  std::thread thread_;
};

}  // namespace crossfade::pace

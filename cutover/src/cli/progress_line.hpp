// How far the work is, on stderr: one line that is rewritten on a terminal, else one line per ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "crossfade/cutover/migrator.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

// Rows per second, exponentially smoothed. Starts anew when the phase changes or the count goes back.
class RateMeter {
 public:
  using Clock = std::chrono::steady_clock;
  void add(const Progress& progress, Clock::time_point now);
  std::optional<double> rows_per_second() const { return rate_; }
  std::optional<double> seconds_left() const;

 private:
  Phase phase_ = Phase::planned;
  Clock::time_point at_;
  std::int64_t rows_ = -1, total_ = 0;
  std::optional<double> rate_;
};

// One at a time. While it lives, log lines clear the line before they are written, from any thread.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const Progress& progress, const RateMeter& meter);
  // Before anything else is written to the terminal.
  void clear();

 private:
  using Clock = RateMeter::Clock;
  static void before_log_line();
  void erase();
  void draw(const std::string& label, const std::string& tail, double share);

  const bool in_place_;
  const Style style_;
  std::mutex mutex_;  // over everything below: log lines come from other threads
  bool drawn_ = false;
  Clock::time_point not_before_;
};

}  // namespace crossfade::cli

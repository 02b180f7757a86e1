// How many rows the next range should have. Pure but for the durations that it is told.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "crossfade/shadow/comparator.hpp"

namespace crossfade {

// What the rows of a range say about the next one.
enum class Density {
  normal,
  unclean,   // keys were asked for, which one statement holds in memory
  dense,     // much to look at one by one: the ranges should not grow
  too_dense  // more than one range may hold: nothing was read, halve it
};

class RangeTempo {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RangeTempo(RangePace pace) : pace_(pace) {}

  // Rows of the next range of one of `workers`. `left`: of all that is open, as far as it is known; so that
  // all of them end together, and a slice at its end.
  std::int64_t rows(int workers, std::optional<double> left, Clock::duration slice_left) const;
  // Whether `rows` can be read by one statement in which as many processes share.
  bool fits_one_range(double rows, int processes) const;
  // How long `rows` take one worker; nullopt before anything was read.
  std::optional<Clock::duration> duration_of(double rows) const;

  // Before anything was read: the rate at which one worker will read. Taken back when a range is undone.
  // False when something was read, or small ranges were asked for.
  bool presume(double rows_per_second);

  void read(std::int64_t rows, double expected, Density density, Clock::duration taken);
  // A range of about `rows` was undone; 0: nobody knows. True when it was to have one row, too often in
  // succession.
  bool undone(double rows);
  void halve(double rows);

 private:
  RangePace pace_;
  double rows_per_second_ = 0;  // of the newest range that tells it
  std::optional<std::int64_t> presumed_from_;
};

}  // namespace crossfade

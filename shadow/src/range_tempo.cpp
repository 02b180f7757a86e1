#include "range_tempo.hpp"

#include <algorithm>

namespace crossfade {

namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

constexpr double kTarget = 1.0;  // seconds: as long as one snapshot is held
// From a first range of a few milliseconds to a full one in a few steps.
constexpr double kGrows = 16;
constexpr int kFailuresOfOneRow = 5;
// A shorter range is mostly the way to the server and back.
constexpr double kShortest = 0.05;
// Where every key may be returned: more rows would be too much memory for one aggregate.
constexpr std::int64_t kLargestUnclean = 500'000;

}  // namespace

std::int64_t RangeTempo::rows(int workers, std::optional<double> left, Clock::duration slice_left) const {
  auto rows = static_cast<double>(pace_.rows);
  if (rows_per_second_ == 0) return pace_.rows;
  const double shortest = rows_per_second_ * kShortest;
  // What one range can read to the end is read to the end.
  if (workers == 1 && left && *left <= rows) return pace_.rows;
  if (workers > 1 && left) rows = std::min(rows, std::max(*left / workers, shortest));
  const double seconds = std::max(duration<double>(slice_left).count(), kTarget / 10);
  rows = std::min(rows, rows_per_second_ * seconds);
  return std::max<std::int64_t>(static_cast<std::int64_t>(rows), 1);
}

bool RangeTempo::fits_one_range(double rows, int processes) const {
  if (rows_per_second_ == 0 || (pace_.most > 0 && rows > static_cast<double>(pace_.most))) return false;
  return rows <= rows_per_second_ * kTarget * processes;
}

std::optional<RangeTempo::Clock::duration> RangeTempo::duration_of(double rows) const {
  if (rows_per_second_ == 0) return std::nullopt;
  return std::chrono::duration_cast<Clock::duration>(duration<double>(rows / rows_per_second_));
}

bool RangeTempo::presume(double rows_per_second) {
  if (rows_per_second_ > 0 || pace_.rows < RangePace().rows || pace_.most > 0) return false;
  presumed_from_ = pace_.rows;
  rows_per_second_ = rows_per_second;
  pace_.rows = static_cast<std::int64_t>(rows_per_second * kTarget);
  return true;
}

void RangeTempo::read(std::int64_t rows, double expected, Density density, Clock::duration taken) {
  pace_.failures = 0;
  presumed_from_.reset();
  const double seconds = std::max(duration<double>(taken).count(), 0.0005);
  const auto read = static_cast<double>(rows);
  // A short last range says nothing about how many rows fit, a dense one nothing about others.
  const bool telling = read >= 0.8 * std::min(expected, static_cast<double>(pace_.rows)) && rows > 0;
  if (telling) rows_per_second_ = read / seconds;
  double next = static_cast<double>(pace_.rows);
  if (telling && density != Density::dense)
    next = std::clamp(rows_per_second_ * kTarget, next / kGrows, std::max(read, next) * kGrows);
  if (seconds > kTarget) next = std::min(next, read * kTarget / seconds);
  if (density != Density::normal) next = std::min(next, static_cast<double>(kLargestUnclean));
  pace_.rows = std::max<std::int64_t>(static_cast<std::int64_t>(next), 1);
  if (pace_.most > 0) pace_.rows = std::min(pace_.rows, pace_.most);
}

bool RangeTempo::undone(double rows) {
  if (presumed_from_) {
    pace_.rows = *presumed_from_;
    presumed_from_.reset();
    rows_per_second_ = 0;
    return false;
  }
  if (pace_.rows == 1 && ++pace_.failures >= kFailuresOfOneRow) {
    pace_.failures = 0;
    return true;
  }
  halve(rows);
  return false;
}

void RangeTempo::halve(double rows) {
  if (rows >= 1 && rows < static_cast<double>(pace_.rows)) pace_.rows = static_cast<std::int64_t>(rows);
  pace_.rows = std::max<std::int64_t>(pace_.rows / 2, 1);
}

}  // namespace crossfade

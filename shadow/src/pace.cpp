#include "crossfade/shadow/pace.hpp"

#include <algorithm>

namespace crossfade {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

void Pace::set_limit(std::int64_t rows_per_second, int workers) {
  const std::scoped_lock lock(mutex_);
  // A debt made at the old rate must not outlive it: a raised limit is in force at once.
  if (rows_per_second != rows_per_second_) paid_until_ = Clock::now();
  rows_per_second_ = rows_per_second;
  workers_ = std::max(workers, 1);
}

std::int64_t Pace::limit() const {
  const std::scoped_lock lock(mutex_);
  return rows_per_second_;
}

milliseconds Pace::book(std::int64_t rows) {
  const std::scoped_lock lock(mutex_, cache_mutex_);
  if (rows_per_second_ == 0 || rows <= 0) return milliseconds(0);
  if (const auto wait = cache_.take(id_, token_, rows, rows_per_second_)) return *wait;
  // All workers of this process share this object, so the whole rate is divided by time alone.
  const auto now = Clock::now();
  paid_until_ =
      std::max(paid_until_, now) + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                       static_cast<double>(rows) / static_cast<double>(rows_per_second_)));
  return std::chrono::ceil<milliseconds>(paid_until_ - now);
}

std::int64_t Pace::chunk_cap() const {
  const std::scoped_lock lock(mutex_);
  if (rows_per_second_ == 0) return 0;
  return std::max<std::int64_t>(1, rows_per_second_ / (5 * workers_));
}

}  // namespace crossfade

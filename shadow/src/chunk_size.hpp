// How many rows the next chunk takes: towards a target duration, down at once on lock or timeout.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace crossfade {

class ChunkSize {
 public:
  std::int64_t rows() const { return rows_; }

  // A chunk of `rows` took `time`. Grows by at most half, shrinks to what the target allows.
  void succeeded(std::int64_t rows, std::chrono::microseconds time, std::chrono::milliseconds target) {
    // A chunk cut short by a unit's bound says nothing about larger ones.
    if (rows < rows_ / 2) return;
    const double factor = static_cast<double>(std::chrono::microseconds(target).count()) /
                          static_cast<double>(std::max<std::int64_t>(time.count(), 1));
    set(static_cast<double>(rows_) * std::clamp(factor, 0.25, 1.5));
  }
  void failed() { set(static_cast<double>(rows_) / 2); }
  void cap(std::int64_t most) {
    if (most > 0) rows_ = std::min(rows_, most);
  }

 private:
  static constexpr std::int64_t kMost = 50'000;
  // Grows from one, too: 1.5 rounded down would stay there for ever.
  void set(double rows) {
    const auto wanted = static_cast<std::int64_t>(rows);
    rows_ = std::clamp<std::int64_t>(rows > static_cast<double>(rows_) ? std::max(wanted, rows_ + 1) : wanted,
                                     1, kMost);
  }
  std::int64_t rows_ = 1000;
};

}  // namespace crossfade

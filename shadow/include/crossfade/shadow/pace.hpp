// Pace: how fast the workers of this process may go. One token bucket shared through Redis; without it each
// worker takes its share of the rate.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/ids.hpp"

namespace crossfade {

class Pace {
 public:
  // cache_mutex guards `cache`, which is shared with everybody else in this process.
  Pace(CursorCache& cache, std::mutex& cache_mutex, MigrationId id, Token token)
      : cache_(cache), cache_mutex_(cache_mutex), id_(std::move(id)), token_(std::move(token)) {}

  // In force for the next chunk. rows_per_second 0: no limit. workers: those that share the rate.
  void set_limit(std::int64_t rows_per_second, int workers);
  std::int64_t limit() const;
  // Books `rows` that are about to be written or were; returns how long the caller must wait before its next
  // chunk.
  std::chrono::milliseconds book(std::int64_t rows);
  // The greatest chunk that keeps the rate smooth (a fifth of a second's worth); 0: any.
  std::int64_t chunk_cap() const;

 private:
  CursorCache& cache_;
  std::mutex& cache_mutex_;
  MigrationId id_;
  Token token_;
  mutable std::mutex mutex_;
  std::int64_t rows_per_second_ = 0;
  int workers_ = 1;
  // The local bucket: the moment at which everything booked so far is paid for.
  std::chrono::steady_clock::time_point paid_until_{};
};

}  // namespace crossfade

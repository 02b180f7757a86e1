#include "crossfade/shadow/sweep.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include "crossfade/shadow/units.hpp"
#include "sweep_worker.hpp"

namespace crossfade {

Sweep::Sweep(Migration migration, QualifiedName table, Token token, PassRow pass, Connect connect,
             CursorCache& cache)
    : migration_(std::move(migration)),
      table_(std::move(table)),
      token_(std::move(token)),
      pass_(std::move(pass)),
      connect_(std::move(connect)),
      cache_(cache),
      pace_(cache, cache_mutex_, migration_.row.id, token_) {}

Sweep::~Sweep() = default;

std::string Sweep::waiting_for() const {
  const std::scoped_lock lock(waiting_mutex_);
  return waiting_for_;
}

// Redis has one bucket for all processes. Without it each takes its part: rate divided by live workers.
void Sweep::set_pace(const Tuning& tuning) {
  const auto everybody = tuning.workers + threads_elsewhere_;
  bool one_bucket = true;
  if (threads_elsewhere_ > 0 && tuning.rows_per_second > 0) {
    const std::scoped_lock lock(cache_mutex_);
    one_bucket = cache_.state() == CacheState::connected;
  }
  if (one_bucket) return pace_.set_limit(tuning.rows_per_second, everybody);
  pace_.set_limit(std::max<std::int64_t>(tuning.rows_per_second * tuning.workers / everybody, 1),
                  tuning.workers);
}

SweepState Sweep::run(const Tuning& tuning, std::chrono::milliseconds slice, const std::atomic<bool>& stop) {
  {
    const std::scoped_lock lock(waiting_mutex_);
    waiting_for_.clear();
  }
  set_pace(tuning);
  const auto wanted = static_cast<std::size_t>(tuning.workers);
  while (workers_.size() < wanted) {
    workers_.push_back(std::make_unique<SweepWorker>(*this, static_cast<int>(workers_.size()) + 1));
  }
  // A worker that is tuned away leaves its unit at its watermark; the lease is free as soon as its backend is
  // gone.
  workers_.resize(wanted);

  const auto deadline = std::chrono::steady_clock::now() + slice;
  std::atomic<bool> halt{false};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  std::vector<SweepState> states(wanted, SweepState::working);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < wanted; ++i) {
      threads.emplace_back([&, i] {
        try {
          states[i] = workers_[i]->run(tuning, deadline, stop, halt);
        } catch (...) {
          halt = true;
          const std::scoped_lock lock(failure_mutex);
          if (!failure) failure = std::current_exception();
        }
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
  bool all_at_bounds = true;
  for (const auto state : states) {
    if (state == SweepState::held || state == SweepState::rewritten) return state;
    all_at_bounds = all_at_bounds && state == SweepState::at_bounds;
  }
  if (stop) return SweepState::stopped;
  return all_at_bounds ? SweepState::at_bounds : SweepState::working;
}

}  // namespace crossfade

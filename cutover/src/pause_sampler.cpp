#include "pause_sampler.hpp"

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/log.hpp"

namespace crossfade {

namespace {
constexpr std::chrono::milliseconds kBetweenSamples{4};

// Asked only for those that wait for the table at all. Blocked by us is also who queues behind us while we
// wait. waitstart is empty for the first instant of a wait.
constexpr const char* kWaiters =
    "SELECT l.pid, l.waitstart, extract(epoch FROM clock_timestamp() - l.waitstart) * 1000 FROM pg_locks l"
    " WHERE l.locktype = 'relation' AND l.relation = ANY ($1::oid[]) AND NOT l.granted AND l.pid <> "
    "$2::integer"
    " AND l.waitstart IS NOT NULL"
    " AND $2::integer = ANY (pg_blocking_pids(l.pid))";
}  // namespace

PauseSampler::PauseSampler(const Connect& connect, std::vector<Oid> tables) : tables_(oid_array(tables)) {
  try {
    session_.emplace(connect("observer"));
    session_->set_statement_timeout(std::chrono::milliseconds(1000));
  } catch (const Error& failure) {
    log::write(log::Level::info, "pause_not_sampled", {{"why", failure.message()}});
    return;
  }
  thread_ = std::thread([this] { loop(); });
}

PauseSampler::~PauseSampler() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
    sampling_ = false;
  }
  changed_.notify_all();
  thread_.join();
}

void PauseSampler::begin(int our_backend_pid) {
  began_ = std::chrono::steady_clock::now();
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    waits_.clear();
    our_pid_ = our_backend_pid;
    sampling_ = true;
  }
  changed_.notify_all();
}

AttemptCost PauseSampler::end() {
  AttemptCost cost;
  cost.lock_wait_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began_).count();
  std::unique_lock lock(mutex_);
  sampling_ = false;
  changed_.wait(lock, [this] { return idle_; });
  for (const auto& [who, milliseconds] : waits_) {
    ++cost.sessions;
    cost.longest_ms = std::max(cost.longest_ms, milliseconds);
    cost.total_ms += milliseconds;
  }
  return cost;
}

void PauseSampler::sample() {
  const auto found = session_->exec_prepared(kWaiters, {tables_, std::to_string(our_pid_)});
  const std::scoped_lock lock(mutex_);
  for (const auto& row : found.rows) {
    auto& longest = waits_[{static_cast<int>(int_of(row[0])), text_of(row[1])}];
    longest = std::max(longest, double_of(row[2]));
  }
}

void PauseSampler::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return sampling_ || ending_; });
    if (ending_) return;
    idle_ = false;
    while (sampling_) {
      lock.unlock();
      bool worked = true;
      try {
        sample();
      } catch (const std::exception& failure) {
        log::write(log::Level::info, "pause_not_sampled", {{"why", failure.what()}});
        worked = false;
      }
      lock.lock();
      if (!worked) {
        // A session that broke measures nothing any more; the attempts go on without it.
        idle_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return ending_; });
        return;
      }
      changed_.wait_for(lock, kBetweenSamples, [this] { return !sampling_; });
    }
    idle_ = true;
    changed_.notify_all();
  }
}

}  // namespace crossfade

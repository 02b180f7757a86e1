#include "latency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "crossfade/core/error.hpp"

namespace crossfade::pace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

namespace {

constexpr milliseconds kEvery{100}, kFirstAnswer{3000};
constexpr std::size_t kMostSamples = 100, kFewestSamples = 10;
constexpr std::chrono::seconds kOldest{30}, kLongEnough{1};

// Longer than any latency that would be told apart, shorter than would hold up the canary's own successors.
milliseconds timeout_of(const Tuning& tuning) {
  return std::clamp<milliseconds>(4 * tuning.probe_p99, milliseconds(1000), milliseconds(120'000));
}

}  // namespace

void LatencyWindow::add(double took_ms, Time now) {
  samples_.emplace_back(took_ms, now);
  if (samples_.size() > kMostSamples) samples_.pop_front();
}

std::optional<double> LatencyWindow::p99(Time now) const {
  std::vector<double> values;
  std::optional<Time> oldest;
  for (const auto& [value, at] : samples_) {
    if (now - at > kOldest) continue;
    if (!oldest) oldest = at;
    values.push_back(value);
  }
  // A probe that is blocked comes back once in its timeout: two of those are enough.
  const bool slow = values.size() > 1 && now - *oldest >= kLongEnough;
  if (values.size() < kFewestSamples && !slow) return std::nullopt;
  const auto rank = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(values.size()))) - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(rank));
  return values[rank];
}

ProbeLatency::ProbeLatency(Connect connect, std::string canary)
    : connect_(std::move(connect)), canary_(std::move(canary)) {}

ProbeLatency::~ProbeLatency() { stop(); }

void ProbeLatency::stop() {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    changed_.notify_all();
    // Again and again: a cancel that comes before its statement ends nothing.
    while (!changed_.wait_for(lock, kEvery, [this] { return ended_; })) {
      if (asking_ != nullptr) asking_->cancel();
    }
  }
  if (thread_.joinable()) thread_.join();
  ending_ = answered_ = false;
  trouble_.clear();
  window_.clear();
}

void ProbeLatency::rate_lowered() {
  const std::scoped_lock lock(mutex_);
  window_.clear();
}

Readings ProbeLatency::read(SqlSession&, const Tuning& tuning, Time now) {
  if (tuning.probe.empty()) {
    if (!probe_.empty()) stop();
    probe_.clear();
    return {};
  }
  const auto wanted = format_duration(tuning.probe_p99) + " " + tuning.probe;
  if (wanted != probe_) {
    stop();
    probe_ = wanted;
    ended_ = false;
    thread_ = std::thread([this, timeout = timeout_of(tuning),
                           statement = tuning.probe == Tuning::kBuiltInProbe ? canary_ : tuning.probe] {
      loop(statement, timeout);
    });
  }
  std::unique_lock lock(mutex_);
  // The other signals wait with it.
  changed_.wait_for(lock, kFirstAnswer, [this] { return answered_; });
  if (!answered_ || !trouble_.empty()) {
    return {{name(), Response::slows, std::nullopt,
             answered_ ? "the probe fails: " + trouble_ : std::string("the probe does not answer"), ""}};
  }
  return judge(window_.p99(now), tuning);
}

Readings ProbeLatency::judge(std::optional<double> p99, const Tuning& tuning) {
  const auto most = static_cast<double>(tuning.probe_p99.count());
  if (!p99)
    return {{"probe", Response::slows, kUndecided, "probe not measured yet", milliseconds_text(most)}};
  return {{"probe", Response::slows, *p99 / most, "probe p99 " + milliseconds_text(*p99),
           milliseconds_text(most)}};
}

// A call that ran into its timeout took that long at least; every other error means that nothing was
// measured.
double ProbeLatency::ask(std::optional<SqlSession>& session, const std::string& statement,
                         milliseconds timeout) {
  if (!session) {
    session.emplace(connect_("probe"));
    session->set_statement_timeout(timeout);
    session->exec("SET default_transaction_read_only = on");
  }
  const auto asking = [this](SqlSession* who) {
    const std::scoped_lock lock(mutex_);
    asking_ = who;
  };
  asking(&*session);
  const auto began = Clock::now();
  try {
    session->exec_prepared(statement);
  } catch (const Error& error) {
    asking(nullptr);
    if (!error.is_query_canceled()) throw;
  }
  asking(nullptr);
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

void ProbeLatency::loop(const std::string& statement, milliseconds timeout) {
  std::optional<SqlSession> session;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    std::optional<double> took;
    std::string trouble;
    try {
      took = ask(session, statement, timeout);
    } catch (const std::exception& failure) {
      trouble = failure.what();
      if (session && !session->is_open()) session.reset();
    }
    lock.lock();
    trouble_ = trouble;
    if (took) window_.add(*took, Clock::now());
    answered_ = true;
    changed_.notify_all();
    // One that fails is not tried ten times a second.
    changed_.wait_for(lock, took ? kEvery : 10 * kEvery, [this] { return ending_; });
  }
  ended_ = true;
  changed_.notify_all();
}

}  // namespace crossfade::pace

#include "controller.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace crossfade::pace {

namespace {

constexpr std::chrono::seconds kSettles{2}, kGrows{1};
constexpr double kLess = 0.67, kAfterWait = 0.5, kMore = 0.05;
// The slowest that it goes without stopping: a signal that has nothing to do with the sweep must not end it.
constexpr double kFloor = 10;
// Where nothing was measured yet.
constexpr double kUsual = 1000;
// How long a wait may be whose work nobody knows, before it is called starvation.
constexpr std::chrono::seconds kUnknownWork{3600};

std::string broken(const Reading& reading) {
  if (reading.limit.empty()) return reading.value;
  return fmt::format("{} {} {}", reading.value, reading.relation, reading.limit);
}

}  // namespace

double Controller::usual_rate(const Moment& moment) const {
  if (moment.fixed_limit > 0) return static_cast<double>(moment.fixed_limit);
  return fastest_ > 0 ? fastest_ : kUsual;
}

// What cannot be read comes first: the others may be fine, and it is what an operator has to mend.
const Reading* Controller::reason_to_wait(const std::vector<Reading>& readings) const {
  const Reading* worst = nullptr;
  for (const auto& reading : readings) {
    if (!reading.pressure) return &reading;
    if (reading.response != Response::waits) continue;
    if (*reading.pressure <= (waiting_ ? kClear : 1)) continue;
    if (worst == nullptr || *reading.pressure > *worst->pressure) worst = &reading;
  }
  return worst;
}

PaceOrder Controller::wait(const Moment& moment, const Reading& reading) {
  if (!waiting_) {
    waiting_since_ = moment.now;
    const double before = rate_ ? *rate_ : std::max(moment.rows_per_second, fastest_ * kAfterWait);
    rate_ = std::max((before > 0 ? before : usual_rate(moment)) * kAfterWait, kFloor);
    waiting_ = lowered_ = true;
  }
  signal_ = reading.signal;
  cause_ = reading.pressure && *reading.pressure <= 1
               ? fmt::format("{}, waiting for {:.0f} % of {}", reading.value, 100 * kClear, reading.limit)
               : broken(reading);
  PaceOrder order;
  order.state = PaceState::paused;
  order.signal = signal_;
  order.reason = cause_;
  const auto lasted = std::chrono::duration_cast<std::chrono::seconds>(moment.now - waiting_since_);
  const bool known = moment.rows_left && fastest_ > 0;
  const auto work = known ? std::chrono::seconds(static_cast<std::int64_t>(
                                std::ceil(static_cast<double>(*moment.rows_left) / fastest_)))
                          : kUnknownWork;
  if (lasted.count() > 0 && lasted > work) order.starved = lasted;
  changed_ = moment.now;
  return order;
}

void Controller::slow_down(const Moment& moment) {
  if (rate_ && moment.now - changed_ < kSettles) return;
  double from = rate_ ? *rate_ : usual_rate(moment);
  // A limit above what is done slows nothing.
  if (moment.rows_per_second > 0) from = std::min(from, moment.rows_per_second);
  const double next = std::max(from * kLess, kFloor);
  lowered_ = !rate_ || next < *rate_;
  rate_ = next;
  changed_ = moment.now;
}

void Controller::speed_up(const Moment& moment) {
  if (!rate_ || moment.now - changed_ < kGrows) return;
  const double usual = usual_rate(moment);
  *rate_ += std::max(usual * kMore, 1.0);
  changed_ = moment.now;
  if (*rate_ >= usual) rate_.reset();
}

PaceOrder Controller::decide(const Moment& moment, const std::vector<Reading>& readings) {
  lowered_ = false;
  fastest_ = std::max(fastest_, moment.rows_per_second);
  if (const auto* reading = reason_to_wait(readings)) return wait(moment, *reading);
  if (waiting_) changed_ = moment.now;
  waiting_ = false;
  const Reading* worst = nullptr;
  for (const auto& reading : readings) {
    if (reading.response == Response::slows && (worst == nullptr || *reading.pressure > *worst->pressure))
      worst = &reading;
  }
  if (worst != nullptr && *worst->pressure > 1) {
    signal_ = worst->signal;
    cause_ = broken(*worst);
    slow_down(moment);
  } else if (worst == nullptr || *worst->pressure < kClear) {
    speed_up(moment);
  }
  PaceOrder order;
  if (!rate_) {
    signal_.clear();
    cause_.clear();
    return order;
  }
  order.state = PaceState::throttled;
  order.limit_rows_per_second = static_cast<std::int64_t>(*rate_);
  order.signal = signal_;
  order.reason = worst != nullptr && *worst->pressure > 1 ? cause_ : "recovering from " + cause_;
  return order;
}

}  // namespace crossfade::pace

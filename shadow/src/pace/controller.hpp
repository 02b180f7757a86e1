// The controller: from what the signals say to how fast the sweep may go. Pure: it reads no clock and no
// server.
//
// Additive increase, multiplicative decrease. A signal that slows and is over its limit takes a third of the
// rate, at most every two seconds, so that the effect of one step is seen before the next. When all are
// clear the rate grows by a twentieth of the fastest that was seen, every second, until it is past that; then
// there is no limit any more. A signal that waits stops the sweep, which goes on at half the rate once the
// signal is clear.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/shadow/pace_order.hpp"
#include "reading.hpp"

namespace crossfade::pace {

using Time = std::chrono::steady_clock::time_point;

struct Moment {
  Time now;
  double rows_per_second = 0;             // of the sweep, as it was over the last seconds
  std::int64_t fixed_limit = 0;           // rows_per_second of the tuning; 0: none
  std::optional<std::int64_t> rows_left;  // as far as anybody knows
};

class Controller {
 public:
  PaceOrder decide(const Moment& moment, const std::vector<Reading>& readings);
  // The last decision lowered the rate: what was measured before it says nothing about the new one.
  bool lowered() const { return lowered_; }

 private:
  const Reading* reason_to_wait(const std::vector<Reading>& readings) const;
  PaceOrder wait(const Moment& moment, const Reading& reading);
  void slow_down(const Moment& moment);
  void speed_up(const Moment& moment);
  double usual_rate(const Moment& moment) const;

  std::optional<double> rate_;  // absent: no limit
  double fastest_ = 0;          // rows per second, the most that was seen
  bool waiting_ = false, lowered_ = false;
  Time waiting_since_{}, changed_{};
  std::string signal_, cause_;  // of the limit in force
};

}  // namespace crossfade::pace

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "crossfade/shadow/pace_order.hpp"

namespace crossfade {

std::string_view to_text(PaceState state) {
  switch (state) {
    case PaceState::running:
      return "running";
    case PaceState::throttled:
      return "throttled";
    case PaceState::paused:
      return "paused";
    case PaceState::idle:
      return "idle";
  }
  std::abort();
}

std::int64_t PaceOrder::limit(const Tuning& tuning) const {
  if (limit_rows_per_second == 0) return tuning.rows_per_second;
  if (tuning.rows_per_second == 0) return limit_rows_per_second;
  return std::min(limit_rows_per_second, tuning.rows_per_second);
}

std::string PaceOrder::note() const {
  std::string text;
  if (state == PaceState::paused) text = "paused: " + reason;
  if (state == PaceState::throttled)
    text = fmt::format("throttled to {} rows/s: {}", limit_rows_per_second, reason);
  if (starved) text += fmt::format(" (starved for {} s)", starved->count());
  return text;
}

PaceOrder read_pace_order(SqlSession& session, const MigrationId& leader, const Token& token) {
  const auto found = session.exec_prepared(
      "SELECT state, limit_rows_per_second, signal, reason, starved_seconds,"
      " extract(epoch FROM clock_timestamp() - at) FROM crossfade.pace WHERE migration_id = $1::uuid"
      " AND token = $2::uuid",
      {leader.text, token.text});
  PaceOrder order;
  order.state = PaceState::paused;
  order.signal = "controller";
  if (found.empty()) {
    order.reason = "the runner has not said yet how fast the sweep may go";
    return order;
  }
  const auto& row = found[0];
  if (const auto age = double_of(row[5]); age > std::chrono::duration<double>(kOrderLives).count()) {
    order.reason = fmt::format("the runner has not said for {:.0f} s how fast the sweep may go", age);
    return order;
  }
  for (const auto state : {PaceState::running, PaceState::throttled, PaceState::paused, PaceState::idle}) {
    if (to_text(state) == text_of(row[0])) order.state = state;
  }
  order.limit_rows_per_second = int_of(row[1]);
  order.signal = text_of(row[2]);
  order.reason = text_of(row[3]);
  if (row[4]) order.starved = std::chrono::seconds(int_of(row[4]));
  return order;
}

}  // namespace crossfade

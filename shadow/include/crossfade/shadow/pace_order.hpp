// What the one pace controller of a migration says to everybody who sweeps for it: a row of crossfade.pace,
// read again before each slice.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"

namespace crossfade {

enum class PaceState {
  running,    // nothing holds the sweep back but rows_per_second
  throttled,  // a signal is or was over its limit: limit_rows_per_second is in force
  paused,     // nothing may be written
  idle,       // no sweep is at work
};
std::string_view to_text(PaceState state);

struct PaceOrder {
  PaceState state = PaceState::running;
  std::int64_t limit_rows_per_second = 0;  // the controller's; 0: none
  std::string signal;                      // the one that decided; empty while running
  std::string reason;                      // "replay lag 14 s > 10 s"
  // Of a pause that has lasted for longer than the work that is left would take: how long it has lasted.
  std::optional<std::chrono::seconds> starved;

  // The rate that all workers together may write at: the lesser of both, 0 for none.
  std::int64_t limit(const Tuning& tuning) const;
  // For a progress line; empty while running.
  std::string note() const;
};

// An order that is older than this comes from a controller that nobody hears any more, and holds.
inline constexpr std::chrono::seconds kOrderLives{10};

// For a process that does not run the controller. token: the runner's. Without a fresh order of that runner
// it is paused, and says so: the rate of a controller that is gone protects nobody.
PaceOrder read_pace_order(SqlSession& session, const MigrationId& leader, const Token& token);

}  // namespace crossfade

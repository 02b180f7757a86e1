#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

// A chunk lives at most a quarter of deadlock_timeout; below this value that is too short for useful work.
void deadlock_timeout_short(const Context& context) {
  constexpr std::int64_t kShortest = 400;  // milliseconds
  const auto found = context.session.exec("SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'");
  const auto milliseconds = int_of(found.one("deadlock_timeout")[0]);
  if (milliseconds >= kShortest) return;
  context.warn(
      "deadlock_timeout_short", "deadlock_timeout",
      fmt::format(
          "deadlock_timeout is {} ms: a chunk of the sweep may live only a quarter of that, so that it "
          "will be small and slow.",
          milliseconds),
      "Set deadlock_timeout to 1s, its default.");
}

}  // namespace crossfade::checks

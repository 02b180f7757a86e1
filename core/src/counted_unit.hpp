// A count with a unit, as the spec and `tune` have them: 200ms, 64kB.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace crossfade {

struct CountedUnit {
  std::string_view suffix;
  std::int64_t size = 1;  // in the smallest of the units
};

// Digits and one of `units`, without a space; in the smallest of them. nullopt when malformed or too large.
std::optional<std::int64_t> parse_counted(std::string_view text, std::span<const CountedUnit> units);

// In the largest unit that is exact. units: the largest first, the smallest last.
std::string format_counted(std::int64_t value, std::span<const CountedUnit> units);

}  // namespace crossfade

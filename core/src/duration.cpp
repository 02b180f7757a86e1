#include <array>

#include "counted_unit.hpp"
#include "crossfade/core/tuning.hpp"

namespace crossfade {

namespace {

constexpr std::array<CountedUnit, 5> kUnits{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"min", 60'000}, {"s", 1'000}, {"ms", 1}}};

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto count = parse_counted(text, kUnits);
  if (!count) return std::nullopt;
  return std::chrono::milliseconds(*count);
}

std::string format_duration(std::chrono::milliseconds duration) {
  return format_counted(duration.count(), kUnits);
}

}  // namespace crossfade

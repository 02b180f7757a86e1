#include <array>
#include <charconv>
#include <cstdint>
#include <string>

#include "crossfade/core/tuning.hpp"

namespace crossfade {

namespace {

struct Unit {
  std::string_view suffix;
  std::int64_t milliseconds;
};

constexpr std::array<Unit, 5> kUnits{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"min", 60'000}, {"s", 1'000}, {"ms", 1}}};

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  // from_chars would take a minus sign.
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, count);
  if (failure != std::errc{}) return std::nullopt;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& unit : kUnits) {
    if (unit.suffix != suffix) continue;
    if (count > INT64_MAX / unit.milliseconds) return std::nullopt;
    return std::chrono::milliseconds(count * unit.milliseconds);
  }
  return std::nullopt;
}

std::string format_duration(std::chrono::milliseconds duration) {
  const std::int64_t count = duration.count();
  if (count == 0) return "0ms";
  for (const Unit& unit : kUnits) {
    if (count % unit.milliseconds == 0)
      return std::to_string(count / unit.milliseconds) + std::string(unit.suffix);
  }
  return std::to_string(count) + "ms";
}

}  // namespace crossfade

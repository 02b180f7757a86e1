#include "counted_unit.hpp"

#include <charconv>

namespace crossfade {

std::optional<std::int64_t> parse_counted(std::string_view text, std::span<const CountedUnit> units) {
  // from_chars would take a minus sign.
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, count);
  if (failure != std::errc{}) return std::nullopt;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  for (const auto& unit : units) {
    if (unit.suffix != suffix) continue;
    if (count > INT64_MAX / unit.size) return std::nullopt;
    return count * unit.size;
  }
  return std::nullopt;
}

std::string format_counted(std::int64_t value, std::span<const CountedUnit> units) {
  for (const auto& unit : units) {
    if (value != 0 && value % unit.size == 0)
      return std::to_string(value / unit.size) + std::string(unit.suffix);
  }
  return std::to_string(value) + std::string(units.back().suffix);
}

}  // namespace crossfade

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

#include "crossfade/core/tuning.hpp"

namespace crossfade {

namespace {

struct Unit {
  std::string_view suffix;
  std::int64_t bytes;
};

constexpr std::int64_t kStep = 1024;
constexpr std::array<Unit, 5> kUnits{{{"TB", kStep* kStep* kStep* kStep},
                                      {"GB", kStep* kStep* kStep},
                                      {"MB", kStep* kStep},
                                      {"kB", kStep},
                                      {"B", 1}}};

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  // from_chars would take a minus sign.
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, count);
  if (failure != std::errc{}) return std::nullopt;
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& unit : kUnits) {
    if (unit.suffix != suffix) continue;
    if (count > INT64_MAX / unit.bytes) return std::nullopt;
    return count * unit.bytes;
  }
  return std::nullopt;
}

std::string format_bytes(std::int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0)
      return std::to_string(bytes / unit.bytes) + std::string(unit.suffix);
  }
  return std::to_string(bytes) + "B";
}

}  // namespace crossfade

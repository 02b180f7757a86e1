#include "reading.hpp"

#include <fmt/format.h>

#include <array>

namespace crossfade::pace {

std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string milliseconds_text(double milliseconds) {
  return milliseconds < 10 ? fmt::format("{:.2g} ms", milliseconds) : fmt::format("{:.0f} ms", milliseconds);
}

std::string size_text(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return bytes < 10 && unit > 0 ? fmt::format("{:.1f} {}", bytes, kUnits[unit])
                                : fmt::format("{:.0f} {}", bytes, kUnits[unit]);
}

}  // namespace crossfade::pace

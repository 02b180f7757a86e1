#include "crossfade/core/ids.hpp"

namespace crossfade {

std::string MigrationId::short_hex() const {
  constexpr std::size_t kDigits = 12;
  std::string digits;
  for (const char c : text) {
    if (digits.size() == kDigits) break;
    if (c != '-') digits += c;
  }
  return digits;
}

}  // namespace crossfade

#include "crossfade/core/printable.hpp"

#include <fmt/format.h>

namespace crossfade {

namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// ASCII control characters, and in UTF-8 those of 0x80 to 0x9F, which some terminals obey.
std::size_t control_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x20 || first == 0x7F) return 1;
  return first == 0xC2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xA0 ? 2 : 0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t longest) {
  std::size_t length = text.size();
  if (length > longest) {
    for (length = longest; length > 0 && continues_character(text[length]); --length) {
    }
  }
  const bool cut = length < text.size();
  std::string out;
  for (std::string_view rest = text.substr(0, length); !rest.empty();) {
    const std::size_t control = control_length(rest);
    if (control == 0) {
      out += rest.front();
      rest.remove_prefix(1);
    } else {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(rest[control - 1]));
      rest.remove_prefix(control);
    }
  }
  return cut ? out + "…" : out;
}

}  // namespace crossfade

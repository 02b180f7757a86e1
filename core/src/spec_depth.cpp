#include "spec_depth.hpp"

#include <algorithm>

namespace crossfade {

namespace {

// The length of the string that begins here, in any of TOML's four forms; the rest of the text when it never
// ends.
std::size_t string_length(std::string_view text) {
  const char quote = text.front();
  const bool is_long = text.size() >= 3 && text[1] == quote && text[2] == quote;
  const std::size_t fence = is_long ? 3 : 1;
  for (std::size_t at = fence; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (!is_long && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else if (is_long && text.substr(at, 3) == text.substr(0, 3)) {
      // Up to two quotes may precede the closing three.
      std::size_t end = at + 3;
      while (end < text.size() && end < at + 5 && text[end] == quote) ++end;
      return end;
    }
  }
  return text.size();
}

}  // namespace

std::size_t count_key_dots(std::string_view toml) {
  std::size_t dots = 0;
  while (!toml.empty()) {
    const char c = toml.front();
    std::size_t length = 1;
    if (c == '"' || c == '\'') {
      length = string_length(toml);
    } else if (c == '#') {
      length = std::min(toml.find('\n'), toml.size());
    } else if (c == '.') {
      ++dots;
    }
    toml.remove_prefix(length);
  }
  return dots;
}

}  // namespace crossfade

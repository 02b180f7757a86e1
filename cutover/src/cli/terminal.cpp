#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include <fmt/format.h>

namespace crossfade::cli {

namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

bool is_terminal(int descriptor) {
  if (isatty(descriptor) == 0) return false;
  const char* kind = std::getenv("TERM");
  return kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  if (isatty(descriptor) == 0 || ioctl(descriptor, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string visible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // 0xC2 0x80..0x9F in UTF-8: control characters that some terminals obey.
    const bool is_c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[++i]));
    } else if (c != '\n' && (c < 0x20 || c == 0x7F)) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string one_line(std::string_view text, std::size_t most) {
  std::string line = visible(text);
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  if (display_width(line) <= most) return line;
  std::size_t characters = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (starts_code_point(line[i]) && ++characters == most) return line.substr(0, i) + "…";
  }
  return line;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += starts_code_point(c) ? 1 : 0;
  return width;
}

std::string grouped(long long number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string clock_time(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(seconds >= 0) || seconds > kLongest) return "?";
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string short_time(std::string_view time) {
  std::string text = one_line(time);
  const std::size_t point = text.find('.');
  if (point == std::string::npos) return text;
  return text.erase(point, text.find_first_not_of("0123456789", point + 1) - point);
}

std::string byte_size(long long bytes) {
  constexpr std::array<std::string_view, 4> kUnits{"kB", "MB", "GB", "TB"};
  if (bytes < 10 * 1024) return fmt::format("{} bytes", bytes);
  auto size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (size >= 10 * 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.0f} {}", size, kUnits[unit]);
}

Style::Style(int descriptor) : coloured_(is_terminal(descriptor) && !is_set("NO_COLOR")) {}

std::string Style::wrap(std::string_view code, std::string_view text) const {
  if (!coloured_ || text.empty()) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

}  // namespace crossfade::cli

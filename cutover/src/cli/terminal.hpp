// What may be done to a stream: colour, rewriting a line, its width; and text that may be shown on it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace crossfade::cli {

// A terminal that understands control sequences: not TERM=dumb.
bool is_terminal(int descriptor);
// 0 when it is no terminal or does not tell.
std::size_t terminal_columns(int descriptor);

// Text from elsewhere (the database, an argument) with control characters escaped; line feeds stay.
std::string visible(std::string_view text);
// In one line: line feeds are blanks, the end is cut off with "…" when it has more characters than that.
std::string one_line(std::string_view text, std::size_t most = 200);
// Code points; good enough for aligning names, numbers and sentences.
std::size_t display_width(std::string_view text);

// 1234567 as 1,234,567.
std::string grouped(long long number);
// 75 as 1:15, 3700 as 1:01:40.
std::string clock_time(double seconds);
// A time as PostgreSQL writes it, without the fraction of the second.
std::string short_time(std::string_view time);
// In bytes, kB, MB, GB or TB, as PostgreSQL's pg_size_pretty counts them.
std::string byte_size(long long bytes);

// Colours and weights; empty ones unless the stream is a terminal and NO_COLOR is unset or empty.
class Style {
 public:
  explicit Style(int descriptor);
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string yellow(std::string_view text) const { return wrap("33", text); }
  std::string cyan(std::string_view text) const { return wrap("36", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool coloured_;
};

}  // namespace crossfade::cli

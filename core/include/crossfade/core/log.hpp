// Log lines are `event=… key=value`, for machines first; no row value at any level.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace crossfade::log {

enum class Level { error, warn, info, debug };

struct Options {
  Level level = Level::warn;
  std::string file;  // empty: stderr
};
// A file is appended to. Throws usage_error when it cannot be opened; the log then stays as it was.
void configure(const Options& options);

using Field = std::pair<std::string_view, std::string>;
// Values with blanks, quotes or control characters are quoted and escaped.
void write(Level level, std::string_view event, std::initializer_list<Field> fields = {});

// Called with every line after it was formatted, before it is written: the progress line clears itself here.
// Runs under the lock of the log: it must not log, nor take a lock that a logging thread may hold.
using Hook = void (*)();
void set_before_write_hook(Hook hook);

}  // namespace crossfade::log

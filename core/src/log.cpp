#include "crossfade/core/log.hpp"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "crossfade/core/error.hpp"

namespace crossfade::log {

namespace {

using Logger = std::shared_ptr<spdlog::logger>;

Logger make_logger(const std::string& file) {
  spdlog::sink_ptr sink;
  if (file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
  } else {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(file);
    } catch (const spdlog::spdlog_ex& failure) {
      throw Error(ErrorCode::usage_error,
                  fmt::format("The log file \"{}\" cannot be opened: {}.", file, failure.what()),
                  "Name a file in a folder that exists and may be written.", file);
    }
  }
  auto logger = std::make_shared<spdlog::logger>("crossfade", std::move(sink));
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %v",
                                                                    spdlog::pattern_time_type::utc));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

std::atomic<Level> threshold{Level::warn};

// One lock over hook and write: no line of another thread comes between the cleared progress line and this
// one.
std::mutex mutex;
Logger logger;           // guarded by mutex; made at the first line
Hook before_write = {};  // guarded by mutex

std::string_view level_text(Level level) {
  switch (level) {
    case Level::error:
      return "error";
    case Level::warn:
      return "warn";
    case Level::info:
      return "info";
    case Level::debug:
      return "debug";
  }
  std::abort();
}

spdlog::level::level_enum sink_level(Level level) {
  switch (level) {
    case Level::error:
      return spdlog::level::err;
    case Level::warn:
      return spdlog::level::warn;
    case Level::info:
      return spdlog::level::info;
    case Level::debug:
      return spdlog::level::debug;
  }
  std::abort();
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto c = static_cast<unsigned char>(value[i]);
    // 0xC2 0x80..0x9F in UTF-8: control characters that some terminals obey.
    const bool is_c1 = c == 0xC2 && i + 1 < value.size() && static_cast<unsigned char>(value[i + 1]) < 0xA0;
    if (c == ' ' || c == '"' || is_control(c) || is_c1) return true;
  }
  return false;
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto c = static_cast<unsigned char>(value[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += value[i];
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (is_control(c)) {
      out += fmt::format("\\u{:04x}", c);
    } else if (c == 0xC2 && i + 1 < value.size() && static_cast<unsigned char>(value[i + 1]) < 0xA0) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(value[++i]));
    } else {
      out += value[i];
    }
  }
  out += '"';
}

}  // namespace

void configure(const Options& options) {
  Logger made = make_logger(options.file);
  const std::lock_guard lock(mutex);
  logger = std::move(made);
  threshold = options.level;
}

void write(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (static_cast<int>(level) > static_cast<int>(threshold.load(std::memory_order_relaxed))) return;
  std::string line = fmt::format("{} event={}", level_text(level), event);
  for (const auto& [name, value] : fields) {
    line += fmt::format(" {}=", name);
    if (needs_quotes(value)) {
      append_quoted(line, value);
    } else {
      line += value;
    }
  }
  const std::lock_guard lock(mutex);
  if (!logger) logger = make_logger({});
  if (before_write != nullptr) before_write();
  logger->log(sink_level(level), spdlog::string_view_t(line));
}

void set_before_write_hook(Hook hook) {
  const std::lock_guard lock(mutex);
  before_write = hook;
}

}  // namespace crossfade::log

#include "crossfade/core/failpoint.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/printable.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"

namespace crossfade::failpoint {

namespace {

enum class Action { abort, error, sleep, wait };

struct Point {
  std::string name;
  Action action = Action::abort;
  std::string argument;  // SQLSTATE, or the file waited for
  std::chrono::milliseconds pause{0};
  std::int64_t only_at = 0;  // fires at this hit alone; 0: at every one
  std::int64_t hits = 0;
};

std::atomic<bool> armed{false};
std::mutex mutex;
std::vector<Point> points;  // guarded by mutex

constexpr auto kPlainNames = std::to_array<std::string_view>({
    "archive.chunk",     "archive.replay",    "catch_up.before",   "catch_up.opened",
    "chunk.after",       "chunk.before",      "chunk.bounded",     "compare.ended",
    "compare.flushed",   "compare.range",     "dry_run.flushed",   "forerunner.step",
    "lease.acquired",    "leftover.dropped",  "leftover.dropping", "owed.counted",
    "owed.dropped",      "owed.dropping",     "redrive.opened",    "redrive.opening",
    "repair.after",      "replay.ended",      "rewrite.followed",  "rewrite.planned",
    "settle.after",      "settle.before",     "split.after",       "split.before",
    "start.before",      "start.registered",  "sweep.slice",       "twin.built",
    "twin.intent",       "units.planned",     "way_back.prepared", "way_back.proof",
    "way_back.unproved", "window.opened",
});

std::vector<std::string> registered_names() {
  std::vector<std::string> names(kPlainNames.begin(), kPlainNames.end());
  for (const Phase from : kAllPhases) {
    for (const std::optional<Phase> to : {next_phase(from), rollback_phase(from)}) {
      if (!to) continue;
      // sent: COMMIT was answered, memory was not updated.
      for (const std::string_view moment : {"before", "locked", "sent"}) {
        names.push_back(fmt::format("{}_to_{}.{}", to_text(from), to_text(*to), moment));
      }
    }
  }
  std::ranges::sort(names);
  return names;
}

bool is_registered(std::string_view name) { return std::ranges::binary_search(all(), name); }

[[noreturn]] void fail(std::string_view setting, std::string_view why, std::string hint) {
  throw Error(ErrorCode::failpoint_syntax, fmt::format("The failpoint '{}' {}.", printable(setting), why),
              std::move(hint), std::string(setting));
}

constexpr std::string_view kActions =
    "Actions are abort, error:SQLSTATE, sleep:MS and wait:FILE; abort and error may end in @N.";

std::optional<std::int64_t> number(std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc{} || rest != end || value < low || value > high) return std::nullopt;
  return value;
}

bool is_sqlstate(std::string_view text) {
  return text.size() == 5 &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); });
}

// Cuts "@N" off an action; 0 when there is none.
std::int64_t take_only_at(std::string_view setting, std::string_view& action) {
  const std::size_t at = action.rfind('@');
  if (at == std::string_view::npos) return 0;
  const auto count = number(action.substr(at + 1), 1, INT64_MAX);
  if (!count) fail(setting, "has no number of a hit after @", std::string(kActions));
  action = action.substr(0, at);
  return *count;
}

void require_registered(std::string_view setting, std::string_view name) {
  if (is_registered(name)) return;
  std::vector<std::string_view> known(all().begin(), all().end());
  const auto suggestion = nearest(name, known);
  fail(setting, fmt::format("is none of {}", fmt::join(known, ", ")),
       suggestion ? fmt::format("Did you mean \"{}\"?", *suggestion) : std::string());
}

Point parse_point(std::string_view setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string_view::npos) fail(setting, "has no action", std::string(kActions));
  Point point;
  point.name = setting.substr(0, equals);
  require_registered(setting, point.name);

  std::string_view action = setting.substr(equals + 1);
  constexpr std::string_view kWait = "wait:", kSleep = "sleep:", kError = "error:";
  if (action.starts_with(kWait) && action.size() > kWait.size()) {
    point.action = Action::wait;
    point.argument = action.substr(kWait.size());
    return point;
  }
  if (action.starts_with(kSleep)) {
    constexpr std::int64_t kTenMinutes = 600'000;
    const auto pause = number(action.substr(kSleep.size()), 0, kTenMinutes);
    if (!pause) fail(setting, "must sleep for 0 to 600000 milliseconds", std::string(kActions));
    point.action = Action::sleep;
    point.pause = std::chrono::milliseconds(*pause);
    return point;
  }
  point.only_at = take_only_at(setting, action);
  if (action.starts_with(kError) && is_sqlstate(action.substr(kError.size()))) {
    point.action = Action::error;
    point.argument = action.substr(kError.size());
  } else if (action != "abort") {
    fail(setting, "has an unknown action", std::string(kActions));
  }
  return point;
}

void wait_for(const std::string& file) {
  if (!std::ofstream(file + ".reached")) {
    throw Error(ErrorCode::failpoint_syntax, fmt::format("The file \"{}.reached\" cannot be created.", file),
                {}, file);
  }
  std::error_code ignored;
  while (!std::filesystem::exists(file, ignored)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void act(const Point& point) {
  switch (point.action) {
    case Action::abort:
      std::raise(SIGKILL);
      return;
    case Action::error:
      throw error_from_sqlstate(point.argument, fmt::format("The failpoint {} raised an error.", point.name));
    case Action::sleep:
      std::this_thread::sleep_for(point.pause);
      return;
    case Action::wait:
      wait_for(point.argument);
      return;
  }
  std::abort();
}

// Counts this hit, and returns what fires at it; the lock is not held while it fires.
std::vector<Point> due(std::string_view name) {
  std::vector<Point> fired;
  const std::lock_guard lock(mutex);
  for (Point& point : points) {
    if (point.name != name) continue;
    ++point.hits;
    if (point.only_at == 0 || point.only_at == point.hits) fired.push_back(point);
  }
  return fired;
}

[[noreturn]] void die_unregistered(std::string_view name) {
  std::fprintf(stderr, "crossfade: the failpoint %.*s is not registered\n", static_cast<int>(name.size()),
               name.data());
  std::abort();
}

}  // namespace

const std::vector<std::string>& all() {
  static const std::vector<std::string> names = registered_names();
  return names;
}

void configure(std::string_view text) {
  std::vector<Point> parsed;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view setting = text.substr(0, end);
    if (!setting.empty()) parsed.push_back(parse_point(setting));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const std::lock_guard lock(mutex);
  points = std::move(parsed);
  armed = !points.empty();
}

void configure_from_environment() {
  const char* const text = std::getenv("CROSSFADE_FAILPOINTS");
  configure(text == nullptr ? std::string_view() : std::string_view(text));
}

void hit(std::string_view name) {
#ifdef NDEBUG
  if (!armed.load(std::memory_order_relaxed)) return;
#endif
  if (!is_registered(name)) die_unregistered(name);
  for (const Point& point : due(name)) act(point);
}

}  // namespace crossfade::failpoint

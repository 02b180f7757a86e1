#include "status_text.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace crossfade::cli {

namespace {

std::string counted(std::int64_t number, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", grouped(number), number == 1 ? singular : plural);
}

std::string with_reason(std::string text, std::string_view reason) {
  if (!reason.empty()) text += fmt::format(": {}", one_line(reason));
  return text;
}

std::string coloured_status(Status status, const Style& style) {
  const std::string_view word = to_text(status);
  switch (status) {
    case Status::running:
      return style.cyan(word);
    case Status::paused:
      return style.yellow(word);
    case Status::settled:
      return style.green(word);
    case Status::failed:
      return style.red(word);
  }
  std::abort();
}

std::string speed(const StatusReport& report) {
  std::string text;
  if (report.rate_rows_per_second > 0) {
    text += fmt::format(", {} rows/s", grouped(static_cast<long long>(report.rate_rows_per_second)));
  }
  if (report.eta_seconds) {
    const std::string low = clock_time(static_cast<double>(report.eta_seconds->first));
    const std::string high = clock_time(static_cast<double>(report.eta_seconds->second));
    text += low == high ? fmt::format(", {} left", low) : fmt::format(", {} to {} left", low, high);
  }
  if (report.pace.limit_rows_per_second > 0) {
    text += fmt::format(", limited to {} rows/s", grouped(report.pace.limit_rows_per_second));
  }
  return text;
}

// Is it moving, and if not, why not?
std::string movement(const StatusReport& report, const Style& style) {
  switch (report.status) {
    case Status::settled:
      return "no: this phase has no work left";
    case Status::paused:
      return style.yellow(with_reason("no: paused", report.reason)) +
             fmt::format("; go on with crossfade resume {}", report.migration);
    case Status::failed:
      return style.red(with_reason("no: failed", report.reason));
    case Status::running:
      break;
  }
  if (report.runner.empty()) {
    return style.yellow(fmt::format("no: nobody is working on it; run crossfade next {}", report.migration));
  }
  if (report.pace.state == "throttled" || report.pace.state == "paused") {
    const bool moves = report.pace.state == "throttled";
    auto text = with_reason(fmt::format("{}, {}", moves ? "yes" : "no", report.pace.state),
                            report.pace.reason.value_or(""));
    if (report.pace.starved_seconds) {
      text += fmt::format("; starved for {}, longer than the work that is left would take",
                          clock_time(static_cast<double>(*report.pace.starved_seconds)));
    }
    return style.yellow(text) + (moves ? speed(report) : std::string());
  }
  return style.green("yes") + speed(report);
}

std::string work(const StatusReport& report) {
  std::string text = grouped(report.rows.done);
  if (report.rows.estimated > 0 && report.status != Status::settled) {
    const double share =
        100.0 * static_cast<double>(report.rows.done) / static_cast<double>(report.rows.estimated);
    text +=
        fmt::format(" of about {} rows ({:.0f} %)", grouped(report.rows.estimated), std::min(share, 100.0));
  } else {
    text += " rows";
  }
  text += fmt::format(", {} written", grouped(report.rows.written));
  if (report.units.total > 0) text += fmt::format(", {} of {} units", report.units.done, report.units.total);
  return text;
}

// By what it goes, in how many visits, and what that achieved.
std::string way(const StatusReport::Sweep& sweep) {
  std::string text = with_reason(sweep.order + " order", sweep.order_reason) + "; ";
  text += with_reason(sweep.interleave > 1 ? fmt::format("{} visits", sweep.interleave) : "one visit",
                      sweep.interleave_reason);
  if (sweep.hot_ratio) text += fmt::format("; {:.0f} % stayed on their page", 100 * *sweep.hot_ratio);
  return text;
}

std::string problems(const StatusReport& report, const Style& style) {
  std::vector<std::string> parts;
  const auto count = [&](std::int64_t number, std::string_view singular, std::string_view plural) {
    const std::string text = counted(number, singular, plural);
    parts.push_back(number == 0 ? text : style.red(text));
  };
  count(report.rejects, "reject", "rejects");
  if (report.differences) {
    count(*report.differences, "difference", "differences");
    if (report.comparison)
      parts.back() += fmt::format(" (compared {} ago)", clock_time(report.comparison->age_seconds));
  } else {
    parts.emplace_back("not compared yet");
  }
  count(report.misfits, "misfit", "misfits");
  if (report.excepted > 0) parts.push_back(fmt::format("{} excepted", grouped(report.excepted)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string switch_text(const StatusReport& report) {
  std::string text = counted(report.switched.attempts, "lock attempt", "lock attempts");
  if (report.switched.lock_held_ms)
    text += fmt::format(", lock held {:.1f} ms", *report.switched.lock_held_ms);
  if (report.switched.lock_wait_ms)
    text += fmt::format(", waited {:.1f} ms for it", *report.switched.lock_wait_ms);
  if (report.switched.sessions_waited > 0)
    text += ", " + counted(report.switched.sessions_waited, "session waited", "sessions waited");
  if (report.switched.longest_wait_ms && *report.switched.longest_wait_ms > 0)
    text += fmt::format(", at most {:.1f} ms", *report.switched.longest_wait_ms);
  return text;
}

class Screen {
 public:
  explicit Screen(const Style& style) : style_(style) {}
  void line(std::string_view label, const std::string& value) {
    text_ += fmt::format("{} {}\n", style_.dim(fmt::format("  {:<11}", label)), value);
  }
  void heading(const std::string& value) { text_ += value + "\n"; }
  const std::string& text() const { return text_; }

 private:
  const Style& style_;
  std::string text_;
};

void add_archives(const StatusReport& report, Screen& screen) {
  if (report.archive) screen.line("archive", one_line(*report.archive));
  for (const StatusReport& member : report.members) {
    if (member.archive) screen.line("archive", one_line(*member.archive));
  }
}

// What is it waiting for, is it safe to go on, how?
void add_next(const StatusReport& report, const Style& style, Screen& screen) {
  if (!report.next.phase) return;
  const std::string_view phase = to_text(*report.next.phase);
  screen.line("go on", report.next.ready ? style.green(fmt::format("to {}: ready", phase))
                                         : style.yellow(fmt::format("to {}: not yet", phase)));
  for (const std::string& reason : report.next.waiting_for) screen.line("", "- " + one_line(reason));
  if (report.drop_from) screen.line("", "soak until " + short_time(*report.drop_from));
  if (!report.commands.next.empty()) screen.line("", style.bold(report.commands.next));
  if (!report.commands.recapture.empty()) screen.line("", style.bold(report.commands.recapture));
}

// How do I go back, and what would I lose?
void add_rollback(const StatusReport& report, const Style& style, Screen& screen) {
  if (!report.rollback.phase) return;
  const std::string_view phase = to_text(*report.rollback.phase);
  const std::string loses = report.rollback.loses ? style.yellow(one_line("loses " + *report.rollback.loses))
                                                  : std::string("loses nothing");
  screen.line("go back", report.rollback.possible ? fmt::format("to {}: possible; {}", phase, loses)
                                                  : style.red(fmt::format("to {}: not possible now", phase)) +
                                                        (report.rollback.loses ? "; " + loses : ""));
  for (const std::string& reason : report.rollback.refused_for) screen.line("", "- " + one_line(reason));
  for (const std::string& work : report.rollback.does_first) screen.line("", "first " + one_line(work));
  if (!report.commands.rollback.empty()) screen.line("", style.bold(report.commands.rollback));
}

}  // namespace

std::string table_text(const StatusReport& report) {
  if (report.table == report.registered_table) return report.table;
  return fmt::format("{} (started as {})", report.table, report.registered_table);
}

std::string status_text(const StatusReport& report, const Style& style) {
  Screen screen(style);
  screen.heading(
      fmt::format("{}  {}  {}", style.bold(report.migration), one_line(table_text(report)), report.mode));
  const auto id = [&] {
    screen.line("id", fmt::format("{}, by {}, version {}", report.id, one_line(report.operator_name),
                                  report.version));
    return screen.text();
  };
  if (is_closed(report.phase)) {
    screen.line("phase", fmt::format("{}, closed since {}", style.bold(to_text(report.phase)),
                                     short_time(report.since)));
    for (const StatusReport& member : report.members) {
      screen.line("follows", fmt::format("{} of {}: {}, {}", one_line(member.column), one_line(member.table),
                                         coloured_status(member.status, style), work(member)));
    }
    if (report.switched.attempts > 0) screen.line("switch", switch_text(report));
    add_archives(report, screen);
    return id();
  }
  const bool idle = report.status == Status::running && report.runner.empty();
  screen.line("phase",
              fmt::format("{}, {}{}, since {}, epoch {}", style.bold(to_text(report.phase)),
                          coloured_status(report.status, style), idle ? ", but nobody is working on it" : "",
                          short_time(report.since), report.epoch));
  screen.line("moving", movement(report, style));
  if (!report.runner.empty()) screen.line("runner", one_line(report.runner));
  if (report.units.total > 0 || report.rows.done > 0) screen.line("work", work(report));
  if (report.sweep) screen.line("sweep", way(*report.sweep));
  for (const WorkerRow& process : report.processes) {
    screen.line("worker", one_line(fmt::format("{} on {}, process {}, {} since {}: {}", process.operator_name,
                                               process.host, process.process_id,
                                               counted(process.threads, "thread", "threads"),
                                               short_time(process.since), process.state)));
  }
  screen.line("problems", problems(report, style));
  for (const std::string* command :
       {&report.commands.rejects, &report.commands.misfits, &report.commands.diffs}) {
    if (!command->empty()) screen.line("", style.bold(*command));
  }
  if (report.request) {
    auto request = *report.request;
    request.since = short_time(request.since);
    const auto text = one_line(to_text(request), 400);
    screen.line("request", report.request->alive ? text : style.yellow(text));
  }
  for (const StatusReport& member : report.members) {
    screen.line("follows", fmt::format("{} of {}: {}, {}", one_line(member.column), one_line(member.table),
                                       coloured_status(member.status, style), work(member)));
  }
  if (report.switched.attempts > 0) screen.line("switch", switch_text(report));
  add_archives(report, screen);
  for (const std::string& warning : report.warnings)
    screen.line("warning", style.yellow(one_line(warning, 400)));
  add_next(report, style, screen);
  add_rollback(report, style, screen);
  if (!report.strategy.empty()) screen.line("strategy", one_line(report.strategy, 400));
  screen.line("redis", report.redis == "lost" ? style.yellow("lost; everything works, more slowly observed")
                                              : report.redis);
  return id();
}

}  // namespace crossfade::cli

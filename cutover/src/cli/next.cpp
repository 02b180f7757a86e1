// next: on to the end of this phase, or into the next one.
#include <algorithm>

#include <fmt/format.h>

#include <chrono>

#include "crossfade/core/log.hpp"
#include "crossfade/core/tuning.hpp"
#include "dry_run_text.hpp"
#include "events.hpp"
#include "phase_argument.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

// The report is a help, not the answer: that it cannot be had now must not hide how the command ended.
void show_dry_run(const Command& command, Door& migrator, const MigrationRef& ref) {
  try {
    const auto reports = migrator->dry_run_reports(ref);
    for (const auto& report : reports) {
      if (command.output.json()) {
        command.output.object({{"event", "dry_run"},
                               {"migration", ref.name},
                               {"table", report.table},
                               {"column", report.column},
                               {"report", parsed(to_json(report.found))}});
      } else if (!command.output.quiet()) {
        const auto of = fmt::format(" of {} of {}", one_line(report.column), one_line(report.table));
        command.output.print(
            dry_run_text(report.found, command.output.style(), reports.size() > 1 ? of : ""));
      }
    }
  } catch (const Error& error) {
    log::write(log::Level::info, "dry_run_report_unavailable", {{"error", std::string(error.name())}});
  }
}

// What the drop leaves in the table, as the history has it.
void show_bloat(const Command& command, Door& migrator, const MigrationRef& ref) {
  if (command.output.json() || command.output.quiet()) return;
  try {
    const auto history = migrator->history(ref);
    if (history.empty() || history.back().evidence.empty()) return;
    const Json found = parsed(history.back().evidence);
    const auto number = [&](const char* key) {
      return found.contains(key) && found[key].is_number_integer() ? found[key].get<long long>() : 0LL;
    };
    command.output.print(fmt::format(
        "left behind: the table takes {}, its indexes {}, with {} dead rows; the space of the old column "
        "comes "
        "back as rows are written again.\n",
        byte_size(number("table_bytes")), byte_size(number("index_bytes")), grouped(number("dead_tuples"))));
    const auto status = migrator->status(ref);
    const auto tell_archive = [&](const StatusReport& of) {
      if (of.archive) command.output.print(fmt::format("the old values are kept in table {}\n", *of.archive));
    };
    tell_archive(status);
    for (const auto& member : status.members) tell_archive(member);
  } catch (const Error& error) {
    log::write(log::Level::info, "bloat_report_unavailable", {{"error", std::string(error.name())}});
  }
}

// The dry run's errors become rejects, which the sweep takes only so many of.
void tell_of_rejects(const Command& command, Door& migrator, const MigrationRef& ref,
                     const std::vector<Acceptance>& accepted) {
  if (std::ranges::find(accepted, "dry_run_errors", &Acceptance::id) == accepted.end()) return;
  try {
    const auto report = migrator->dry_run_report(ref);
    const auto most = migrator->tuning(ref).max_rejects;
    if (!report || report->errors <= most) return;
    command.output.notice(
        fmt::format("{} rows failed in the dry run and the sweep stops after max_rejects = {}: raise it with "
                    "'crossfade tune {} max_rejects={}', or correct the rows",
                    grouped(report->errors), most, ref.name, report->errors));
  } catch (const Error& error) {
    log::write(log::Level::info, "dry_run_report_unavailable", {{"error", std::string(error.name())}});
  }
}

std::optional<std::chrono::milliseconds> wait_argument(const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (text == kWaitEndlessly) return std::chrono::milliseconds::max();
  if (const auto duration = parse_duration(text)) return duration;
  throw Error(ErrorCode::usage_error, fmt::format("--wait takes a duration, not \"{}\".", text),
              "For example --wait=2h; --wait alone waits without an end.");
}

}  // namespace

int run_next(const Command& command, const NextArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  const NextOptions options{.until = phase_argument("--until", arguments.until, Event::advance),
                            .confirm = arguments.confirm,
                            .accept = acceptances(arguments.accept),
                            .wait = wait_argument(arguments.wait)};
  Events events(command.output, Events::Stream::events);
  Door migrator(command, Door::Redis::used, &events);
  PhaseReport report;
  try {
    report = migrator->next(ref, options);
  } catch (const Error& error) {
    events.end();
    tell_of_rejects(command, migrator, ref, options.accept);
    if (events.saw_dry_run() || error.code() == ErrorCode::expectation_missed)
      show_dry_run(command, migrator, ref);
    throw;
  }
  events.end();
  if (events.saw_dry_run()) show_dry_run(command, migrator, ref);
  if (report.phase == Phase::dropped && report.changed) show_bloat(command, migrator, ref);
  tell_of_rejects(command, migrator, ref, options.accept);
  print_phase(command, report, "is in");
  return 0;
}

}  // namespace crossfade::cli

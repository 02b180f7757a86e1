// next: on to the end of this phase, or into the next one.
#include <fmt/format.h>

#include "crossfade/core/log.hpp"
#include "dry_run_text.hpp"
#include "events.hpp"
#include "phase_argument.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

// The report is a help, not the answer: that it cannot be had now must not hide how the command ended.
void show_dry_run(const Command& command, Door& migrator, const MigrationRef& ref) {
  try {
    const auto report = migrator->dry_run_report(ref);
    if (!report) return;
    if (command.output.json()) {
      command.output.object(
          {{"event", "dry_run"}, {"migration", ref.name}, {"report", parsed(to_json(*report))}});
    } else if (!command.output.quiet()) {
      command.output.print(dry_run_text(*report, command.output.style()));
    }
  } catch (const Error& error) {
    log::write(log::Level::warn, "dry_run_report_unavailable", {{"error", std::string(error.name())}});
  }
}

}  // namespace

int run_next(const Command& command, const NextArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  const NextOptions options{.until = phase_argument("--until", arguments.until, Event::advance),
                            .confirm = arguments.confirm,
                            .accept = acceptances(arguments.accept)};
  Events events(command.output, Events::Stream::events);
  Door migrator(command, Door::Redis::used, &events);
  PhaseReport report;
  try {
    report = migrator->next(ref, options);
  } catch (const Error& error) {
    events.end();
    if (events.saw_dry_run() || error.code() == ErrorCode::expectation_missed)
      show_dry_run(command, migrator, ref);
    throw;
  }
  events.end();
  if (events.saw_dry_run()) show_dry_run(command, migrator, ref);
  const auto commands = commands_after(report.name, report.phase);
  if (command.output.json()) {
    command.output.object({{"event", "result"},
                           {"migration", report.name},
                           {"phase", to_text(report.phase)},
                           {"status", to_text(report.status)},
                           {"commands", commands_object(commands)}});
    return 0;
  }
  command.output.print(fmt::format("{} is in {}, {}.\n", command.output.style().bold(report.name),
                                   to_text(report.phase), to_text(report.status)));
  print_commands(command, commands);
  return 0;
}

}  // namespace crossfade::cli

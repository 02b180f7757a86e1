// redrive: sweeps again what was swept.
#include <fmt/format.h>

#include "events.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

int run_redrive(const Command& command, const RedriveArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  const bool range = arguments.from || arguments.to;
  if (int{arguments.all} + int{arguments.unit.has_value()} + int{range} != 1) {
    throw Error(ErrorCode::usage_error, "redrive takes --unit N, --all, or --from KEY and --to KEY.",
                "crossfade status NAME --json tells how many units there are.");
  }
  Events events(command.output, Events::Stream::events);
  Door migrator(command, Door::Redis::used, &events);
  RedriveReport report;
  try {
    report = migrator->redrive(
        ref, {.unit = arguments.unit, .all = arguments.all, .from = arguments.from, .to = arguments.to});
  } catch (...) {
    events.end();
    throw;
  }
  events.end();
  const auto commands = commands_after(report.name, report.phase);
  if (command.output.json()) {
    command.output.object({{"event", "result"},
                           {"migration", report.name},
                           {"phase", to_text(report.phase)},
                           {"status", to_text(report.status)},
                           {"units", report.units},
                           {"rows_read", report.rows_read},
                           {"rows_written", report.rows_written},
                           {"commands", commands_object(commands)}});
    return 0;
  }
  command.output.print(fmt::format("{}: {} rows swept again, {} written.\n",
                                   command.output.style().bold(report.name), grouped(report.rows_read),
                                   grouped(report.rows_written)));
  print_commands(command, commands);
  return 0;
}

}  // namespace crossfade::cli

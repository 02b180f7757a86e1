// rollback and recapture: back to an earlier phase.
#include <fmt/format.h>

#include "events.hpp"
#include "phase_argument.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

int run_rollback(const Command& command, const RollbackArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  const RollbackOptions options{.to = phase_argument("--to", arguments.to, Event::rollback),
                                .accept = acceptances(arguments.accept)};
  Events events(command.output, Events::Stream::events);
  Door migrator(command, Door::Redis::used, &events);
  const PhaseReport report = migrator->rollback(ref, options);
  events.end();
  print_phase(command, report, "is back in");
  return 0;
}

int run_recapture(const Command& command, const NameArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Events events(command.output, Events::Stream::answer);
  Door migrator(command, Door::Redis::used, &events);
  const PhaseReport report = migrator->recapture(ref);
  events.end();
  const auto commands = commands_after(report.name, report.phase);
  if (command.output.json()) {
    command.output.object({{"migration", report.name},
                           {"phase", to_text(report.phase)},
                           {"status", to_text(report.status)},
                           {"commands", commands_object(commands)}});
    return 0;
  }
  command.output.print(fmt::format("The capture of {} is made anew; the migration is in {}, {}.\n",
                                   command.output.style().bold(report.name), to_text(report.phase),
                                   to_text(report.status)));
  print_commands(command, commands);
  return 0;
}

}  // namespace crossfade::cli

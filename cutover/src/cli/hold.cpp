// pause and resume: an operator holds the work, and lets it go.
#include <fmt/format.h>

#include "verbs.hpp"

namespace crossfade::cli {

int run_pause(const Command& command, const PauseArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Door migrator(command, Door::Redis::used);
  const std::string reason = arguments.reason.empty() ? "an operator asked for it" : arguments.reason;
  const PauseReport report = migrator->pause(ref, reason);
  if (command.output.json()) {
    command.output.object({{"migration", ref.name},
                           {"status", to_text(report.status)},
                           {"changed", report.changed},
                           {"request_cancelled", report.request_cancelled}});
    return 0;
  }
  if (report.request_cancelled) {
    command.output.print(fmt::format("The phase change that {} waited for is cancelled.\n", ref.name));
  }
  if (report.status != Status::paused) return 0;
  command.output.print(fmt::format("{} is {}.\n", ref.name, report.changed ? "paused" : "paused already"));
  print_commands(command, {.next = fmt::format("crossfade resume {}", ref.name), .rollback = ""});
  return 0;
}

int run_resume(const Command& command, const NameArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Door migrator(command, Door::Redis::used);
  const bool changed = migrator->resume(ref);
  if (command.output.json()) {
    command.output.object({{"migration", ref.name}, {"changed", changed}});
    return 0;
  }
  command.output.print(fmt::format("{} {}.\n", ref.name, changed ? "goes on" : "was not paused"));
  if (changed) print_commands(command, {.next = fmt::format("crossfade next {}", ref.name), .rollback = ""});
  return 0;
}

}  // namespace crossfade::cli

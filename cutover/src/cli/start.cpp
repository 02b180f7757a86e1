#include <fmt/format.h>

#include "findings_text.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

int run_start(const Command& command, const StartArguments& arguments) {
  const auto accepted = acceptances(arguments.accept);
  Door migrator(command, Door::Redis::used);
  const StartReport report =
      migrator->start({.text = read_spec_file(arguments.spec), .file = arguments.spec}, accepted);
  // A migration that was started before may be anywhere by now.
  const auto commands =
      report.already_started
          ? NextCommands{.next = fmt::format("crossfade status {}", report.name), .rollback = ""}
          : commands_after(report.name, Phase::planned);
  if (command.output.json()) {
    command.output.object({{"migration", report.name},
                           {"id", report.id},
                           {"already_started", report.already_started},
                           {"findings", findings_array(report.findings)},
                           {"commands", commands_object(commands)}});
    return 0;
  }
  const Style& style = command.output.style();
  if (report.already_started) {
    command.output.print(fmt::format("{} is started already, id {}.\n", style.bold(report.name), report.id));
  } else {
    command.output.print(
        fmt::format("{} is registered, id {}: phase planned.\n", style.bold(report.name), report.id));
  }
  // What is only worth knowing was said by plan.
  std::vector<Finding> grave = report.findings;
  std::erase_if(grave, [](const Finding& finding) { return finding.severity == Severity::info; });
  if (!command.output.quiet()) command.output.print(findings_text(grave, accepted, style));
  print_commands(command, commands);
  return 0;
}

}  // namespace crossfade::cli

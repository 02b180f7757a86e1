// init and adopt: the schema, and state that moved with its database.
#include <unistd.h>

#include <iostream>
#include <string>

#include <fmt/format.h>

#include "verbs.hpp"

namespace crossfade::cli {

namespace {

// The history of every migration goes with the schema.
void confirm_removal(const Command& command, bool yes) {
  if (yes) return;
  if (!command.output.json() && is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO)) {
    command.output.ask("Remove schema crossfade, with the history of every migration? [y/N] ");
    std::string answer;
    std::getline(std::cin, answer);
    if (answer == "y" || answer == "Y" || answer == "yes") return;
  }
  throw Error(ErrorCode::confirmation_missing,
              "schema crossfade, with the history of every migration, is removed only when it is confirmed",
              "crossfade init --remove --yes", "crossfade");
}

}  // namespace

int run_init(const Command& command, const InitArguments& arguments) {
  if (arguments.yes && !arguments.remove) {
    throw Error(ErrorCode::usage_error, "--yes confirms --remove, which is not there.",
                "crossfade init --help");
  }
  if (arguments.remove) confirm_removal(command, arguments.yes);
  Door migrator(command, Door::Redis::unused);
  if (arguments.remove) {
    migrator->remove();
    if (command.output.json()) {
      command.output.object({{"schema", "crossfade"}, {"removed", true}});
    } else {
      command.output.print("Schema crossfade is removed.\n");
    }
    return 0;
  }
  const bool created = migrator->init();
  if (command.output.json()) {
    command.output.object({{"schema", "crossfade"}, {"created", created}});
    return 0;
  }
  command.output.print(created ? "Schema crossfade is created.\n" : "Schema crossfade is there already.\n");
  print_commands(command,
                 {.next = "crossfade plan SPEC", .rollback = created ? "crossfade init --remove" : ""});
  return 0;
}

int run_adopt(const Command& command) {
  Door migrator(command, Door::Redis::unused);
  migrator->adopt();
  if (command.output.json()) {
    command.output.object({{"adopted", true}});
  } else {
    command.output.print(
        "The state is accepted as this database's own. Positions and comparisons are void and made anew.\n");
  }
  return 0;
}

}  // namespace crossfade::cli

// init and adopt: the schema, and state that moved with its database.
#include <fmt/format.h>

#include "verbs.hpp"

namespace crossfade::cli {

int run_init(const Command& command, const InitArguments& arguments) {
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

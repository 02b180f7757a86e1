// What every verb is given, and how it reaches a Migrator.
#pragma once

#include <string>
#include <string_view>

#include "crossfade/cutover/migrator.hpp"
#include "globals.hpp"
#include "output.hpp"
#include "signals.hpp"

namespace crossfade::cli {

struct Command {
  const Globals& globals;
  const Output& output;
};

// The migration that NAME and --id mean. Throws usage_error for what cannot be a name, without repeating it:
// it may be a piece of a connection string.
MigrationRef reference(const Command& command, const std::string& name);

// A Migrator that signals reach.
class Door {
 public:
  enum class Redis {
    used,    // its absence is worth a notice
    unused,  // this verb would not have asked it
  };
  // Throws password_in_dsn and usage_error before anything is printed.
  Door(const Command& command, Redis redis, ProgressListener* listener = nullptr);
  Migrator* operator->() { return &migrator_; }

 private:
  Migrator migrator_;
  StopOnSignal stop_;
};

// "crossfade next NAME" and "crossfade rollback NAME" as they are typed after `phase`; empty where nothing
// follows.
struct NextCommands {
  std::string next, rollback;
};
NextCommands commands_after(const std::string& name, Phase phase);
Json commands_object(const NextCommands& commands);
// The answer of next and rollback: "NAME is in PHASE, STATUS." and what follows, or the result event.
void print_phase(const Command& command, const PhaseReport& report, std::string_view is_in);
// The two lines at the end of an answer; nothing with -q.
void print_commands(const Command& command, const NextCommands& commands);

}  // namespace crossfade::cli

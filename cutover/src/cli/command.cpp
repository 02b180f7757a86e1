#include "command.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "crossfade/core/sql_session.hpp"

namespace crossfade::cli {

namespace {

bool may_be_a_name(const std::string& name) {
  constexpr std::size_t kLongest = 40;
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kLongest && name[0] >= 'a' && name[0] <= 'z' &&
         std::ranges::all_of(name, fits);
}

bool may_be_a_uuid(const std::string& text) {
  constexpr std::string_view kForm = "00000000-0000-0000-0000-000000000000";
  if (text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const char c = text[i];
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (kForm[i] == '-' ? c != '-' : !is_hex) return false;
  }
  return true;
}

MigratorOptions options_of(const Command& command, Door::Redis redis) {
  const Globals& globals = command.globals;
  refuse_password(globals.dsn);
  refuse_password(globals.read_dsn);
  if (redis == Door::Redis::used && globals.redis.empty()) {
    command.output.notice(
        "no Redis is configured (--redis, CROSSFADE_REDIS); everything works, live signals are slower");
  }
  return {.dsn = globals.dsn,
          .redis = globals.redis,
          .read_dsn = globals.read_dsn,
          .operator_name = globals.operator_name,
          .host = {},
          .cancel_blockers = globals.cancel_blockers,
          .terminate_blockers = globals.terminate_blockers};
}

}  // namespace

MigrationRef reference(const Command& command, const std::string& name) {
  const std::string& id = command.globals.id;
  if (!id.empty() && !may_be_a_uuid(id)) {
    throw Error(ErrorCode::usage_error, "--id takes the UUID of a migration.", "crossfade list shows them.");
  }
  if (!(name.empty() && !id.empty()) && !may_be_a_name(name)) {
    throw Error(ErrorCode::usage_error,
                "NAME has to be the name of a migration: [a-z][a-z0-9_]*, at most 40 bytes.",
                "crossfade list shows the names.");
  }
  return {name, id.empty() ? std::nullopt : std::optional<std::string>(id)};
}

Door::Door(const Command& command, Redis redis, ProgressListener* listener)
    : migrator_(options_of(command, redis), listener), stop_(migrator_) {}

NextCommands commands_after(const std::string& name, Phase phase) {
  NextCommands commands;
  if (is_closed(phase)) return commands;
  commands.next = fmt::format("crossfade next {}", name);
  // The old column goes for good: the step is confirmed by name.
  if (phase == Phase::switched) commands.next += fmt::format(" --confirm {}", name);
  commands.rollback = fmt::format("crossfade rollback {}", name);
  return commands;
}

Json commands_object(const NextCommands& commands) {
  return {{"next", text_or_null(commands.next)}, {"rollback", text_or_null(commands.rollback)}};
}

void print_phase(const Command& command, const PhaseReport& report, std::string_view is_in) {
  const auto commands = commands_after(report.name, report.phase);
  if (command.output.json()) {
    command.output.object({{"event", "result"},
                           {"migration", report.name},
                           {"phase", to_text(report.phase)},
                           {"status", to_text(report.status)},
                           {"changed", report.changed},
                           {"commands", commands_object(commands)}});
    return;
  }
  const std::string name = command.output.style().bold(report.name);
  command.output.print(
      report.changed
          ? fmt::format("{} {} {}, {}.\n", name, is_in, to_text(report.phase), to_text(report.status))
          : fmt::format("{} is in {} already, nothing done.\n", name, to_text(report.phase)));
  print_commands(command, commands);
}

void print_commands(const Command& command, const NextCommands& commands) {
  if (command.output.quiet()) return;
  const Style& style = command.output.style();
  if (!commands.next.empty()) command.output.print(fmt::format("next: {}\n", style.bold(commands.next)));
  if (!commands.rollback.empty()) {
    command.output.print(fmt::format("back: {}\n", style.bold(commands.rollback)));
  }
}

}  // namespace crossfade::cli

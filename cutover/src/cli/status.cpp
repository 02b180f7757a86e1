// status: once, or again and again.
#include <chrono>

#include <fmt/format.h>

#include "status_text.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

// One object for a named migration, else an array of the open ones.
struct Asked {
  std::optional<MigrationRef> one;
};

std::vector<StatusReport> reports_of(Door& migrator, const Asked& asked) {
  if (asked.one) return {migrator->status(*asked.one)};
  std::vector<StatusReport> reports;
  for (const StatusReport& brief : migrator->list()) {
    if (!is_closed(brief.phase)) reports.push_back(migrator->status({brief.migration, brief.id}));
  }
  return reports;
}

void print_json(const Command& command, const Asked& asked, const std::vector<StatusReport>& reports) {
  if (asked.one) {
    command.output.object(parsed(to_json(reports.front())));
    return;
  }
  Json array = Json::array();
  for (const StatusReport& report : reports) array.push_back(parsed(to_json(report)));
  command.output.object(array);
}

// In one write, so that --watch does not flicker.
void print_text(const Command& command, const std::vector<StatusReport>& reports, std::string text) {
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (i > 0) text += "\n";
    text += status_text(reports[i], command.output.style());
  }
  if (reports.empty()) text += "No migration is open; crossfade list shows the closed ones.\n";
  command.output.print(text);
}

void show(const Command& command, Door& migrator, const Asked& asked, const std::string& before) {
  const auto reports = reports_of(migrator, asked);
  if (command.output.json()) {
    print_json(command, asked, reports);
  } else {
    print_text(command, reports, before);
  }
}

// Ends by a signal, or when nobody reads any more. A server that is away for a while is what one watches for.
int watch(const Command& command, Door& migrator, const Asked& asked) {
  constexpr std::chrono::seconds kEvery{2};
  const int unavailable = error_info(ErrorCode::connection_lost).exit_status;
  const bool in_place = is_terminal(1);
  bool first = true;
  while (!stop_was_requested() && command.output.write_failure() == 0) {
    try {
      show(command, migrator, asked, in_place ? "\033[H\033[2J" : first ? "" : "\n");
      first = false;
    } catch (const Error& error) {
      if (error.exit_status() != unavailable || stop_was_requested()) throw;
      command.output.error(error);
    }
    wait_unless_stopped(kEvery);
  }
  return stop_was_requested() ? error_info(ErrorCode::interrupted).exit_status : 0;
}

}  // namespace

int run_status(const Command& command, const StatusArguments& arguments) {
  Asked asked;
  if (!arguments.name.empty() || !command.globals.id.empty()) asked.one = reference(command, arguments.name);
  Door migrator(command, Door::Redis::used);
  if (arguments.watch) return watch(command, migrator, asked);
  show(command, migrator, asked, "");
  return 0;
}

}  // namespace crossfade::cli

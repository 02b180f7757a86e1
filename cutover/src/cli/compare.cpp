// compare: a full comparison pass now.
#include <fmt/format.h>

#include "events.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

bool can_compare(Phase phase) { return phase == Phase::compare || phase == Phase::switched; }

std::vector<MigrationRef> targets(const Command& command, Door& migrator, const CompareArguments& arguments) {
  if (!arguments.all) return {reference(command, arguments.name)};
  std::vector<MigrationRef> refs;
  for (const StatusReport& report : migrator->list()) {
    if (can_compare(report.phase)) refs.emplace_back(report.migration, report.id);
  }
  return refs;
}

Json pass_object(const std::string& name, const PassRow& pass) {
  return {{"migration", name},
          {"id", pass.id},
          {"direction", pass.direction},
          {"state", pass.state},
          {"began_at", text_or_null(pass.began_at)},
          {"ended_at", text_or_null(pass.ended_at)},
          {"rows_read", pass.rows_read},
          {"differences", pass.differences},
          {"excepted", pass.excepted}};
}

void print_pass(const Command& command, const std::string& name, const PassRow& pass) {
  const Style& style = command.output.style();
  const std::string found = pass.differences == 0
                                ? style.green("no difference")
                                : style.red(fmt::format("{} rows differ", grouped(pass.differences)));
  command.output.print(fmt::format(
      "{}: {} in {} rows ({}){}.\n", style.bold(name), found, grouped(pass.rows_read), pass.direction,
      pass.excepted == 0 ? "" : fmt::format(", {} excepted", grouped(pass.excepted))));
  if (pass.differences > 0)
    print_commands(command, {.next = fmt::format("crossfade diffs {}", name), .rollback = ""});
}

}  // namespace

int run_compare(const Command& command, const CompareArguments& arguments) {
  if (arguments.all != arguments.name.empty()) {
    throw Error(ErrorCode::usage_error, "compare takes NAME or --all, and not both.");
  }
  Events events(command.output, Events::Stream::events);
  Door migrator(command, Door::Redis::used, &events);
  Json passes = Json::array();
  std::int64_t differences = 0;
  std::vector<std::pair<std::string, PassRow>> ended;
  for (const MigrationRef& ref : targets(command, migrator, arguments)) {
    ended.emplace_back(ref.name, migrator->compare(ref));
    differences += ended.back().second.differences;
    passes.push_back(pass_object(ref.name, ended.back().second));
  }
  events.end();
  if (command.output.json()) {
    command.output.object({{"event", "result"}, {"differences", differences}, {"passes", passes}});
  } else {
    for (const auto& [name, pass] : ended) print_pass(command, name, pass);
    if (ended.empty()) command.output.print("No migration is in compare or switched.\n");
  }
  return differences == 0 ? 0 : error_info(ErrorCode::differences_found).exit_status;
}

}  // namespace crossfade::cli

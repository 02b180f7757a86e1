// plan: everything that would happen, and nothing that happens.
#include <fmt/format.h>

#include "findings_text.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

std::string facts_text(const PlanReport& report, const Style& style) {
  std::string text = fmt::format("{}  {}  {}\n", style.bold(report.name), visible(report.table), report.mode);
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("  {:<9} {}\n", label, one_line(value, 2000));
  };
  line("key", report.key.empty() ? "none" : report.key);
  line("forward", report.forward.empty() ? "none" : report.forward);
  line("backward", report.backward.empty() ? "none" : report.backward);
  if (report.one_way) {
    line("one-way", "after the switch the old column cannot be computed for rows written since");
  }
  return text;
}

std::string carried_text(const PlanReport& report, const Style& style) {
  if (report.carried.empty()) return "";
  std::string text = style.bold("carried to the new column") + "\n";
  for (const std::string& dependent : report.carried)
    text += fmt::format("  {}\n", one_line(dependent, 2000));
  return text;
}

std::string statements_text(const PlanReport& report, const Style& style) {
  std::string text;
  std::optional<Phase> phase;
  for (const PlannedStatement& statement : report.statements) {
    if (statement.phase != phase)
      text += style.bold(fmt::format("statements of {}", to_text(statement.phase))) + "\n";
    phase = statement.phase;
    text += style.dim(
        fmt::format("  -- lock: {}{}", statement.lock, statement.may_wait ? "; may wait for writers" : ""));
    text += "\n  ";
    for (const char c : visible(statement.sql)) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
    while (text.ends_with("\n  ")) text.erase(text.size() - 3);
    if (!text.ends_with(';')) text += ';';
    text += '\n';
  }
  return text;
}

}  // namespace

int run_plan(const Command& command, const PlanArguments& arguments) {
  const auto accepted = acceptances(arguments.accept);
  Door migrator(command, Door::Redis::unused);
  const PlanReport report = migrator->plan({.text = read_spec_file(arguments.spec), .file = arguments.spec});
  const bool refused = !unaccepted(report.refusals, accepted).empty();
  constexpr int kRefused = 3;
  if (command.output.json()) {
    command.output.object(parsed(to_json(report)));
    return refused ? kRefused : 0;
  }
  const Style& style = command.output.style();
  std::string text = facts_text(report, style) + findings_text(report.findings, accepted, style);
  text += carried_text(report, style);
  if (arguments.sql) text += statements_text(report, style);
  command.output.print(text);
  if (refused) {
    command.output.print(style.red("start will refuse this plan.") + "\n");
    return kRefused;
  }
  if (!arguments.sql)
    print_commands(command, {.next = fmt::format("crossfade start {}", arguments.spec), .rollback = ""});
  return 0;
}

}  // namespace crossfade::cli

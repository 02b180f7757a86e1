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
  if (report.phase) line("started", fmt::format("already; it is in {}", to_text(*report.phase)));
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

std::string hooks_text(const PlanReport& report, const Style& style) {
  if (report.hooks.empty()) return "";
  std::string text = style.bold("commands that crossfade runs on the host where it is called") + "\n";
  for (const auto& [hook, command] : report.hooks)
    text += fmt::format("  {}: {}\n", hook, one_line(command, 2000));
  return text;
}

std::string members_text(const PlanReport& report, const Style& style) {
  std::string text;
  for (const auto& member : report.members) {
    text += style.bold(fmt::format("follows: {} of {}", visible(member.column), visible(member.table))) +
            fmt::format("  key {}, forward {}\n", visible(member.key), visible(member.forward));
    for (const std::string& dependent : member.carried)
      text += fmt::format("  {}\n", one_line(dependent, 2000));
  }
  return text;
}

std::string_view effect(const PlannedStatement& statement) {
  if (statement.blocks == "table") return "holds up readers and writers of the table";
  if (statement.blocks == "rows") return "holds up writers of the same rows";
  return "holds up nobody";
}

std::string indented(const std::string& sql) {
  std::string text = "  ";
  for (const char c : visible(sql)) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  while (text.ends_with(' ') || text.ends_with('\n')) text.pop_back();
  return text.ends_with(';') ? text : text + ';';
}

std::string statements_text(const PlanReport& report, const Style& style) {
  std::string text;
  std::string heading, about;
  for (const PlannedStatement& statement : report.statements) {
    const std::string now = fmt::format("statements of {}: {}", to_text(statement.phase), statement.step);
    if (now != heading) {
      text += style.bold(now) + "\n";
      about.clear();
    }
    heading = now;
    // Said once of those that follow each other.
    const std::string comment =
        fmt::format("  -- {}\n  -- lock: {}; {}{}", statement.what, statement.lock, effect(statement),
                    statement.may_wait ? "; may wait for writers" : "");
    if (comment != about) text += style.dim(comment) + "\n";
    about = comment;
    text += indented(statement.sql) + "\n";
  }
  return text;
}

// As it is typed in a shell.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

void print_next(const Command& command, const PlanArguments& arguments, const PlanReport& report) {
  if (report.phase) {
    print_commands(command, {.next = fmt::format("crossfade status {}", report.name), .rollback = ""});
    return;
  }
  std::string start = "crossfade start " + shell_word(arguments.spec);
  for (std::size_t i = 0; i < arguments.accept.ids.size(); ++i) {
    start += fmt::format(" --accept {} --reason {}", arguments.accept.ids[i],
                         shell_word(arguments.accept.reasons[i]));
  }
  print_commands(command,
                 {.next = report.initialized ? start : "crossfade init && " + start, .rollback = ""});
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
  text += carried_text(report, style) + members_text(report, style) + hooks_text(report, style);
  if (arguments.sql) text += statements_text(report, style);
  command.output.print(text);
  if (refused) {
    command.output.print(
        style.red(report.phase ? "next will refuse to go on." : "start will refuse this plan.") + "\n");
    return kRefused;
  }
  print_next(command, arguments, report);
  return 0;
}

}  // namespace crossfade::cli

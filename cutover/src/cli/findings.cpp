// findings: all ids with their meaning; and how findings are shown.
#include <algorithm>

#include <fmt/format.h>

#include "findings_text.hpp"
#include "text_table.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

std::string coloured(Severity severity, const Style& style, const std::string& text) {
  switch (severity) {
    case Severity::refuse:
      return style.red(text);
    case Severity::warn:
      return style.yellow(text);
    case Severity::info:
      return style.dim(text);
  }
  return text;
}

std::string finding_text(const Finding& finding, const std::vector<Acceptance>& accepted) {
  std::string text = fmt::format("  {}", finding.id);
  if (!finding.object.empty()) text += fmt::format("  {}", one_line(finding.object));
  text += fmt::format("\n    {}\n", visible(finding.message));
  if (!finding.hint.empty()) text += fmt::format("    hint: {}\n", visible(finding.hint));
  if (finding.severity != Severity::refuse) return text;
  if (!is_acceptable(finding)) return text;
  const auto acceptance = std::ranges::find(accepted, finding.id, &Acceptance::id);
  text += acceptance != accepted.end()
              ? fmt::format("    accepted: {}\n", visible(acceptance->reason))
              : fmt::format("    to accept it: --accept {} --reason \"why\"\n", finding.id);
  return text;
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings, const std::vector<Acceptance>& accepted,
                          const Style& style) {
  std::string text;
  for (const Severity severity : {Severity::refuse, Severity::warn, Severity::info}) {
    const auto count = std::ranges::count(findings, severity, &Finding::severity);
    if (count == 0) continue;
    text += coloured(severity, style, fmt::format("{} ({})", to_text(severity), count)) + "\n";
    for (const Finding& finding : findings) {
      if (finding.severity == severity) text += finding_text(finding, accepted);
    }
  }
  return text;
}

Json findings_array(const std::vector<Finding>& findings) {
  Json array = Json::array();
  for (const Finding& finding : findings) {
    array.push_back({{"id", finding.id},
                     {"severity", to_text(finding.severity)},
                     {"object", finding.object},
                     {"message", finding.message},
                     {"hint", finding.hint}});
  }
  return array;
}

int run_findings(const Command& command) {
  if (command.output.json()) {
    Json array = Json::array();
    for (const FindingInfo& finding : finding_table()) {
      array.push_back({{"id", finding.id}, {"acceptable", finding.acceptable}, {"meaning", finding.meaning}});
    }
    command.output.object({{"findings", array}});
    return 0;
  }
  TextTable table({{"id"}, {"acceptable"}, {"meaning"}});
  for (const FindingInfo& finding : finding_table()) {
    table.add({std::string(finding.id), finding.acceptable ? "yes" : "never", std::string(finding.meaning)});
  }
  command.output.print(table.text(command.output.style()));
  return 0;
}

}  // namespace crossfade::cli

// docs/cli.md and docs/spec.md hold tables that the program holds too: they are compared here, and printed
// when they differ, so that a page is renewed by copying.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/spec.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "support/files.hpp"

namespace crossfade {
namespace {

// A cell of a Markdown table. A bar would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", cell(text)); }

std::string errors_block() {
  std::string text = "| number | name | exit | meaning |\n| --- | --- | --- | --- |\n";
  for (const ErrorInfo& error : error_table()) {
    text += fmt::format("| {} | {} | {} | {} |\n", static_cast<int>(error.code), error.name,
                        error.exit_status, cell(error.meaning));
  }
  return text;
}

std::string findings_block() {
  std::string text = "| id | may be accepted | meaning |\n| --- | --- | --- |\n";
  for (const FindingInfo& finding : finding_table()) {
    text += fmt::format("| {} | {} | {} |\n", finding.id, finding.acceptable ? "yes" : "never",
                        cell(finding.meaning));
  }
  return text;
}

std::string spec_block() {
  std::string text = "| section | key | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const SpecKey& key : spec_keys()) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", key.section, code(key.name), code(key.default_text),
                        cell(key.bounds), cell(key.sentence));
  }
  return text;
}

std::string tuning_block() {
  std::string text = "| key | default | allowed | meaning |\n| --- | --- | --- | --- |\n";
  for (const TuningKey& key : tuning_keys()) {
    text += fmt::format("| {} | {} | {} | {} |\n", code(key.name), code(key.default_text), cell(key.bounds),
                        cell(key.sentence));
  }
  return text;
}

std::string page(std::string_view name) {
  return test::read_text(fmt::format("{}/docs/{}", CROSSFADE_SOURCE_FOLDER, name));
}

std::string dependents_block() {
  std::string text = "| object | | how | phase | lock | finding |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const DependentRule& rule : dependent_rules()) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(rule.object), rule.answer, cell(rule.how),
                        rule.phase, cell(rule.lock), code(rule.finding));
  }
  return text;
}

// Between the marks of a page stands exactly this table, with an empty line before and after it.
void expect_block(std::string_view page_name, std::string_view mark, const std::string& table) {
  const std::string text = page(page_name);
  const std::string begin_mark = fmt::format("<!-- {}:begin -->\n", mark);
  const std::string end_mark = fmt::format("<!-- {}:end -->", mark);
  const std::size_t begin = text.find(begin_mark);
  const std::size_t end = text.find(end_mark);
  const std::string block = "\n" + table + "\n";
  const bool marked = begin != std::string::npos && end != std::string::npos && begin < end;
  const std::size_t start = begin + begin_mark.size();
  if (marked && text.substr(start, end - start) == block) return;
  ADD_FAILURE() << "docs/" << page_name << " should hold:\n" << begin_mark << block << end_mark;
}

TEST(DocsTest, TheCliPageHoldsTheTableOfErrors) { expect_block("cli.md", "errors", errors_block()); }
TEST(DocsTest, TheCliPageHoldsTheTableOfFindings) { expect_block("cli.md", "findings", findings_block()); }
TEST(DocsTest, TheSpecPageHoldsTheTableOfKeys) { expect_block("spec.md", "spec", spec_block()); }
TEST(DocsTest, TheSpecPageHoldsTheTableOfTuningKeys) { expect_block("spec.md", "tuning", tuning_block()); }

TEST(DocsTest, TheDependentsPageHoldsTheTableOfRules) {
  expect_block("dependents.md", "dependents", dependents_block());
}

TEST(DocsTest, EveryFindingOfARuleIsAFinding) {
  for (const DependentRule& rule : dependent_rules()) {
    if (rule.finding.empty()) continue;
    EXPECT_NE(find_finding(rule.finding), nullptr) << rule.finding;
  }
}

TEST(DocsTest, TheExampleSpecsOfThePageAreValid) {
  const std::string text = page("spec.md");
  const std::string fence = "```toml\n";
  int examples = 0;
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence, at + 1)) {
    const std::size_t start = at + fence.size();
    const std::string spec = text.substr(start, text.find("```", start) - start);
    if (spec.find("[migration]") == std::string::npos) continue;
    EXPECT_NO_THROW(parse_spec(spec, "docs/spec.md")) << spec;
    ++examples;
  }
  EXPECT_GE(examples, 2);
}

TEST(DocsTest, TheCliPageDescribesEveryVerb) {
  const std::string text = page("cli.md");
  for (const std::string_view verb :
       {"init",    "adopt",   "plan",      "start",    "next",    "rollback",  "status", "list",
        "history", "pause",   "resume",    "tune",     "work",    "compare",   "diffs",  "rejects",
        "misfits", "redrive", "recapture", "findings", "machine", "completion"}) {
    EXPECT_NE(text.find(fmt::format("\n### {}\n", verb)), std::string::npos) << verb;
  }
}

}  // namespace
}  // namespace crossfade

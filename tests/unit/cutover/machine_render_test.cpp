#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "crossfade/cutover/machine.hpp"

#ifdef CROSSFADE_SOURCE_FOLDER
#include <filesystem>
#include <fstream>
#include <iterator>
#endif

namespace crossfade {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t count_of(const std::string& text, const std::string& line) {
  const auto lines = lines_of(text);
  return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), line));
}

std::string word(Phase phase) { return std::string(to_text(phase)); }

std::array<std::string, 5> cells_of(const TransitionRow& row) {
  return {word(row.from), std::string(to_text(row.event)), row.to ? word(*row.to) : "(stays)",
          std::string(row.guard), std::string(row.action)};
}

std::string label_of(const TransitionRow& row) {
  return std::string(to_text(row.event)) + " [" + std::string(row.guard) + "] / " + std::string(row.action);
}

TEST(MachineRenderTest, EveryRenderingEndsInOneNewline) {
  for (const std::string& text : {machine_markdown(), machine_mermaid(), machine_dot(), machine_text()}) {
    ASSERT_GE(text.size(), 2U);
    EXPECT_EQ(text.back(), '\n');
    EXPECT_NE(text[text.size() - 2], '\n');
  }
}

TEST(MachineRenderTest, NoLineEndsInASpace) {
  for (const std::string& text : {machine_markdown(), machine_mermaid(), machine_dot(), machine_text()})
    EXPECT_EQ(text.find(" \n"), std::string::npos) << text;
}

TEST(MachineRenderTest, MarkdownIsAHeaderAndOneLinePerRow) {
  const std::string text = machine_markdown();
  const auto lines = lines_of(text);
  ASSERT_EQ(lines.size(), transition_table().size() + 2);
  EXPECT_EQ(lines[0], "| from | event | to | guard | action |");
  EXPECT_EQ(lines[1], "| --- | --- | --- | --- | --- |");
  for (const TransitionRow& row : transition_table()) {
    std::string line = "|";
    for (const std::string& cell : cells_of(row)) line += " " + cell + " |";
    EXPECT_EQ(count_of(text, line), 1U) << line;
  }
}

TEST(MachineRenderTest, MermaidHasEveryRowAndBothEnds) {
  const std::string text = machine_mermaid();
  EXPECT_TRUE(text.starts_with("stateDiagram-v2\n"));
  for (const TransitionRow& row : transition_table()) {
    const std::string arrow = row.to ? " --> " + word(*row.to) : "";
    const std::string line = "  " + word(row.from) + arrow + " : " + label_of(row);
    EXPECT_EQ(count_of(text, line), 1U) << line;
  }
  EXPECT_EQ(count_of(text, "  [*] --> planned"), 1U);
  for (const Phase phase : kAllPhases)
    EXPECT_EQ(count_of(text, "  " + word(phase) + " --> [*]"), is_closed(phase) ? 1U : 0U) << word(phase);
}

TEST(MachineRenderTest, DotHasEveryRow) {
  const std::string text = machine_dot();
  EXPECT_TRUE(text.starts_with("digraph crossfade {\n"));
  EXPECT_TRUE(text.ends_with("}\n"));
  const auto lines = lines_of(text);
  for (const TransitionRow& row : transition_table()) {
    const std::string arrow = row.to ? " -> " + word(*row.to) : "";
    const std::string start = "  " + word(row.from) + arrow + " [label=\"";
    const auto has_row = [&](const std::string& line) {
      return line.starts_with(start) && line.find(label_of(row)) != std::string::npos;
    };
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(), has_row), 1) << start;
  }
}

TEST(MachineRenderTest, TextHasEveryRowInAlignedColumns) {
  const auto lines = lines_of(machine_text());
  ASSERT_EQ(lines.size(), transition_table().size() + 1);
  std::array<std::size_t, 5> columns{};
  constexpr std::array<std::string_view, 5> kNames{"from", "event", "to", "guard", "action"};
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = lines[0].find(kNames[i]);
  for (std::size_t i = 0; i < transition_table().size(); ++i) {
    const TransitionRow& row = transition_table()[i];
    const auto cells = cells_of(row);
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      line.resize(columns[column], ' ');
      line += cells[column];
    }
    EXPECT_EQ(lines[i + 1], line);
  }
}

#ifdef CROSSFADE_SOURCE_FOLDER

std::string phases_page() {
  std::ifstream in(std::filesystem::path(CROSSFADE_SOURCE_FOLDER) / "docs" / "phases.md");
  return {std::istreambuf_iterator<char>(in), {}};
}

// What stands between the two marks of docs/phases.md. To renew the page, copy it from the failure's output.
std::string generated_block() {
  return "\n" + machine_markdown() + "\n```mermaid\n" + machine_mermaid() + "```\n\n";
}

TEST(MachineRenderTest, ThePhasesPageShowsThisTable) {
  const std::string page = phases_page();
  const std::string begin_mark = "<!-- machine:begin -->\n";
  const std::size_t begin = page.find(begin_mark);
  const std::size_t end = page.find("<!-- machine:end -->");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::size_t start = begin + begin_mark.size();
  EXPECT_EQ(page.substr(start, end - start), generated_block());
}

TEST(MachineRenderTest, ThePhasesPageHasAHeadingForEachPhaseInOrder) {
  const std::string page = phases_page();
  std::vector<std::string> headings, phases;
  for (const std::string& line : lines_of(page))
    for (const Phase phase : kAllPhases)
      if (line == "## " + word(phase)) headings.push_back(word(phase));
  for (const Phase phase : kAllPhases) phases.push_back(word(phase));
  EXPECT_EQ(headings, phases);
}

#endif

}  // namespace
}  // namespace crossfade

// The transition table as text for people and tools, and the words of its events.
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossfade/cutover/machine.hpp"

namespace crossfade {
namespace {

constexpr std::array kAllEvents{Event::advance, Event::rollback, Event::pause, Event::resume,
                                Event::settle,  Event::fail,     Event::retry};

constexpr Phase kInitialPhase = Phase::planned;

using Cells = std::array<std::string_view, 5>;

constexpr Cells kHeader{"from", "event", "to", "guard", "action"};

Cells cells_of(const TransitionRow& row) {
  const std::string_view to = row.to ? to_text(*row.to) : "(stays)";
  return {to_text(row.from), to_text(row.event), to, row.guard, row.action};
}

// event [guard] / action, as UML writes it.
std::string label(const TransitionRow& row) {
  std::string text{to_text(row.event)};
  if (!row.guard.empty()) text += fmt::format(" [{}]", row.guard);
  if (!row.action.empty()) text += fmt::format(" / {}", row.action);
  return text;
}

std::vector<TransitionRow> internal_rows(Phase phase) {
  std::vector<TransitionRow> rows;
  for (const TransitionRow& row : transition_table())
    if (row.from == phase && !row.to) rows.push_back(row);
  return rows;
}

bool has_way_out(Phase phase) {
  const auto table = transition_table();
  return std::any_of(table.begin(), table.end(), [&](const TransitionRow& row) { return row.from == phase; });
}

std::string markdown_line(const Cells& cells) { return fmt::format("| {} |\n", fmt::join(cells, " | ")); }

}  // namespace

std::string_view to_text(Event event) {
  switch (event) {
    case Event::advance:
      return "advance";
    case Event::rollback:
      return "rollback";
    case Event::pause:
      return "pause";
    case Event::resume:
      return "resume";
    case Event::settle:
      return "settle";
    case Event::fail:
      return "fail";
    case Event::retry:
      return "retry";
  }
  return {};
}

std::optional<Event> event_from_text(std::string_view text) {
  for (const Event event : kAllEvents)
    if (to_text(event) == text) return event;
  return std::nullopt;
}

std::string machine_markdown() {
  std::string text = markdown_line(kHeader) + markdown_line({"---", "---", "---", "---", "---"});
  for (const TransitionRow& row : transition_table()) text += markdown_line(cells_of(row));
  return text;
}

// Internal transitions are lines inside the state's box: thirty loops would hide the twelve arrows.
std::string machine_mermaid() {
  std::string text = "stateDiagram-v2\n";
  for (const Phase phase : kAllPhases) {
    // The first description of a state is its title.
    text += fmt::format("  state \"{0}\" as {0}\n", to_text(phase));
    for (const TransitionRow& row : internal_rows(phase))
      text += fmt::format("  {} : {}\n", to_text(phase), label(row));
  }
  text += fmt::format("  [*] --> {}\n", to_text(kInitialPhase));
  for (const TransitionRow& row : transition_table())
    if (row.to) text += fmt::format("  {} --> {} : {}\n", to_text(row.from), to_text(*row.to), label(row));
  for (const Phase phase : kAllPhases)
    if (!has_way_out(phase)) text += fmt::format("  {} --> [*]\n", to_text(phase));
  return text;
}

std::string machine_dot() {
  std::string text = "digraph crossfade {\n  node [shape=box, style=rounded];\n";
  for (const Phase phase : kAllPhases) {
    std::string title{to_text(phase)};
    std::string lines;
    for (const TransitionRow& row : internal_rows(phase)) lines += label(row) + "\\l";
    if (!lines.empty()) title += "\\n" + lines;
    text += fmt::format("  {} [label=\"{}\"{}];\n", to_text(phase), title,
                        has_way_out(phase) ? "" : ", peripheries=2");
  }
  for (const TransitionRow& row : transition_table())
    if (row.to)
      text += fmt::format("  {} -> {} [label=\"{}\"{}];\n", to_text(row.from), to_text(*row.to), label(row),
                          row.event == Event::rollback ? ", style=dashed" : "");
  return text + "}\n";
}

std::string machine_text() {
  std::vector<Cells> lines{kHeader};
  for (const TransitionRow& row : transition_table()) lines.push_back(cells_of(row));
  std::array<std::size_t, kHeader.size()> widths{};
  for (const Cells& cells : lines)
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());

  std::string text;
  for (const Cells& cells : lines) {
    for (std::size_t i = 0; i + 1 < cells.size(); ++i) text += fmt::format("{:<{}}  ", cells[i], widths[i]);
    text += fmt::format("{}\n", cells.back());
  }
  return text;
}

}  // namespace crossfade

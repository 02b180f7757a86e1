#include "phase_argument.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/tuning.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

std::vector<std::string_view> phases_of(Event event) {
  std::vector<std::string_view> phases;
  for (const Phase phase : kAllPhases) {
    const auto has_part = [&](const TransitionRow& row) {
      // The first phase is on the way forward too, although nothing advances to it.
      return row.event == event && row.to &&
             (row.to == phase || (event == Event::advance && row.from == phase));
    };
    if (std::ranges::any_of(transition_table(), has_part)) phases.push_back(to_text(phase));
  }
  return phases;
}

std::optional<Phase> phase_argument(std::string_view option, const std::string& text, Event event) {
  if (text.empty()) return std::nullopt;
  const auto allowed = phases_of(event);
  const auto phase = phase_from_text(text);
  if (!phase) {
    std::vector<std::string_view> all;
    for (const Phase known : kAllPhases) all.push_back(to_text(known));
    const auto suggestion = nearest(text, all);
    throw Error(ErrorCode::unknown_phase,
                fmt::format("{}: there is no phase \"{}\"; known are {}.", option, one_line(text, 60),
                            fmt::join(all, ", ")),
                suggestion ? fmt::format("Did you mean \"{}\"?", *suggestion) : std::string(), text);
  }
  if (std::ranges::find(allowed, std::string_view(text)) == allowed.end()) {
    throw Error(ErrorCode::usage_error,
                fmt::format("{} cannot be {}; it takes {}.", option, text, fmt::join(allowed, ", ")), {},
                text);
  }
  return phase;
}

}  // namespace crossfade::cli

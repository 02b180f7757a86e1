// PHASE arguments: what `next --until` and `rollback --to` may name, read from the transition table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/cutover/machine.hpp"

namespace crossfade::cli {

// advance: the phases on the way forward. rollback: the phases that a way back leads to.
std::vector<std::string_view> phases_of(Event event);
// None for an empty text. Throws unknown_phase with the nearest one, usage_error for a phase that lies
// elsewhere.
std::optional<Phase> phase_argument(std::string_view option, const std::string& text, Event event);

}  // namespace crossfade::cli

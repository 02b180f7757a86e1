// Findings of a plan or a start, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/finding.hpp"
#include "output.hpp"

namespace crossfade::cli {

// Grouped by severity, the gravest first; with the words that accept a refusal where that is possible.
std::string findings_text(const std::vector<Finding>& findings, const std::vector<Acceptance>& accepted,
                          const Style& style);
Json findings_array(const std::vector<Finding>& findings);

}  // namespace crossfade::cli

// --accept ID --reason TEXT: overrides of findings, checked before anything is touched.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/finding.hpp"

namespace crossfade::cli {

struct AcceptArguments {
  std::vector<std::string> ids, reasons;  // in the order in which they were given
};

// Throws unknown_finding with the nearest id, usage_error for an id that can never be accepted or lacks its
// reason.
std::vector<Acceptance> acceptances(const AcceptArguments& arguments);

}  // namespace crossfade::cli

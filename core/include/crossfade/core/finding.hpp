// Findings: preflight facts with stable ids. Values, not exceptions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crossfade {

enum class Severity { refuse, warn, info };

struct FindingInfo {
  std::string_view id;
  bool acceptable;  // an operator may override it with --accept ID --reason TEXT
  std::string_view meaning;
};

std::span<const FindingInfo> finding_table();
// Null when the id is unknown.
const FindingInfo* find_finding(std::string_view id);

struct Finding {
  Severity severity;
  std::string id;       // one of finding_table()
  std::string object;   // the thing it names, as SQL would show it
  std::string message;  // a full sentence
  std::string hint;     // what to do
  // Although the id may be accepted, this one may not: a volatile expression, where a stable one could be.
  bool never_accepted = false;
  bool operator==(const Finding&) const = default;
};

// An operator may override it: a refusal whose id and whose own case admit it.
bool is_acceptable(const Finding& finding);

std::string_view to_text(Severity severity);

// An operator's override of one finding id, kept in the history.
struct Acceptance {
  std::string id, reason;
};

// The refusals that no acceptance covers. An id that is not acceptable is never covered.
std::vector<Finding> unaccepted(const std::vector<Finding>& findings,
                                const std::vector<Acceptance>& accepted);

}  // namespace crossfade

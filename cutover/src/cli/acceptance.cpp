#include "acceptance.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/tuning.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

namespace {

void require_acceptable(const std::string& id) {
  const FindingInfo* info = find_finding(id);
  if (info == nullptr) {
    std::vector<std::string_view> known;
    for (const FindingInfo& finding : finding_table()) known.push_back(finding.id);
    const auto suggestion = nearest(id, known);
    throw Error(ErrorCode::unknown_finding, fmt::format("There is no finding \"{}\".", one_line(id, 60)),
                suggestion ? fmt::format("Did you mean \"{}\"?", *suggestion)
                           : "crossfade findings lists all of them.",
                id);
  }
  if (info->acceptable) return;
  throw Error(ErrorCode::usage_error, fmt::format("The finding \"{}\" can never be accepted.", id),
              "Remove its cause. crossfade findings tells which ones may be accepted.", id);
}

}  // namespace

std::vector<Acceptance> acceptances(const AcceptArguments& arguments) {
  std::vector<Acceptance> accepted;
  for (const std::string& id : arguments.ids) require_acceptable(id);
  if (arguments.ids.size() != arguments.reasons.size()) {
    throw Error(ErrorCode::usage_error,
                fmt::format("Each --accept takes one --reason; there are {} and {}.", arguments.ids.size(),
                            arguments.reasons.size()),
                "Write --accept ID --reason \"why\", as often as needed. The history keeps both.");
  }
  for (std::size_t i = 0; i < arguments.ids.size(); ++i) {
    if (arguments.reasons[i].find_first_not_of(" \t\n") == std::string::npos) {
      throw Error(ErrorCode::usage_error,
                  fmt::format("The reason to accept \"{}\" is empty.", arguments.ids[i]),
                  "The history keeps it: write down why.", arguments.ids[i]);
    }
    accepted.push_back({arguments.ids[i], arguments.reasons[i]});
  }
  return accepted;
}

}  // namespace crossfade::cli

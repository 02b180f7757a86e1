// work and redrive: known words of the command line that this version refuses.
#include "verbs.hpp"

namespace crossfade::cli {

int run_work(const Command& command, const NameArguments& arguments) {
  reference(command, arguments.name);
  throw Error(ErrorCode::not_supported_yet,
              "One more worker process cannot join a migration in this version.",
              "Raise the workers of the process that runs it: crossfade tune NAME workers=N.", "work");
}

int run_redrive(const Command& command, const RedriveArguments& arguments) {
  reference(command, arguments.name);
  if (arguments.all == arguments.unit.has_value()) {
    throw Error(ErrorCode::usage_error, "redrive takes --unit N or --all, and not both.");
  }
  throw Error(ErrorCode::not_supported_yet, "Units cannot be driven again one by one in this version.",
              "crossfade diffs NAME --repair writes the rows that differ.", "redrive");
}

}  // namespace crossfade::cli

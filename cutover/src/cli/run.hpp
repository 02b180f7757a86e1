// One run of the command, from the arguments to the exit status.
#pragma once

#include <string>
#include <vector>

namespace crossfade::cli {

// `arguments` without the program's name. Never throws: every error is told and becomes its exit status.
int run(const std::vector<std::string>& arguments);

}  // namespace crossfade::cli

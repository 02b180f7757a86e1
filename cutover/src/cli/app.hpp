// The command line as CLI11 sees it: global options, verbs, their help. The one file that includes CLI11.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command.hpp"
#include "globals.hpp"

namespace crossfade::cli {

struct Invocation {
  Globals globals;
  std::function<int(const Command&)> run;
};

// `arguments` without the program's name. Reads CROSSFADE_DSN and CROSSFADE_REDIS for what was not given.
// Throws usage_error, with the nearest verb or option; repeats no word that may hold a secret.
Invocation parse(const std::vector<std::string>& arguments);

}  // namespace crossfade::cli

// The options that stand before or after every verb.
#pragma once

#include <string>

namespace crossfade::cli {

struct Globals {
  std::string dsn, redis, read_dsn, log_file, operator_name, id;
  bool json = false;
  bool quiet = false;
  bool cancel_blockers = false;
  bool terminate_blockers = false;
  int verbosity = 0;  // how often -v was given
};

}  // namespace crossfade::cli

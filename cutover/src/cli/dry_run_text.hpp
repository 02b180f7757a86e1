// What the dry run found, for people.
#pragma once

#include <string>

#include "crossfade/cutover/migrator.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

std::string dry_run_text(const ProfileReport& report, const Style& style);

}  // namespace crossfade::cli

// What the dry run found, for people.
#pragma once

#include <string>

#include "crossfade/cutover/migrator.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

// of: appended to the heading, when there are several.
std::string dry_run_text(const ProfileReport& report, const Style& style, const std::string& of = "");

}  // namespace crossfade::cli

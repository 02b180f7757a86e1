// The screen of `status`: for somebody who was woken up and has to decide.
#pragma once

#include <string>

#include "crossfade/cutover/status_report.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

// The table's name, with the one it was started under where it was renamed since.
std::string table_text(const StatusReport& report);
std::string status_text(const StatusReport& report, const Style& style);

}  // namespace crossfade::cli

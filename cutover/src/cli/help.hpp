// What stands below the options in --help: examples, and what is legal.
#pragma once

#include <string>
#include <string_view>

namespace crossfade::cli {

// Of the whole command; exit statuses and where the connection comes from.
std::string main_footer();
// Of one verb, with at least one example. Requires: `verb` is one of the verbs.
std::string verb_footer(std::string_view verb);

}  // namespace crossfade::cli

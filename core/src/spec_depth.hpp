// A guard in front of the TOML parser, which walks nested tables by recursion and would run out of stack on a
// file that nests them tens of thousands deep.
#pragma once

#include <cstddef>
#include <string_view>

namespace crossfade {

// Dots outside strings and comments: no table is nested deeper than by these and by the parser's own limit on
// brackets. On text that is not TOML the count holds up to the first error, beyond which the parser does not
// go.
std::size_t count_key_dots(std::string_view toml);

}  // namespace crossfade

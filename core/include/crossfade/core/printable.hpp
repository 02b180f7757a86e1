// Text of unknown origin, made fit for a message to a person.
#pragma once

#include <string>
#include <string_view>

namespace crossfade {

// One line without control characters, cut at a character after `longest` bytes of the original.
std::string printable(std::string_view text, std::size_t longest = 60);

}  // namespace crossfade

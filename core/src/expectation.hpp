// Reading an expectation of the dry run.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "crossfade/core/spec.hpp"

namespace crossfade {

// Counts above this cannot be compared exactly as a double once multiplied by one hundred.
inline constexpr std::int64_t kMaxExpectedCount = 90'000'000'000'000;

// "p%", "a..b" or "a%..b%"; nullopt when malformed, backwards or out of range.
std::optional<Expectation> parse_expectation(std::string_view text);

// The normal form of its value: equal expectations have equal text.
std::string canonical_text(const Expectation& expectation);

}  // namespace crossfade

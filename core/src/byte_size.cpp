#include <array>

#include "counted_unit.hpp"
#include "crossfade/core/tuning.hpp"

namespace crossfade {

namespace {

constexpr std::int64_t kStep = 1024;
constexpr std::array<CountedUnit, 5> kUnits{{{"TB", kStep* kStep* kStep* kStep},
                                             {"GB", kStep* kStep* kStep},
                                             {"MB", kStep* kStep},
                                             {"kB", kStep},
                                             {"B", 1}}};

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) { return parse_counted(text, kUnits); }

std::string format_bytes(std::int64_t bytes) { return format_counted(bytes, kUnits); }

}  // namespace crossfade

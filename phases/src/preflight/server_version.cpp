#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void server_version(const Context& context) {
  constexpr int kOldest = 140000;
  const int version = context.session.identity().version_num;
  if (version >= kOldest) return;
  context.refuse("server_version", fmt::format("PostgreSQL {}", version / 10000),
                 fmt::format("The server is PostgreSQL {}; 14 is the oldest supported.", version / 10000),
                 "Upgrade the server first.");
}

}  // namespace crossfade::checks

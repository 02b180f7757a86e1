#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void statistics_hidden(const Context& context) {
  const auto sees = context.session.exec("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')");
  if (bool_of(sees.one("role")[0])) return;
  const auto role = context.role();
  context.inform(
      "statistics_hidden", role,
      fmt::format("Role {} sees of other roles' sessions neither query nor state, so that blockers are named "
                  "by process only.",
                  role),
      fmt::format("GRANT pg_read_all_stats TO {};", role));
}

}  // namespace crossfade::checks

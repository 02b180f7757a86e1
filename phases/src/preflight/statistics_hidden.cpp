#include <fmt/format.h>

#include "checks.hpp"
#include "crossfade/shadow/pace_governor.hpp"

namespace crossfade::checks {

void statistics_hidden(const Context& context) {
  const auto sees = context.session.exec("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')");
  if (bool_of(sees.one("role")[0])) return;
  const auto role = context.role();
  const auto grant = fmt::format("GRANT pg_read_all_stats TO {};", role);
  if (const auto key = needs_statistics(context.spec.tuning); !key.empty()) {
    // Accepted, the sweep waits until the right is given: a pace that sees nothing protects nobody.
    context.refuse(
        "statistics_hidden", role,
        fmt::format("Role {} may not read what [tuning] {} needs, so that the sweep would not move.", role,
                    key),
        grant);
    return;
  }
  context.inform(
      "statistics_hidden", role,
      fmt::format("Role {} sees of other roles' sessions neither query nor state, so that blockers are named "
                  "by process only.",
                  role),
      grant);
}

}  // namespace crossfade::checks

#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

// A standby with hot_standby_feedback holds an xmin here, in its walsender or in its slot. What this role is
// not allowed to see counts as not seen, never as none.
void standby_snapshots_unseen(const Context& context) {
  const auto found = context.session.exec(R"sql(
SELECT coalesce(nullif(r.application_name, ''), 'walsender ' || r.pid), r.pid
FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
WHERE r.backend_xmin IS NULL AND s.xmin IS NULL AND s.slot_type IS DISTINCT FROM 'logical'
  AND r.state IS DISTINCT FROM 'backup' ORDER BY 1)sql");
  for (const auto& row : found.rows) {
    context.warn(
        "standby_snapshots_unseen", text_of(row[0]),
        fmt::format(
            "Standby {} (process {}) sends no feedback: a transaction there may be old enough to read "
            "the new column before it was filled, and the switch cannot see it.",
            text_of(row[0]), text_of(row[1])),
        "Set hot_standby_feedback = on there, or end its long transactions before the switch.");
  }
}

}  // namespace crossfade::checks

#include <array>
#include <vector>

#include "crossfade/core/spec.hpp"

namespace crossfade {

namespace {

constexpr std::string_view kExpectation = "a count, \"p%\", \"a..b\" or \"a%..b%\"";
constexpr std::string_view kCommand = "a command";

constexpr auto kBeforeTuning = std::to_array<SpecKey>({
    {"migration", "name", "required", "[a-z][a-z0-9_]*, at most 40 bytes", "Name of the migration."},
    {"migration", "table", "required", "schema.table as in SQL, unquoted parts folding to lower case",
     "Table whose columns are migrated."},
    {"column", "name", "required", "a column name as in SQL", "Column that is migrated."},
    {"column", "type", "required", "an SQL type", "Type of the new column."},
    {"column", "into", "absent", "another column name as in SQL, given by every column or by none",
     "Name of the new column, which then lives beside the old one; without it the column keeps its name."},
    {"column", "forward", "derived", "an SQL expression",
     "New value, computed from the columns of the table as it is."},
    {"column", "backward", "derived", "an SQL expression, only together with forward",
     "Old value, computed from the columns of the table as it will be."},
    {"column", "on_misfit", "null", "null | reject",
     "What happens to a live write whose value cannot be carried to the other side."},
    {"shadow", "kind", "column", "column | table (table only together with into)",
     "Where the new value is written."},
    {"expect", "changed", "absent", kExpectation, "Rows whose value changes."},
    {"expect", "errors", "0", kExpectation, "Rows whose forward expression fails."},
    {"expect", "lossy", "absent", kExpectation,
     "Rows whose value does not survive forward and then backward."},
});

constexpr auto kAfterTuning = std::to_array<SpecKey>({
    {"switch", "lock_timeout", "200ms", "1ms..60s",
     "Longest time that the switch may wait for and hold its locks."},
    {"switch", "attempts", "50", "1..10000", "Lock attempts before the switch gives up."},
    {"switch", "max_comparison_age", "1h", "1ms..30d",
     "Age above which a comparison is repeated before the switch."},
    {"switch", "follow_foreign_keys", "false", "true | false",
     "Whether columns that reference the migrated one are migrated with it."},
    {"switch", "trigger_probe", "all", "all | update | none",
     "Which triggers are tried under the lock of the switch, on one row and undone."},
    {"drop", "soak", "24h", "0ms..365d", "Time between the switch and the earliest drop of the old column."},
    {"drop", "archive", "none", "none | table",
     "Whether the old values are kept in a table when the column goes."},
    {"hooks", "before_planned", "absent", kCommand,
     "Runs before the migration is registered; failure vetoes."},
    {"hooks", "after_planned", "absent", kCommand, "Runs after phase planned was entered."},
    {"hooks", "before_dry_run", "absent", kCommand, "Runs before phase dry_run is entered; failure vetoes."},
    {"hooks", "after_dry_run", "absent", kCommand, "Runs after phase dry_run was entered."},
    {"hooks", "before_backfill", "absent", kCommand,
     "Runs before phase backfill is entered; failure vetoes."},
    {"hooks", "after_backfill", "absent", kCommand, "Runs after phase backfill was entered."},
    {"hooks", "before_dual_write", "absent", kCommand,
     "Runs before phase dual_write is entered; failure vetoes."},
    {"hooks", "after_dual_write", "absent", kCommand, "Runs after phase dual_write was entered."},
    {"hooks", "before_compare", "absent", kCommand, "Runs before phase compare is entered; failure vetoes."},
    {"hooks", "after_compare", "absent", kCommand, "Runs after phase compare was entered."},
    {"hooks", "before_switched", "absent", kCommand,
     "Runs before phase switched is entered; failure vetoes."},
    {"hooks", "after_switched", "absent", kCommand, "Runs after phase switched was entered."},
    {"hooks", "before_dropped", "absent", kCommand, "Runs before phase dropped is entered; failure vetoes."},
    {"hooks", "after_dropped", "absent", kCommand, "Runs after phase dropped was entered."},
    {"hooks", "before_rolled_back", "absent", kCommand,
     "Runs before phase rolled_back is entered; failure vetoes."},
    {"hooks", "after_rolled_back", "absent", kCommand, "Runs after phase rolled_back was entered."},
    {"hooks", "hook_timeout", "1min", "1s..1h", "Time after which a hook is ended and counts as failed."},
});

}  // namespace

std::span<const SpecKey> spec_keys() {
  static const std::vector<SpecKey> keys = [] {
    std::vector<SpecKey> all(kBeforeTuning.begin(), kBeforeTuning.end());
    for (const TuningKey& key : tuning_keys()) {
      all.push_back({"tuning", key.name, key.default_text, key.bounds, key.sentence});
    }
    all.insert(all.end(), kAfterTuning.begin(), kAfterTuning.end());
    return all;
  }();
  return keys;
}

}  // namespace crossfade

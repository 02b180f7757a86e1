#include "crossfade/core/finding.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace crossfade {

namespace {

// In the order in which a reader meets them: the table, the expressions, what hangs on the column, the
// application, the server, and the answers of later phases.
constexpr FindingInfo kFindings[] = {
    {"relation_not_found", false, "The table does not exist, or the role may not see it."},
    {"relation_kind", false, "The relation is not an ordinary or partitioned table."},
    {"column_not_found", false, "The table has no column of that name."},
    {"unlogged_table", false, "The table is unlogged or temporary and would be emptied by a crash."},
    {"no_usable_key", false,
     "The table has no primary key and no unique, valid, complete, immediate index over NOT NULL columns."},
    {"server_version", false, "The server is not a version that crossfade works with."},
    {"missing_privilege", false, "The role lacks a privilege that a step needs."},
    {"row_security", false, "Row-level security hides rows of the table from the role."},
    {"name_in_use", false, "A name that the migration needs is already taken."},
    {"update_rule", false,
     "A rule rewrites writes to the table, so that a written row may not be the one meant."},
    {"not_supported_yet", false, "The spec asks for something that this version cannot do."},

    {"generated_input", false,
     "An expression reads a generated column, which has no value yet in a BEFORE trigger."},
    {"expression_not_immutable", true,
     "An expression is not immutable: the same row could give another value later. Only a stable one may be "
     "accepted, never a volatile one."},
    {"expression_other_relation", false,
     "An expression reads something other than the plain columns of its own row."},
    {"expression_type", false, "The result of an expression cannot be assigned to the column's type."},
    {"backward_missing", true, "There is a forward expression and no backward one: the way is one-way."},
    {"misfit_default", true,
     "The default of the column is a value that cannot be carried to the other side."},

    {"dependent_not_carried", false,
     "Something hangs on the column that the switch cannot carry to the new one."},
    {"dependent_added", true,
     "Something was hung on the new column after the switch, or changed there; the way back would take it "
     "away."},
    {"dependent_changed", false, "Something that hangs on the column changed after it was planned for."},
    {"old_column_in_use", false,
     "Something that is not the migration's hangs on the old column, which would take it away when it is "
     "dropped."},
    {"foreign_dependents", true, "Views of other owners read the table."},
    {"published_table", true, "The table is published, and its subscribers see the change of the column."},
    {"user_trigger_fires", true, "A trigger of the user fires on each row that the sweep writes."},
    {"trigger_sorts_later", true,
     "A BEFORE trigger of the user fires after the capture and may change what was captured."},
    {"column_order", true,
     "The new column stands at the end of the table, where readers by position notice it."},
    {"star_readers", true, "A statement or function reads all columns and sees the new one too."},
    {"plpgsql_cached_types", true,
     "PL/pgSQL functions remember the old type of the column in open sessions."},
    {"twin_unique_may_reject", true, "An index on the new column may refuse rows that are valid today."},
    {"isolation_conflict", true,
     "Transactions at REPEATABLE READ or above that write a row swept after their snapshot fail with 40001."},

    {"standby_snapshots_unseen", true,
     "A standby sends no feedback, so that old snapshots on it cannot be seen from here."},
    {"statistics_hidden", true, "The role may not read the statistics of other sessions."},
    {"deadlock_timeout_short", true,
     "deadlock_timeout is so short that chunks of the sweep become small and slow."},

    {"nothing_changes", true, "The column has the new type already, and no forward expression is given."},
    {"dry_run_changed", true, "The dry run changes another number of values than expected."},
    {"dry_run_errors", true, "The dry run met another number of failing rows than expected."},
    {"dry_run_lossy", true, "The dry run lost another number of values on the way back than expected."},
    {"dry_run_collisions", true,
     "The dry run met rows that are distinct under a unique index today and equal under the new type."},
    {"rejects_open", true, "Rows whose expression fails are still open."},
    {"misfits_open", true, "Live values that cannot be carried to the other side are still open."},
    {"one_way_rollback", true,
     "Going back, a one-way migration cannot recompute the old values of rows written since."},
    {"old_snapshot", false,
     "A transaction or slot is old enough to read the shadow as it was before it was filled."},
    {"fingerprint_changed", false, "The triggers or functions that keep the two sides in step were changed."},
};

bool is_covered(const Finding& finding, const std::vector<Acceptance>& accepted) {
  return is_acceptable(finding) && std::ranges::find(accepted, finding.id, &Acceptance::id) != accepted.end();
}

}  // namespace

std::span<const FindingInfo> finding_table() { return kFindings; }

const FindingInfo* find_finding(std::string_view id) {
  const auto* row = std::ranges::find(kFindings, id, &FindingInfo::id);
  return row == std::end(kFindings) ? nullptr : row;
}

bool is_acceptable(const Finding& finding) {
  const FindingInfo* info = find_finding(finding.id);
  return info != nullptr && info->acceptable && !finding.never_accepted;
}

std::string_view to_text(Severity severity) {
  switch (severity) {
    case Severity::refuse:
      return "refuse";
    case Severity::warn:
      return "warn";
    case Severity::info:
      return "info";
  }
  std::abort();
}

std::vector<Finding> unaccepted(const std::vector<Finding>& findings,
                                const std::vector<Acceptance>& accepted) {
  std::vector<Finding> open;
  std::ranges::copy_if(findings, std::back_inserter(open), [&](const Finding& finding) {
    return finding.severity == Severity::refuse && !is_covered(finding, accepted);
  });
  return open;
}

}  // namespace crossfade

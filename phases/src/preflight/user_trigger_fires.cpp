#include <fmt/format.h>

#include "checks.hpp"
#include "crossfade/core/catalog.hpp"

namespace crossfade::checks {

namespace {

// With session_replication_role = replica the sweep passes by every trigger but those ENABLE ALWAYS or ENABLE
// REPLICA.
bool may_set_replication_role(const Context& context) {
  constexpr int kParameterPrivileges = 150000;
  const bool grantable = context.session.identity().version_num >= kParameterPrivileges;
  return bool_of(context.session
                     .exec(fmt::format(
                         "SELECT r.rolsuper{} FROM pg_roles r WHERE r.rolname = current_user",
                         grantable ? " OR has_parameter_privilege('session_replication_role', 'SET')" : ""))
                     .one("role")[0]);
}

}  // namespace

// Row and statement triggers alike: the sweep's UPDATE fires both. One with a column list does not fire,
// since the sweep sets the shadow alone, nor does one whose WHEN already asks for crossfade.sweep.
void user_trigger_fires(const Context& context) {
  const auto found = context.session.exec(fmt::format(R"sql(
SELECT t.tgname, t.tgenabled, (t.tgtype & 1) <> 0, t.tgqual IS NOT NULL, t.tgfoid::regprocedure::text
FROM pg_trigger t WHERE t.tgrelid = ANY (array_append(ARRAY(SELECT p.relid FROM {} p), $1::oid))
  AND t.tgparentid = 0 AND NOT t.tgisinternal AND (t.tgtype & 16) <> 0
  AND t.tgenabled <> 'D'
  AND t.tgattr::text = '' AND right(t.tgname::text, length($2)) <> $2
  AND pg_get_triggerdef(t.oid) NOT LIKE '%crossfade.sweep%' ORDER BY t.tgname)sql",
                                                      partition_tree_sql("$1::oid")),
                                          {context.table_oid(), context.own_suffix()});
  if (found.empty()) return;
  const bool passed_by = may_set_replication_role(context);
  for (const auto& row : found.rows) {
    const auto name = display_identifier(text_of(row[0])), enabled = text_of(row[1]);
    const bool always = enabled != "O";
    const auto message = fmt::format(
        "{} trigger {} (function {}) {}.", bool_of(row[2]) ? "Row" : "Statement", name, text_of(row[4]),
        always      ? "is enabled ALWAYS or REPLICA and fires on every write of the sweep"
        : passed_by ? "would fire on every write of the sweep, which passes by it with "
                      "session_replication_role = replica"
                    : "fires on every write of the sweep");
    const auto hint = fmt::format(
        "Exempt the sweep: create the trigger with WHEN ({}coalesce(current_setting("
        "'crossfade.sweep', true), '') = ''){}.",
        bool_of(row[3]) ? "(its condition) AND " : "",
        always || passed_by ? "" : "; or let the role set session_replication_role");
    if (passed_by && !always)
      context.warn("user_trigger_fires", name, message, hint);
    else
      context.refuse("user_trigger_fires", name, message, hint);
  }
}

}  // namespace crossfade::checks

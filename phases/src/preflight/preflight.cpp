#include "crossfade/phases/preflight.hpp"

#include <algorithm>

#include "checks.hpp"

namespace crossfade {

namespace checks {

const ColumnFacts* Context::migrated() const {
  if (column != nullptr) {
    const auto found = std::ranges::find(table.columns, column->old_attnum, &ColumnFacts::attnum);
    if (found != table.columns.end()) return &*found;
  }
  return spec.columns.empty() ? nullptr : table.column(spec.columns.front().name);
}

std::string Context::column_text() const {
  const auto* facts = migrated();
  return table_text() + (facts == nullptr ? "" : "." + display_identifier(facts->name));
}

std::string Context::own_suffix() const {
  const auto name = names.function("f");
  return name.substr(name.rfind('_'));
}

std::string Context::role() const {
  return text_of(session.exec("SELECT quote_ident(current_user)").one("role")[0]);
}

}  // namespace checks

namespace {

using Check = void (*)(const checks::Context&);

// What ends a reader's interest first: the server, the table, the column, then what the application will
// notice.
constexpr Check kChecks[] = {
    checks::server_version,       checks::relation_kind,
    checks::partitions,           checks::unlogged_table,
    checks::missing_privilege,    checks::row_security,
    checks::usable_key,           checks::name_in_use,
    checks::migrated_column,      checks::new_type,
    checks::not_supported_yet,    checks::update_rule,
    checks::user_trigger_fires,   checks::trigger_sorts_later,
    checks::published_table,      checks::column_order,
    checks::star_readers,         checks::statement_readers,
    checks::plpgsql_cached_types, checks::foreign_dependents,
    checks::isolation_conflict,   checks::standby_snapshots_unseen,
    checks::statistics_hidden,    checks::deadlock_timeout_short,
};

}  // namespace

std::vector<Finding> preflight(SqlSession& session, const Spec& spec, const TableFacts& table,
                               const std::optional<KeyFacts>& key, const ColumnBinding* column,
                               const GeneratedNames& names, Phase current) {
  std::vector<Finding> findings;
  const checks::Context context{session, spec, table, key, column, names, current, findings};
  for (const auto check : kChecks) check(context);
  return findings;
}

}  // namespace crossfade

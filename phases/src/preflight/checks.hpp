// The checks of preflight: one function and one file each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/phases/preflight.hpp"

namespace crossfade::checks {

// What a check looks at, and where it puts what it found.
class Context {
 public:
  SqlSession& session;
  const Spec& spec;
  const TableFacts& table;
  const std::optional<KeyFacts>& key;
  const ColumnBinding* column;
  const GeneratedNames& names;
  Phase current;
  std::vector<Finding>& findings;

  void refuse(std::string id, std::string object, std::string message, std::string hint) const {
    findings.push_back(
        {Severity::refuse, std::move(id), std::move(object), std::move(message), std::move(hint)});
  }
  void warn(std::string id, std::string object, std::string message, std::string hint) const {
    findings.push_back(
        {Severity::warn, std::move(id), std::move(object), std::move(message), std::move(hint)});
  }
  void inform(std::string id, std::string object, std::string message, std::string hint) const {
    findings.push_back(
        {Severity::info, std::move(id), std::move(object), std::move(message), std::move(hint)});
  }

  std::string table_text() const { return table.name.display(); }
  // The table's oid, as a parameter.
  std::string table_oid() const { return std::to_string(table.oid.value); }
  // The migrated column as it is now; null when the table has none of that name.
  const ColumnFacts* migrated() const;
  std::string column_text() const;
  // "_" and the digits of the id, which end the name of every object of the migration.
  std::string own_suffix() const;
  // The current role, quoted for a GRANT.
  std::string role() const;
};

void relation_kind(const Context& context);
void partitions(const Context& context);
void unlogged_table(const Context& context);
void server_version(const Context& context);
void missing_privilege(const Context& context);
void row_security(const Context& context);
void usable_key(const Context& context);
void name_in_use(const Context& context);
void migrated_column(const Context& context);
void new_type(const Context& context);
void not_supported_yet(const Context& context);
void update_rule(const Context& context);
void user_trigger_fires(const Context& context);
void trigger_sorts_later(const Context& context);
void published_table(const Context& context);
void column_order(const Context& context);
void star_readers(const Context& context);
void statement_readers(const Context& context);
void plpgsql_cached_types(const Context& context);
void foreign_dependents(const Context& context);
void isolation_conflict(const Context& context);
void standby_snapshots_unseen(const Context& context);
void statistics_hidden(const Context& context);
void deadlock_timeout_short(const Context& context);

}  // namespace crossfade::checks

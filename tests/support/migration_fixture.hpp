// A migration of one column, registered and captured by hand, for tests of what lies below the phases.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/state_schema.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/capture.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade::test {

inline ColumnSpec column_spec(std::string name, std::string type, std::optional<std::string> forward = {},
                              std::optional<std::string> backward = {}) {
  ColumnSpec column;
  column.name = std::move(name);
  column.type = std::move(type);
  column.forward = std::move(forward);
  column.backward = std::move(backward);
  return column;
}

class MigrationFixture {
 public:
  // Runs `ddl` under search_path public, installs schema crossfade, binds the column and registers the
  // migration (phase planned). The session is left as the door made it. Throws std::runtime_error naming what
  // was refused.
  MigrationFixture(SqlSession& session, const std::string& ddl, const ColumnSpec& column,
                   const QualifiedName& table = {"public", "t"}, const std::string& name = "m")
      : session_(session), table_(table) {
    session.script("SET search_path = public");
    session.script(ddl);
    session.script("SET search_path = pg_catalog");
    install_schema(session);
    register_migration(column, name);
  }

  // As the rows say now.
  Migration migration() { return migration_of(StateStore(session_).get(id_)); }
  const QualifiedName& table() const { return table_; }
  SqlSession& session() { return session_; }

  void set_phase(Phase phase) {
    session_.exec("UPDATE crossfade.migration SET phase = $2, status = 'running' WHERE id = $1",
                  {id_.text, std::string(to_text(phase))});
  }

  // Shadow column and forward capture; phase backfill.
  void install_capture() {
    set_phase(Phase::backfill);
    in_transaction(install_forward_sql(migration(), table_));
  }

  // What a sweep would leave: the shadow of every row whose forward expression does not fail.
  void fill_shadow() {
    const auto m = migration();
    const auto& forward = m.binding.column.forward;
    in_transaction(
        fmt::format("SELECT set_config('crossfade.sweep', {}, true);"
                    "UPDATE {} t SET {} = CASE WHEN {} IS NULL THEN {} END",
                    quote_literal(m.row.mark.text), table_.sql(), quote_identifier(m.names.new_column),
                    try_call_sql(forward, m.names, "t"), call_sql(forward, m.names, "t")));
  }

  // Runs `sql` as our own write: the capture does not see it.
  void write_unseen(const std::string& sql) {
    in_transaction(fmt::format("SELECT set_config('crossfade.sweep', {}, true);{}",
                               quote_literal(migration().row.mark.text), sql));
  }

  // Capture installed, shadow filled; phase compare.
  void prepare_compare() {
    install_capture();
    fill_shadow();
    set_phase(Phase::compare);
  }

  // The names move and the capture is reversed; phase switched.
  void switch_over() {
    const auto before = migration();
    set_phase(Phase::switched);
    const auto after = migration();
    const auto rename = [&](const std::string& from, const std::string& to) {
      return fmt::format("ALTER TABLE {} RENAME COLUMN {} TO {};", table_.sql(), quote_identifier(from),
                         quote_identifier(to));
    };
    in_transaction(remove_triggers_sql(before, table_) +
                   rename(before.names.old_column, after.names.old_column) +
                   rename(before.names.new_column, after.names.new_column) +
                   fmt::format("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL;", table_.sql(),
                               quote_identifier(after.names.old_column)) +
                   install_backward_sql(after, table_, {}));
  }

 private:
  void register_migration(const ColumnSpec& column, const std::string& name) {
    StateStore store(session_);
    Transaction transaction(session_);
    const auto facts = read_table(session_, table_);
    if (!facts) throw std::runtime_error("there is no table " + table_.display());
    id_ = store.new_id();
    std::vector<Finding> findings;
    Binding binding;
    binding.column = bind_column(session_, *facts, column, GeneratedNames(id_), findings);
    for (const auto& finding : findings) {
      if (finding.severity == Severity::refuse) throw std::runtime_error(finding.message);
    }
    const auto key = choose_key(session_, facts->oid, {binding.column.old_attnum});
    if (!key) throw std::runtime_error("table " + table_.display() + " has no key");
    binding.key = *key;
    Spec spec;
    spec.name = name;
    spec.table = table_;
    spec.columns = {column};
    MigrationRow row;
    row.id = id_;
    row.name = name;
    row.table_oid = facts->oid;
    row.table = table_;
    row.mode = spec.mode();
    row.spec_text = spec.canonical_text();
    row.spec_hash = "0";
    row.binding = to_json(binding);
    row.system_identifier = session_.identity().system_identifier;
    row.database_oid = session_.identity().database_oid;
    row.timeline = session_.identity().timeline;
    row.operator_name = "test";
    store.insert(row, spec.tuning);
    transaction.commit();
  }

  void in_transaction(const std::string& sql) { session_.script("BEGIN;" + sql + ";COMMIT"); }

  SqlSession& session_;
  QualifiedName table_;
  MigrationId id_;
};

}  // namespace crossfade::test

// The ledger: what hangs on the column, from a complete catalog inventory by oid and attnum. Each object is
// carried or refused by name; nothing is lost silently.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

enum class DependentKind { not_null, default_value, comment, index };
std::string_view to_text(DependentKind kind);

struct IndexColumn {
  int attnum = 0;
  bool descending = false, nulls_first = false;
  bool operator==(const IndexColumn&) const = default;
};

// One carried object. Members beyond kind and name are those of its kind.
struct Dependent {
  DependentKind kind = DependentKind::index;
  std::string name;                    // the index's name; else the column's
  std::optional<std::string> old_sql;  // default: the old one, as SQL. comment, index: the comment's text
  std::optional<std::string> new_sql;  // default of the new column, as SQL; absent when forward gives NULL
  std::uint32_t index_oid = 0;
  bool unique = false;
  std::vector<IndexColumn> columns;
  std::string storage_options;  // reloptions, as "fillfactor='70', …"; empty when none
  std::string tablespace;       // empty: the default one of the database
  bool operator==(const Dependent&) const = default;
};

struct Ledger {
  std::vector<Dependent> carried;
  const Dependent* find(DependentKind kind) const;  // not_null, default_value, comment: at most one
};

// Reads everything that refers to the column and splits it: carried entries, and findings for the rest
// (dependent_not_carried names each object, its kind and what to do). In the caller's transaction, because a
// default is evaluated through the bound forward function; everything made for that is undone. Repeated in a
// later phase before the switch it passes over the migration's own objects, which it knows by the id in their
// names. Requires: `column` was bound without a refusal.
Ledger take_inventory(SqlSession& session, const TableFacts& table, const ColumnBinding& column,
                      std::vector<Finding>& findings);

// What hangs on the column now and did not when the ledger was stored, or the other way round: one
// dependent_changed (refuse) for each. For the phases before the switch.
std::vector<Finding> ledger_changes(const Ledger& stored, const Ledger& found);
// A scalar SQL expression of type text that changes whenever anything that refers to the old column is added,
// removed or altered by others. Without parameters, so that it can stand in the block under the switch lock.
std::string dependents_mark_sql(const Migration& migration);

// Replaces what is stored.
void store_ledger(SqlSession& session, const MigrationId& id, const Ledger& ledger);
Ledger load_ledger(SqlSession& session, const MigrationId& id);

// --- Statements of the switch, under its lock; names are those before the statement runs ---------------

// To the new column: default, NOT NULL (by the validated check, or a NOT VALID check that is validated
// afterwards), comment and index names; taken off the old one. Run after the column names moved:
// `table`."name" is the new column.
std::string carry_over_sql(const Migration& switched, const QualifiedName& table, const Ledger& ledger,
                           bool not_null_check_valid);
// Back to the old column: the mirror image. NOT NULL returns as a NOT VALID check, which settle_not_null
// makes real; it binds every row version written from then on, so a misfit that left NULL in the old column
// must be closed first.
std::string carry_back_sql(const Migration& compare, const QualifiedName& table, const Ledger& ledger);

}  // namespace crossfade

// A spec bound to one table: what start found in the catalog and froze. Stored as
// crossfade.migration.binding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/spec.hpp"
#include "crossfade/core/state_store.hpp"

namespace crossfade {

// What the catalog proves about an expression.
enum class Totality {
  total,    // cannot fail on any value: no exception block, no try function
  guarded,  // fails exactly outside a range that a comparison tests
  partial,  // may fail
};
std::string_view to_text(Totality totality);

// One input of an expression: a column of the table, or the migrated column itself on the side the expression
// reads.
struct ExpressionInput {
  std::string column;  // the name that the expression uses
  std::string type;    // with modifier
  bool migrated = false;
  int attnum = 0;  // of the old column when migrated and forward; 0 when migrated and backward
  bool operator==(const ExpressionInput&) const = default;
};

// An expression bound as an SQL-body function of the columns that it reads, in schema crossfade.
struct Expression {
  std::string text;          // deparsed by PostgreSQL
  std::string function;      // unqualified name in schema crossfade
  std::string try_function;  // answers NULL or 'SQLSTATE message'; empty when total
  std::vector<ExpressionInput> inputs;
  Totality totality = Totality::partial;
  std::string guard_low, guard_high;  // inclusive bounds of the one input, when guarded
  bool derived = false;               // from a cast, not written by the user
  bool strict = false;                // NULL exactly for NULL, proved
  bool one_to_one = false;            // distinct inputs give distinct results, proved
  bool stable = false;                // not immutable, and accepted so
  bool pinned = false;                // its result follows settings: the function carries them
};

struct ColumnBinding {
  std::string name;
  int old_attnum = 0;
  std::string old_type, new_type;  // with modifier
  std::string new_base_type;       // without
  std::string shadow_name;         // of the new column before the switch
  std::string retired_name;        // of the old column after the switch
  bool not_null = false;           // the old column is NOT NULL: the new one becomes so
  OnMisfit on_misfit = OnMisfit::null;
  Expression forward;
  std::optional<Expression> backward;  // absent: one-way without even an assignment cast back
  bool one_way = false;
  bool follows_foreign_keys = false;  // foreign keys that refer to the column are carried by members
  // Further columns of the table that move in the same switch, each as its own migration has it, but without
  // companions.
  std::vector<ColumnBinding> companions;
};

// The column and its companions.
std::vector<const ColumnBinding*> moving_together(const ColumnBinding& column);

// A conversion that keeps every value in both directions, by proof: what is stated of the old value holds of
// the new one.
bool keeps_values(const ColumnBinding& column);
// What a unique index says of two NULLs.
enum class NullsInIndex { differ, collide };
// Proved: where two values differ, the results of `expression` (that of the column in one direction) differ
// for a unique index. A value that it cannot carry becomes NULL.
bool keeps_distinct(const std::optional<Expression>& expression, NullsInIndex nulls);
// A wider integer: total, one-to-one and in the same order, so that the column may be the key that the sweep
// goes by.
bool widens_integer(const ColumnBinding& column);

struct Binding {
  ColumnBinding column;
  KeyFacts key;
};

std::string to_json(const Binding& binding);
Binding binding_from_json(const std::string& text);

// The physical names of the two columns, which the switch exchanges.
struct PhysicalNames {
  std::string old_column, new_column;
};
PhysicalNames physical_names(const ColumnBinding& column, Phase phase);

// A migration as its users need it: row, spec, binding and names, all from one read.
struct Migration {
  MigrationRow row;
  Spec spec;
  Binding binding;
  PhysicalNames names;
  GeneratedNames generated;
};
Migration migration_of(MigrationRow row);

}  // namespace crossfade

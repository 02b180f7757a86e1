// NOT NULL on its way from one column to the other: what the ledger and the twins share.
#pragma once

#include <fmt/format.h>

#include <string>

#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// NOT NULL that is not yet, or not yet again, a property of the column. One name per side, because the check
// of the old column may still wait for its validation while a twin is built for the new one.
inline std::string new_not_null_check(const Migration& migration) {
  return migration.generated.not_null_check(migration.binding.column.name);
}
inline std::string old_not_null_check(const Migration& migration) {
  return migration.generated.not_null_check(migration.binding.column.retired_name);
}

// Binds new row versions only: no row is read under the lock.
inline std::string add_not_null_check(const std::string& check, const std::string& column) {
  return fmt::format("ADD CONSTRAINT {} CHECK ({} IS NOT NULL) NOT VALID", quote_identifier(check),
                     quote_identifier(column));
}

inline std::string validate_check_sql(const QualifiedName& table, const std::string& check) {
  return fmt::format("ALTER TABLE {} VALIDATE CONSTRAINT {};\n", table.sql(), quote_identifier(check));
}

// Two statements: in one, the check would be dropped before SET NOT NULL could rely on it.
inline std::string check_into_not_null_sql(const QualifiedName& table, const std::string& column,
                                           const std::string& check) {
  return fmt::format(
      "ALTER TABLE {0} ALTER COLUMN {1} SET NOT NULL;\n"
      "ALTER TABLE {0} DROP CONSTRAINT {2};\n",
      table.sql(), quote_identifier(column), quote_identifier(check));
}

// Before the switch a constraint on the shadow may not fail a live write: the old column must be NOT NULL,
// and forward proved to give a value for every value.
inline bool proves_not_null(const ColumnBinding& column) {
  return column.not_null && column.forward.totality == Totality::total && column.forward.strict;
}

}  // namespace crossfade

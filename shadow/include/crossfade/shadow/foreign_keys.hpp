// Foreign keys that refer to a migrated column, and the columns that must follow it.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

// One column of a foreign key with the column that it refers to.
struct ForeignKeyColumn {
  std::string constraint;
  Oid table;           // that refers
  QualifiedName name;  // its name
  int attnum = 0;
  std::string column;
  std::string definition;  // of the whole constraint, as PostgreSQL shows it
};

// Those that refer to the column, those from the table itself included, in the order of tables and names. A
// constraint that a partition has from its parent counts as the parent's.
std::vector<ForeignKeyColumn> referring_to(SqlSession& session, Oid table, int attnum);

// What refers to the column, directly or through a referring column that is itself referred to: each column
// once, the nearest first, without the column itself.
std::vector<ForeignKeyColumn> columns_that_follow(SqlSession& session, Oid table, int attnum);

}  // namespace crossfade

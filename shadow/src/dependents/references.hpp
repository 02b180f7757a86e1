// What refers to one column, as the catalog tells it: every row of pg_depend and of the catalogs that hold
// column numbers, classified but not judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

enum class ReferenceKind {
  own_default,  // the default of the column, carried by value
  not_null,     // where NOT NULL is a constraint of its own (PostgreSQL 18)
  index,        // one that backs no constraint
  constraint,   // check, unique, primary key, foreign key in either direction, exclusion
  trigger,      // column list or WHEN
  view,
  materialised_view,
  rule,
  policy,
  statistics,
  function,  // with an SQL body
  generated_column,
  own_generation,  // the column is itself generated
  sequence,        // owned, or of an identity
  publication,     // column list or row filter
  partition_key,
  unknown,  // refused like the rest: what is not recognised is not ignored
};

struct Reference {
  ReferenceKind kind = ReferenceKind::unknown;
  std::uint32_t oid = 0;
  std::string identity;         // as SQL shows it, schema-qualified
  std::string description;      // as PostgreSQL describes it, with its kind
  bool from_elsewhere = false;  // a foreign key that refers to the column
  std::string name;             // the bare one, where the catalog has it: also the publication's
};

// Objects whose names end in one of `own_suffixes` belong to the migration, or to one that moves with it, and
// are left out.
std::vector<Reference> read_references(SqlSession& session, Oid table, int attnum,
                                       const std::vector<std::string>& own_suffixes);

// What refers to the column of that name on a partition, at any depth, and is not there because the table has
// it; in the order of the partitions.
std::vector<Reference> partition_references(SqlSession& session, Oid table, const std::string& column,
                                            const std::vector<std::string>& own_suffixes);

// "_" and the id's digits, which end the name of every object of the migration; and of those of the columns
// that move together with it.
std::vector<std::string> own_suffixes(const ColumnBinding& column);

}  // namespace crossfade

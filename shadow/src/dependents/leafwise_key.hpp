// The statements of the switch for a foreign key, UNIQUE or PRIMARY KEY of a partitioned table.
#pragma once

#include <string>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

struct LeafwiseKey {
  QualifiedName table;
  Oid oid;                 // of the table
  std::string constraint;  // its name
  std::string definition;  // as PostgreSQL shows it
  SqlValue comment;
};

// Takes the constraint away, and keeps what its parts on the partitions are called.
std::string remove_leafwise_sql(const LeafwiseKey& key);
// Makes it again by the same words of the forerunners, under the names that its parts had. No row is read.
std::string create_leafwise_sql(const LeafwiseKey& key);

}  // namespace crossfade

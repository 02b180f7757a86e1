// Statements of the dry run's reader. Pure; identifiers are quoted, values are parameters.
#pragma once

#include <string>

#include "comparator_sql.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// What record_eq() finds for a type: json, point and others have no equality, only an image.
enum class Equality { by_operator, by_image };

// Answers when the type has an equality, fails with 42883 when it has none.
std::string equality_probe_sql(const std::string& type);

// One row per SQLSTATE and one with NULL for the rows that convert: sqlstate, rows, changed, nulls in, nulls
// out, lossy, respelled, message, text[] of at most ten key literals. `range`: a condition over alias t.
std::string profile_range_sql(const Migration& migration, const QualifiedName& table, Equality old_equality,
                              Tolerance tolerance, const std::string& range);

// $1: oid. Bytes of the heap, bytes of the indexes.
inline constexpr const char* kTableSizes = "SELECT pg_relation_size($1::oid), pg_indexes_size($1::oid)";

}  // namespace crossfade

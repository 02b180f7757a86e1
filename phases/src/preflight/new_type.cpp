#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

// ADD COLUMN of a domain with a constraint or a default rewrites the whole table under ACCESS EXCLUSIVE
// (tried on 15), and a pseudo-type or composite value has no cast and no "differs".
void new_type(const Context& context) {
  if (context.column == nullptr) return;
  const auto& type = context.column->new_type;
  if (context.column->forward.derived && context.column->old_type == type) {
    context.warn(
        "nothing_changes", context.column_text(),
        fmt::format("Column {} has type {} already, and without a forward expression no value changes.",
                    context.column_text(), type),
        "Write another type, or forward and backward, in [[column]].");
  }
  const auto row = context.session
                       .exec(R"sql(
WITH RECURSIVE down AS (
  SELECT t.oid, t.typbasetype, t.typtype, t.typnotnull, t.typdefault FROM pg_type t WHERE t.oid = $1::regtype
  UNION ALL SELECT t.oid, t.typbasetype, t.typtype, t.typnotnull, t.typdefault
  FROM down d JOIN pg_type t ON t.oid = d.typbasetype WHERE d.typtype = 'd')
SELECT bool_or(d.typtype = 'd' AND (d.typnotnull
               OR EXISTS (SELECT 1 FROM pg_constraint k WHERE k.contypid = d.oid))),
       bool_or(d.typdefault IS NOT NULL), bool_or(d.typtype IN ('c', 'p')) FROM down d)sql",
                             {type})
                       .one("type");
  if (bool_of(row[0])) {
    context.refuse(
        "not_supported_yet", type,
        fmt::format("Type {} is a domain with constraints: adding a column of it rewrites the whole table "
                    "under an exclusive lock.",
                    type),
        "Migrate to the domain's base type, and check its constraints in a CHECK of the table.");
  }
  if (bool_of(row[1])) {
    context.refuse(
        "not_supported_yet", type,
        fmt::format("Type {} has a default, which the new column would take for every row at once.", type),
        "Migrate to a type without a default of its own.");
  }
  if (bool_of(row[2])) {
    context.refuse(
        "not_supported_yet", type,
        fmt::format("Type {} is composite or a pseudo-type, which this version cannot migrate to.", type),
        "Choose a scalar, array, enum or range type.");
  }
}

}  // namespace crossfade::checks

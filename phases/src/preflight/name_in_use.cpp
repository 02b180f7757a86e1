#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

// Generated names carry the migration's id, so that one in use before backfill is a leftover of a restored
// database or made by hand. Found by its end, whatever object it was made for.
void name_in_use(const Context& context) {
  if (context.current != Phase::planned && context.current != Phase::dry_run) return;
  const auto found = context.session.exec(R"sql(
WITH mine AS (
  SELECT 'pg_class'::regclass AS classid, c.oid AS objid, 0 AS objsubid, c.relname AS name
    FROM pg_class c JOIN pg_class t ON t.relnamespace = c.relnamespace WHERE t.oid = $1::oid
  UNION ALL SELECT 'pg_class'::regclass, a.attrelid, a.attnum, a.attname FROM pg_attribute a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL SELECT 'pg_trigger'::regclass, g.oid, 0, g.tgname FROM pg_trigger g WHERE g.tgrelid = $1::oid
  UNION ALL SELECT 'pg_constraint'::regclass, k.oid, 0, k.conname FROM pg_constraint k
    WHERE k.conrelid = $1::oid)
SELECT (pg_identify_object(classid, objid, objsubid)).identity, pg_describe_object(classid, objid, objsubid)
FROM mine WHERE right(name::text, length($2)) = $2 ORDER BY 2)sql",
                                          {context.table_oid(), context.own_suffix()});
  for (const auto& row : found.rows) {
    context.refuse("name_in_use", text_of(row[0]),
                   fmt::format("The name of {} is one that the migration needs.", text_of(row[1])),
                   "Look who made it, and drop or rename it.");
  }
}

}  // namespace crossfade::checks

#include <fmt/format.h>

#include "checks.hpp"
#include "crossfade/core/catalog.hpp"

namespace crossfade::checks {

// PostgreSQL fires triggers of one kind by name, bytewise.
void trigger_sorts_later(const Context& context) {
  const auto found = context.session.exec(fmt::format(R"sql(
SELECT t.tgname, t.tgfoid::regprocedure::text FROM pg_trigger t
WHERE t.tgrelid = ANY (array_append(ARRAY(SELECT p.relid FROM {} p), $1::oid))
  AND t.tgparentid = 0 AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND (t.tgtype & 3) = 3
  AND (((t.tgtype & 4) <> 0 AND t.tgname::text COLLATE "C" > $2) OR ((t.tgtype & 16) <> 0
       AND t.tgname::text COLLATE "C" > $3)) AND right(t.tgname::text, length($4)) <> $4
ORDER BY t.tgname)sql",
                                                      partition_tree_sql("$1::oid")),
                                          {context.table_oid(), context.names.trigger("insert"),
                                           context.names.trigger("update"), context.own_suffix()});
  for (const auto& row : found.rows) {
    const auto name = display_identifier(text_of(row[0]));
    context.refuse(
        "trigger_sorts_later", name,
        fmt::format("BEFORE trigger {} (function {}) fires after the capture and may change what was "
                    "captured.",
                    name, text_of(row[1])),
        "ALTER TRIGGER … RENAME TO a name that sorts earlier.");
  }
}

}  // namespace crossfade::checks

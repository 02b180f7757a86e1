#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

// PL/pgSQL plans an expression once per session for the types that it met; a record's field that changes its
// type makes it fail with 42804 in that session. Trigger functions of the table, and bodies that name table
// and column.
void plpgsql_cached_types(const Context& context) {
  const auto* column = context.migrated();
  if (column == nullptr || context.column == nullptr || context.column->old_type == context.column->new_type)
    return;
  const auto found = context.session.exec(R"sql(
WITH word AS (SELECT '\m' || regexp_replace($2, '(\W)', '\\\1', 'g') || '\M' AS column_name,
                     '\m' || regexp_replace($3, '(\W)', '\\\1', 'g') || '\M' AS table_name)
SELECT p.oid::regprocedure::text
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'crossfade', word
WHERE p.prosrc ~* word.column_name AND (p.prosrc ~* word.table_name OR EXISTS (
  SELECT 1 FROM pg_trigger t WHERE t.tgrelid = $1::oid AND t.tgfoid = p.oid)) ORDER BY 1)sql",
                                          {context.table_oid(), column->name, context.table.name.name});
  for (const auto& row : found.rows) {
    context.warn(
        "plpgsql_cached_types", text_of(row[0]),
        fmt::format("Function {} names column {} and may remember its old type in open sessions after the "
                    "switch.",
                    text_of(row[0]), context.column_text()),
        "Let the sessions that call it connect again after the switch if it fails with 42804.");
  }
}

}  // namespace crossfade::checks

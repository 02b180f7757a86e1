#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

namespace {

// A guess by the text: between SELECT and its FROM, or after RETURNING, a star (not that of count(*)) or the
// column's name. Only of this database, without our own and what else reads the catalog; texts that the role
// may not see show neither table nor column.
constexpr const char* kReaders = R"sql(
WITH word AS (SELECT '\m' || regexp_replace($2, '(\W)', '\\\1', 'g') || '\M' AS table_name,
                     '(?:[^(]\*|\m' || regexp_replace($1, '(\W)', '\\\1', 'g') || '\M)' AS item),
seen AS (
  SELECT regexp_replace(btrim(s.query), '\s+', ' ', 'g') AS query, sum(s.calls) AS calls
  FROM {view} s JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database(), word
  WHERE s.query ~* word.table_name AND s.query ~* '^\s*(select|with|insert|update|delete|merge)\M'
    AND strpos(s.query, 'crossfade.') = 0
    AND s.query !~* ('\mpg_(class|attribute|proc|depend|rewrite|type|constraint|index|trigger|namespace'
                     '|stat\w*)\M')
    AND (s.query ~* ('\mselect\M(?:(?!\mfrom\M).)*?' || word.item)
      OR s.query ~* ('\mreturning\M.*?' || word.item))
  GROUP BY 1)
SELECT query, calls, count(*) OVER () FROM seen ORDER BY calls DESC, query LIMIT 10)sql";

}  // namespace

// What the server has seen of those statements that star_readers speaks of. Asked once: with many statements
// the view is not cheap, and later gates are asked under a row lock.
void statement_readers(const Context& context) {
  const auto* column = context.migrated();
  if (column == nullptr || context.current != Phase::planned) return;
  // Without the library the view cannot be read; its settings tell that it is loaded.
  const auto view = context.session.exec(
      "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_extension e JOIN pg_namespace n"
      " ON n.oid = e.extnamespace JOIN pg_class c ON c.relnamespace = n.oid"
      " WHERE e.extname = 'pg_stat_statements' AND c.relname = 'pg_stat_statements'"
      " AND current_setting('pg_stat_statements.max', true) IS NOT NULL"
      " AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')");
  if (view.empty()) return;
  std::string sql = kReaders;
  sql.replace(sql.find("{view}"), 6, text_of(view[0][0]));
  const auto found = context.session.exec(sql, {column->name, context.table.name.name});
  for (const auto& row : found.rows) {
    auto text = text_of(row[0]);
    constexpr std::size_t kShown = 300;
    if (text.size() > kShown) text = text.substr(0, text.find_last_of(' ', kShown)) + " …";
    context.inform(
        "star_readers", context.table_text(),
        fmt::format("pg_stat_statements: {} calls of a statement that seems to return column {}: {}",
                    text_of(row[1]), context.column_text(), text),
        "Where a driver keeps it prepared, it fails with 0A000 after the switch until it is prepared anew.");
  }
  if (!found.empty() && int_of(found[0][2]) > static_cast<std::int64_t>(found.size())) {
    context.inform("star_readers", context.table_text(),
                   fmt::format("pg_stat_statements holds {} such statements; shown are the {} called most.",
                               text_of(found[0][2]), found.size()),
                   "");
  }
}

}  // namespace crossfade::checks

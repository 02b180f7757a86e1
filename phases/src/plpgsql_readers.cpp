#include "plpgsql_readers.hpp"

#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {

// SECURITY is what procedures have too; COST is not.
constexpr const char* kReaders = R"sql(
WITH word AS (SELECT '\m' || regexp_replace($2, '(\W)', '\\\1', 'g') || '\M' AS column_name,
                     '\m' || regexp_replace($3, '(\W)', '\\\1', 'g') || '\M' AS table_name)
SELECT p.oid::regprocedure::text, CASE WHEN pg_has_role(p.proowner, 'USAGE') THEN
  format('ALTER ROUTINE %s SECURITY %s', p.oid::regprocedure,
         CASE WHEN p.prosecdef THEN 'DEFINER' ELSE 'INVOKER' END) END
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname <> 'crossfade', word,
LATERAL (SELECT coalesce(bool_or(t.tgrelid = $1::oid), false) AS here,
                coalesce(bool_or(t.tgrelid <> $1::oid), false) AS elsewhere
         FROM pg_trigger t WHERE t.tgfoid = p.oid) triggers
WHERE p.prosrc ~* word.column_name AND (p.prosrc ~* word.table_name OR triggers.here)
  AND NOT (triggers.here AND NOT triggers.elsewhere) ORDER BY 1)sql";

}  // namespace

std::vector<PlpgsqlReader> plpgsql_readers(SqlSession& session, Oid table, const std::string& table_name,
                                           const std::string& column) {
  std::vector<PlpgsqlReader> readers;
  for (const auto& row : session.exec(kReaders, {std::to_string(table.value), column, table_name}).rows)
    readers.push_back({text_of(row[0]), row[1].value_or("")});
  return readers;
}

std::string recompile_functions_sql(SqlSession& session, const Migration& m, const QualifiedName& table) {
  std::string sql;
  for (const auto& reader : plpgsql_readers(session, m.row.table_oid, table.name, m.binding.column.name)) {
    if (!reader.alter_sql.empty()) sql += reader.alter_sql + ";\n";
  }
  return sql;
}

}  // namespace crossfade

#include "user_triggers.hpp"

#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

std::string recreate_user_triggers_sql(SqlSession& session, const Migration& m) {
  std::string sql;
  const auto triggers = session.exec(
      "SELECT t.tgname, pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid, 'pg_trigger'),"
      " n.nspname, c.relname"
      " FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang"
      " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
      // What a partition has from the table comes with the table's.
      " WHERE t.tgrelid = ANY ($1::oid[]) AND t.tgparentid = 0 AND NOT t.tgisinternal AND (t.tgtype & 1) = 1 "
      "AND l.lanname = 'plpgsql'"
      // The capture of another column of the table is ours too.
      " AND p.pronamespace <> (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'crossfade')"
      // What is in the ledger is made again by its own words: those of now name the type that is left.
      " AND NOT EXISTS (SELECT 1 FROM crossfade.dependent d WHERE d.migration_id = $2 AND d.kind = $3"
      "  AND d.name = t.tgname) ORDER BY t.oid",
      {oid_array(tree_of(session, m.row.table_oid)), m.row.id.text,
       std::string(to_text(DependentKind::trigger))});
  for (const auto& row : triggers.rows) {
    const QualifiedName on{text_of(row[4]), text_of(row[5])};
    sql += recreate_trigger_sql(on, text_of(row[0]), text_of(row[1]), text_of(row[2]), row[3]);
  }
  return sql;
}

}  // namespace crossfade

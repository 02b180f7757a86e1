// A function that names the column may not work with its new type, and PL/pgSQL finds that out when it runs.
//
// Why twice. A trigger may refuse our UPDATE for reasons of its own (a setting that only the application
// makes, a role): then it fails before the names move, with the same SQLSTATE, and tells nothing.
//
// Why it disturbs nobody. We hold ACCESS EXCLUSIVE, so the row cannot be locked by another, and it is one
// row, found by the key. The UPDATE and all that its triggers did are undone with the subtransaction, a
// NOTIFY and deferred triggers too; what no rollback undoes (a sequence that moved on, a call out of the
// database) stays, as after any statement that failed. A trigger that waits for a lock ends the attempt, as
// every lock that is not free. Those that are deferred to COMMIT are not tried.
#include "trigger_probe.hpp"

#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

enum class Moment { before, after };

// The columns that are set: the migrated one, and those that a trigger waits for (UPDATE OF …). Empty when
// no trigger of a user fires.
std::vector<std::string> columns_to_set(SqlSession& session, const Migration& m) {
  const auto found = session.exec(
      "SELECT DISTINCT a.attname FROM pg_trigger t LEFT JOIN pg_attribute a ON a.attrelid = t.tgrelid"
      " AND a.attnum = ANY (t.tgattr) AND a.attgenerated = '' AND a.attidentity <> 'a'"
      " WHERE t.tgrelid = ANY ($3::oid[]) AND NOT t.tgisinternal AND (t.tgtype & 16) <> 0"
      " AND t.tgenabled IN ('O', 'A') AND t.tgname NOT IN ($1, $2) ORDER BY 1",
      {m.generated.trigger("insert"), m.generated.trigger("update"),
       oid_array(tree_of(session, m.row.table_oid))});
  std::vector<std::string> columns;
  if (!found.empty()) columns.push_back(m.binding.column.name);
  for (const auto& row : found.rows) {
    if (row[0] && *row[0] != m.names.old_column && *row[0] != m.names.new_column) columns.push_back(*row[0]);
  }
  return columns;
}

// The path is the role's own only while the UPDATE runs, whose own names need none.
std::string probe_sql(const Migration& m, const QualifiedName& table, const std::vector<std::string>& columns,
                      Moment moment) {
  std::string items;
  for (const auto& column : columns) {
    const auto name = quote_identifier(column);
    items += fmt::format("{}{} = t.{}", items.empty() ? "" : ", ", name, name);
  }
  // A ctid is a place in one partition.
  const auto rows = rows_sql(m.binding.key, table);
  const auto row = fmt::format("SELECT t.ctid, t.tableoid FROM {} t ORDER BY {} LIMIT 1", rows,
                               key_reverse_order_sql(m.binding.key, "t"));
  const auto update = fmt::format(
      "UPDATE {} t SET {} WHERE t.ctid OPERATOR(pg_catalog.=) $1 AND t.tableoid OPERATOR(pg_catalog.=) $2",
      rows, items);
  const auto* told =
      moment == Moment::before
          ? "PERFORM set_config('crossfade.probe_failed', state, true);"
          : "IF current_setting('crossfade.probe_failed') <> state THEN\n"
            "      RAISE EXCEPTION USING ERRCODE = 'CF004', MESSAGE = cause || ' (' || state || ')' ||"
            " coalesce(', in ' || nullif(place, ''), '');\n"
            "    END IF;";
  const auto body = fmt::format(
      "DECLARE\n  place text;\n  cause text;\n  state text;\n  row_at tid;\n  row_in oid;\nBEGIN\n"
      "  {0}EXECUTE {1} INTO row_at, row_in;\n"
      "  IF row_at IS NULL THEN RETURN; END IF;\n"
      "  BEGIN\n"
      "    IF current_setting('session_replication_role') <> 'origin' THEN\n"
      "      PERFORM set_config('session_replication_role', 'origin', true);\n"
      "    END IF;\n"
      "    PERFORM set_config('search_path', coalesce(nullif(current_setting('crossfade.search_path', true), "
      "''),"
      " current_setting('search_path')), true);\n"
      "    EXECUTE {2} USING row_at, row_in;\n"
      "    RAISE EXCEPTION USING ERRCODE = 'CF003', MESSAGE = 'undone';\n"
      "  EXCEPTION\n"
      "    WHEN SQLSTATE 'CF003' THEN NULL;\n"
      "    WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR system_error\n"
      "      OR internal_error OR lock_not_available THEN RAISE;\n"
      "    WHEN OTHERS THEN\n"
      "    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_CONTEXT, cause = MESSAGE_TEXT,"
      " state = RETURNED_SQLSTATE;\n"
      // Everything above the line that shows our own statement, whose first words are translated.
      "    place := split_part(place, {2}, 1);\n"
      "    place := replace(left(place, greatest(0, length(place) - strpos(reverse(place), E'\\n'))), E'\\n',"
      " '; ');\n"
      "    {3}\n"
      "  END;\nEND",
      moment == Moment::before ? "PERFORM set_config('crossfade.probe_failed', '', true);\n  " : "",
      quote_literal(row), quote_literal(update), told);
  return fmt::format("DO {};\n", quote_literal(body));
}

}  // namespace

TriggerProbe trigger_probe(SqlSession& session, const Migration& m, const QualifiedName& table) {
  const auto columns = columns_to_set(session, m);
  if (columns.empty()) return {};
  return {probe_sql(m, table, columns, Moment::before), probe_sql(m, table, columns, Moment::after)};
}

}  // namespace crossfade

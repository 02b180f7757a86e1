// A function that names the column may not work with its new type, and PL/pgSQL finds that out when it runs.
//
// Why twice. A trigger may refuse our statement for reasons of its own (a setting that only the application
// makes, a role): then it fails before the names move, with the same SQLSTATE, and tells nothing.
//
// Why it disturbs nobody. We hold ACCESS EXCLUSIVE, so the row cannot be locked by another, and it is one
// row, found by the key. The statement and all that its triggers did are undone with the subtransaction, a
// NOTIFY and deferred triggers too; what no rollback undoes (a sequence that moved on, a call out of the
// database) stays, as after any statement that failed. A trigger that waits for a lock ends the attempt, as
// every lock that is not free. Those that are deferred to COMMIT are not tried.
//
// An UPDATE that changes nothing is a small thing to whoever hears of it. A row that comes or goes may not
// be: INSERT and DELETE are tried only where nothing that their triggers reach can be heard outside
// (trigger_reach.cpp). The row is deleted and inserted again by one statement, so that its unique values are
// free and a foreign key without an action finds it at the end; where a foreign key to the table has an
// action, rows of other tables would go with it, and only the INSERT is tried, which its unique values refuse
// after the BEFORE triggers.
#include "trigger_probe.hpp"

#include <fmt/format.h>

#include <optional>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "trigger_reach.hpp"

namespace crossfade {

namespace {

enum class Moment { before, after };

// The statement that is tried, for the block: an SQL expression whose value is its text, with $1 and $2 for
// the place of the row.
struct Trial {
  std::string verb;       // "an UPDATE"
  std::string setting;    // remembers from the one moment to the other how it failed
  std::string statement;  // the expression
};

// Columns are set to themselves: the migrated one, and those that a trigger waits for (UPDATE OF …). Empty
// when no trigger of a user fires.
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

// A ctid is a place in one partition.
constexpr const char* kHere = "t.ctid OPERATOR(pg_catalog.=) $1 AND t.tableoid OPERATOR(pg_catalog.=) $2";

std::optional<Trial> update_trial(SqlSession& session, const Migration& m, const QualifiedName& table) {
  std::string items;
  for (const auto& column : columns_to_set(session, m)) {
    const auto name = quote_identifier(column);
    items += fmt::format("{}{} = t.{}", items.empty() ? "" : ", ", name, name);
  }
  if (items.empty()) return std::nullopt;
  return Trial{"an UPDATE", "crossfade.probe_failed",
               quote_literal(
                   fmt::format("UPDATE {} t SET {} WHERE {}", rows_sql(m.binding.key, table), items, kHere))};
}

// Every column but generated ones and those that are ours, of whatever migration: read in the moment, since
// the names move in between.
std::optional<Trial> insert_trial(SqlSession& session, const Migration& m, const QualifiedName& table) {
  const auto reach = trigger_reach(session, m);
  if (!reach.fires || !reach.harmless) return std::nullopt;
  const auto rows = rows_sql(m.binding.key, table);
  const auto columns = fmt::format(
      "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) AS list"
      " FROM pg_catalog.pg_attribute a WHERE a.attrelid = {}::oid AND a.attnum > 0 AND NOT a.attisdropped"
      " AND a.attgenerated = '' AND a.attname !~ '_cf(old|new)_[0-9a-f]{{12}}$'",
      m.row.table_oid.value);
  // The list stands twice in the statement: between these.
  std::string head, middle = ") OVERRIDING SYSTEM VALUE SELECT ", tail;
  if (reach.cascades) {
    head = fmt::format("INSERT INTO {} (", table.sql());
    tail = fmt::format(" FROM {} t WHERE {}", rows, kHere);
  } else {
    head = fmt::format("WITH gone AS (DELETE FROM {} t WHERE {} RETURNING t.*) INSERT INTO {} (", rows, kHere,
                       table.sql());
    tail = " FROM gone";
  }
  return Trial{reach.cascades ? "an INSERT" : "a DELETE or INSERT", "crossfade.probe_failed_insert",
               fmt::format("(SELECT {} || c.list || {} || c.list || {} FROM ({}) c)", quote_literal(head),
                           quote_literal(middle), quote_literal(tail), columns)};
}

// The path is the role's own only while the statement runs, whose own names need none.
std::string probe_sql(const Migration& m, const QualifiedName& table, const Trial& trial, Moment moment) {
  const auto row = fmt::format("SELECT t.ctid, t.tableoid FROM {} t ORDER BY {} LIMIT 1",
                               rows_sql(m.binding.key, table), key_reverse_order_sql(m.binding.key, "t"));
  const auto setting = quote_literal(trial.setting);
  const auto told =
      moment == Moment::before
          ? fmt::format("PERFORM set_config({}, state, true);", setting)
          : fmt::format(
                "IF current_setting({}) <> state THEN\n"
                "      RAISE EXCEPTION USING ERRCODE = 'CF004', MESSAGE = {} || cause || ' (' || "
                "state || ')' || coalesce(', in ' || nullif(place, ''), '');\n"
                "    END IF;",
                setting, quote_literal(fmt::format("{} of {} would fail: ", trial.verb, table.display())));
  const auto body = fmt::format(
      "DECLARE\n  place text;\n  cause text;\n  state text;\n  row_at tid;\n  row_in oid;\n  tried "
      "text;\nBEGIN\n"
      "  {0}EXECUTE {1} INTO row_at, row_in;\n"
      "  IF row_at IS NULL THEN RETURN; END IF;\n"
      "  tried := {2};\n"
      "  BEGIN\n"
      "    IF current_setting('session_replication_role') <> 'origin' THEN\n"
      "      PERFORM set_config('session_replication_role', 'origin', true);\n"
      "    END IF;\n"
      "    PERFORM set_config('search_path', coalesce(nullif(current_setting('crossfade.search_path', true), "
      "''),"
      " current_setting('search_path')), true);\n"
      "    EXECUTE tried USING row_at, row_in;\n"
      "    RAISE EXCEPTION USING ERRCODE = 'CF003', MESSAGE = 'undone';\n"
      "  EXCEPTION\n"
      "    WHEN SQLSTATE 'CF003' THEN NULL;\n"
      "    WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR system_error\n"
      "      OR internal_error OR lock_not_available THEN RAISE;\n"
      "    WHEN OTHERS THEN\n"
      "    GET STACKED DIAGNOSTICS place = PG_EXCEPTION_CONTEXT, cause = MESSAGE_TEXT,"
      " state = RETURNED_SQLSTATE;\n"
      // Everything above the line that shows our own statement, whose first words are translated.
      "    place := split_part(place, tried, 1);\n"
      "    place := replace(left(place, greatest(0, length(place) - strpos(reverse(place), E'\\n'))), E'\\n',"
      " '; ');\n"
      "    {3}\n"
      "  END;\nEND",
      moment == Moment::before ? fmt::format("PERFORM set_config({}, '', true);\n  ", setting) : "",
      quote_literal(row), trial.statement, told);
  return fmt::format("DO {};\n", quote_literal(body));
}

}  // namespace

TriggerProbe trigger_probe(SqlSession& session, const Migration& m, const QualifiedName& table) {
  TriggerProbe probe;
  const auto add = [&](const std::optional<Trial>& trial) {
    if (!trial) return;
    probe.before += probe_sql(m, table, *trial, Moment::before);
    probe.after += probe_sql(m, table, *trial, Moment::after);
  };
  if (m.spec.trigger_probe != TriggerTrial::none) add(update_trial(session, m, table));
  // A capture that rejects what it cannot carry would refuse the row's own value, which is no trigger's
  // doing.
  const bool rejects = m.binding.column.on_misfit == OnMisfit::reject;
  if (m.spec.trigger_probe == TriggerTrial::all && !rejects) add(insert_trial(session, m, table));
  return probe;
}

}  // namespace crossfade

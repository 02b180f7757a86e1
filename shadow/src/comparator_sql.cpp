// What the statements rest on:
//
// - Old and new value come from one version of one row, in one snapshot: a live write between two reads
// cannot make a
//   difference, because there are no two reads.
// - CASE decides before it evaluates. A failing expression is called only where its try function said that it
// does not
//   fail; neither WHERE nor AND promise that order. No argument is constant, so nothing is folded early.
// - A failing row counts as excepted only where the capture and the sweep would have left it: with NULL on
// the side that
//   could not be computed. A value there is a difference whatever is recorded.
// - record_image_ne() and IS DISTINCT FROM see NULL as a value of its own: NULL differs from '' and from
// every value.
#include "comparator_sql.hpp"

#include <fmt/format.h>

#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

namespace {

std::string column_sql(const std::string& name) { return "t." + quote_identifier(name); }
std::string old_sql(const Migration& m) { return column_sql(m.names.old_column); }
std::string new_sql(const Migration& m) { return column_sql(m.names.new_column); }

// NULL when the expression can be evaluated on the row.
std::string failure_sql(const Migration& m, const Expression& expression, Tolerance tolerance) {
  return tolerance == Tolerance::strict ? "NULL::text" : try_call_sql(expression, m.names, "t");
}

std::string forward_differs(const Migration& m) {
  return differs_sql(m.binding.column.new_type, new_sql(m), call_sql(m.binding.column.forward, m.names, "t"));
}

std::string backward_differs(const Migration& m) {
  return differs_sql(m.binding.column.old_type, old_sql(m),
                     call_sql(*m.binding.column.backward, m.names, "t"));
}

// EXISTS goes through the primary key; notes have no index on the key, so they are hashed, once and only if
// needed.
std::string open_row_sql(const Migration& m, std::string_view relation, std::string_view direction) {
  return fmt::format(
      "EXISTS (SELECT 1 FROM crossfade.{} x WHERE x.migration_id = {}::uuid AND x.key = {}"
      " AND x.state = 'open'{})",
      relation, quote_literal(m.row.id.text), key_text_sql(m.binding.key, "t"), direction);
}

std::string noted_sql(const Migration& m) {
  return fmt::format(
      "{} IN (SELECT n.key FROM crossfade.reject_note n WHERE n.migration_id = {}::uuid"
      " AND n.direction IN ('forward', 'backward'))",
      key_text_sql(m.binding.key, "t"), quote_literal(m.row.id.text));
}

// A failing forward is recorded as a reject by the sweep, as a misfit or a note by a write.
std::string recorded_forward(const Migration& m) {
  return fmt::format("({} OR {})", open_row_sql(m, "reject", ""),
                     open_row_sql(m, "misfit", " AND x.direction = 'forward'"));
}

// A row whose forward fails. On a NOT NULL column no reject is acceptable, since the switch could not carry
// the row.
std::string failing_forward(const Migration& m, const std::string& failure) {
  if (m.binding.column.not_null) return fmt::format("left({}, 5)", failure);
  return fmt::format("CASE WHEN {} IS NULL AND {} THEN {} ELSE left({}, 5) END", new_sql(m),
                     recorded_forward(m), quote_literal(kExcepted), failure);
}

std::string forward_verdict(const Migration& m, Tolerance tolerance) {
  auto verdict = fmt::format("WHEN {} THEN ''", forward_differs(m));
  if (m.binding.column.not_null) verdict += fmt::format(" WHEN {} IS NULL THEN '23502'", new_sql(m));
  const auto failure = failure_sql(m, m.binding.column.forward, tolerance);
  if (tolerance == Tolerance::strict) return fmt::format("CASE {} END", verdict);
  return fmt::format("CASE WHEN {} IS NULL THEN CASE {} END ELSE {} END", failure, verdict,
                     failing_forward(m, failure));
}

// Fine by either direction; else excepted when the side that could not be computed is NULL and the failure
// recorded.
std::string backward_verdict(const Migration& m, Tolerance tolerance) {
  const auto& column = m.binding.column;
  const auto recorded = fmt::format("({} OR {})", open_row_sql(m, "misfit", ""), noted_sql(m));
  const auto no_forward = failure_sql(m, column.forward, tolerance);
  const auto no_backward = column.backward ? failure_sql(m, *column.backward, tolerance) : "'0A000'";
  const auto fine = [](const std::string& failure, const std::string& differs) {
    return fmt::format(" WHEN CASE WHEN {} IS NULL THEN NOT {} ELSE false END THEN NULL", failure, differs);
  };
  std::string sql = "CASE" + fine(no_forward, forward_differs(m));
  if (column.backward) sql += fine(no_backward, backward_differs(m));
  sql += fmt::format(" WHEN {} IS NOT NULL AND {} IS NULL AND {} THEN {}", no_backward, old_sql(m), recorded,
                     quote_literal(kExcepted));
  // A row that was rejected before the switch, or a write to the old column by position that cannot be
  // carried.
  sql += fmt::format(" WHEN {} IS NOT NULL AND {} IS NULL AND ({} OR {}) THEN {}", no_forward, new_sql(m),
                     recorded, recorded_forward(m), quote_literal(kExcepted));
  return sql +
         (column.backward ? fmt::format(" ELSE coalesce(left({}, 5), '') END", no_backward) : " ELSE '' END");
}

struct Repair {
  std::string side, value, condition;
};

// NULL where forward fails, as the capture and the sweep leave it.
Repair forward_repair(const Migration& m) {
  auto value = call_sql(m.binding.column.forward, m.names, "t");
  if (may_fail(m, CompareDirection::forward)) {
    value = fmt::format("CASE WHEN {} IS NULL THEN {} END",
                        try_call_sql(m.binding.column.forward, m.names, "t"), value);
  }
  return {m.names.new_column, value, differs_sql(m.binding.column.new_type, new_sql(m), value)};
}

// NULL where there is no way back, as the capture leaves it. The old side of a misfit is owed nothing.
Repair backward_repair(const Migration& m) {
  const auto& backward = m.binding.column.backward;
  std::string value = "NULL";
  if (backward) {
    value = call_sql(*backward, m.names, "t");
    if (!backward->try_function.empty()) {
      value = fmt::format("CASE WHEN {} IS NULL THEN {} END", try_call_sql(*backward, m.names, "t"), value);
    }
  }
  return {m.names.old_column, value,
          fmt::format("coalesce({} <> {}, false) AND NOT {}", backward_verdict(m, Tolerance::tolerant),
                      quote_literal(kExcepted), open_row_sql(m, "misfit", ""))};
}

// What was written while the backward capture was off left no note. With one the row is looked at, and
// becomes a misfit when it cannot be carried; otherwise the note goes away.
std::string noted_by_repair_sql(const Migration& m) {
  return fmt::format(
      ",\nnoted AS (INSERT INTO crossfade.reject_note (migration_id, direction, key, sqlstate, message)"
      " SELECT {}::uuid, 'backward', $1::text[], '22000', 'found by a repair' FROM written RETURNING 1)",
      quote_literal(m.row.id.text));
}

std::string hash_sql(const std::string& value) {
  return fmt::format("coalesce(md5({}::text), 'NULL')", value);
}

}  // namespace

bool may_fail(const Migration& m, CompareDirection direction) {
  const auto& column = m.binding.column;
  if (!column.forward.try_function.empty()) return true;
  return direction == CompareDirection::backward && column.backward && !column.backward->try_function.empty();
}

std::string verdict_sql(const Migration& m, CompareDirection direction, Tolerance tolerance) {
  return direction == CompareDirection::forward ? forward_verdict(m, tolerance)
                                                : backward_verdict(m, tolerance);
}

// Of strict forms that decide by one test, without a CASE around it.
std::string has_verdict_sql(const Migration& m, CompareDirection direction, Tolerance tolerance) {
  if (direction == CompareDirection::forward && tolerance == Tolerance::strict) {
    auto sql = forward_differs(m);
    if (m.binding.column.not_null) sql += fmt::format(" OR {} IS NULL", new_sql(m));
    return sql;
  }
  return fmt::format("({}) IS NOT NULL", verdict_sql(m, direction, tolerance));
}

std::string range_counts_sql(const Migration& m, const QualifiedName& table, CompareDirection direction,
                             Tolerance tolerance, const std::string& range) {
  return fmt::format("SELECT count(*), count(*) FILTER (WHERE {}) AS \"cf verdicts\" FROM {} t WHERE {}",
                     has_verdict_sql(m, direction, tolerance), rows_sql(m.binding.key, table), range);
}

std::string range_verdicts_sql(const Migration& m, const QualifiedName& table, CompareDirection direction,
                               Tolerance tolerance, const std::string& range) {
  std::string key_columns;
  for (const auto& column : m.binding.key.columns) key_columns += column_sql(column.name) + ", ";
  // OFFSET 0 keeps the sub-select whole: the verdict is evaluated once per row, the key becomes text for
  // flagged rows.
  return fmt::format(
      "SELECT count(*), count(*) FILTER (WHERE r.\"cf verdict\" = {excepted}),"
      " count(*) FILTER (WHERE r.\"cf verdict\" <> {excepted}),"
      " coalesce((array_agg({key}::text) FILTER (WHERE r.\"cf verdict\" <> {excepted}))[1:{limit}], '{{}}')"
      " FROM (SELECT {columns}{verdict} AS \"cf verdict\" FROM {table} t WHERE {range} OFFSET 0) r",
      fmt::arg("excepted", quote_literal(kExcepted)), fmt::arg("key", key_text_sql(m.binding.key, "r")),
      fmt::arg("limit", kFlaggedKeys), fmt::arg("columns", key_columns),
      fmt::arg("verdict", verdict_sql(m, direction, tolerance)),
      fmt::arg("table", rows_sql(m.binding.key, table)), fmt::arg("range", range));
}

std::string keyed_verdicts_sql(const Migration& m, const QualifiedName& table, CompareDirection direction) {
  return fmt::format(
      "SELECT w.item, r.verdict, r.old_hash, r.new_hash FROM unnest($1::text[]) AS w (item)"
      " CROSS JOIN LATERAL (SELECT {verdict} AS verdict, {old_hash} AS old_hash, {new_hash} AS new_hash"
      " FROM {table} t WHERE {key} OFFSET 0) r",
      fmt::arg("verdict", verdict_sql(m, direction, Tolerance::tolerant)),
      fmt::arg("old_hash", hash_sql(old_sql(m))), fmt::arg("new_hash", hash_sql(new_sql(m))),
      fmt::arg("table", rows_sql(m.binding.key, table)),
      fmt::arg("key", key_equals_sql(m.binding.key, "t", "w.item::text[]")));
}

// One statement, one transaction: the row, the difference and the count become true together. `mark` is
// joined to every row that is written, so it is set before the first trigger looks at it; it is local to the
// transaction. Whoever changed the row while we waited for its lock is re-read: verdict and value are
// computed again on the new version.
std::string repair_sql(const Migration& m, const QualifiedName& table, CompareDirection direction) {
  const auto [side, value, condition] =
      direction == CompareDirection::forward ? forward_repair(m) : backward_repair(m);
  return fmt::format(
      R"sql(
WITH mark AS MATERIALIZED (SELECT pg_catalog.set_config('crossfade.sweep', $2::text, true) AS mark),
written AS (
  UPDATE {table} AS t SET {side} = {value} FROM mark
  WHERE mark.mark IS NOT NULL AND {key} AND {condition} RETURNING 1),
closed AS (
  UPDATE crossfade.difference SET repaired_at = clock_timestamp()
  WHERE pass_id = $3::bigint AND key = $1::text[] AND EXISTS (SELECT 1 FROM written) RETURNING 1){noted}
UPDATE crossfade.pass SET repairs = repairs + 1 WHERE id = $3::bigint AND EXISTS (SELECT 1 FROM closed))sql",
      fmt::arg("table", rows_sql(m.binding.key, table)), fmt::arg("side", quote_identifier(side)),
      fmt::arg("value", value), fmt::arg("key", key_equals_sql(m.binding.key, "t", "$1::text[]")),
      fmt::arg("condition", condition),
      fmt::arg("noted", direction == CompareDirection::backward ? noted_by_repair_sql(m) : std::string()));
}

std::string values_sql(const Migration& m, const QualifiedName& table) {
  return fmt::format("SELECT {}::text, {}::text FROM {} t WHERE {}", old_sql(m), new_sql(m),
                     rows_sql(m.binding.key, table), key_equals_sql(m.binding.key, "t", "$1::text[]"));
}

}  // namespace crossfade

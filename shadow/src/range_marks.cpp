// Each bound of the histogram stands for the rows between it and the one before. Those of all leaves of a
// partitioned table are mixed, each with its own weight, and a thousand of them are enough: then each is
// looked up in the index, because a bound is a value of one column and the end of a range is a whole key.
#include "range_marks.hpp"

#include <fmt/format.h>

#include "crossfade/core/identifier.hpp"
#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

constexpr int kMostMarks = 1000;
// Each is looked up in every leaf.
constexpr int kMostOfPartitions = 64;

// $1: oid of the table, $2: first column of the key. One row per point: value as text, rows.
constexpr const char* kPoints = R"sql(
WITH leaf AS (
  SELECT n.nspname, c.relname, c.reltuples FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r' AND c.reltuples > 0
    AND (c.oid = $1::oid OR c.oid IN (SELECT p.relid FROM pg_partition_tree($1::oid) p WHERE p.isleaf))),
known AS (
  SELECT b.bounds, l.reltuples / (cardinality(b.bounds) - 1) AS rows
  FROM leaf l JOIN pg_stats s ON s.schemaname = l.nspname AND s.tablename = l.relname AND s.attname = $2
    AND NOT s.inherited
  CROSS JOIN LATERAL (SELECT s.histogram_bounds::text::text[] AS bounds) b
  WHERE cardinality(b.bounds) > 1 AND s.most_common_vals IS NULL),
thin AS (SELECT greatest(ceil(sum(cardinality(bounds)) / {most}.0), 1)::int AS every FROM known)
SELECT p.value, k.rows * t.every AS rows FROM known k CROSS JOIN thin t
CROSS JOIN LATERAL unnest(k.bounds[2:]) WITH ORDINALITY AS p (value, place) WHERE p.place % t.every = 0
)sql";

}  // namespace

std::string range_marks_sql(const QualifiedName& table, const KeyFacts& key, const std::string& range) {
  const auto columns = [&](std::string_view alias) {
    std::string list;
    for (const auto& column : key.columns)
      list += fmt::format("{}{}.{}", list.empty() ? "" : ", ", alias, quote_identifier(column.name));
    return list;
  };
  const auto& first = key.columns.front();
  const auto collation = first.collation.empty() ? "" : " COLLATE " + first.collation;
  return fmt::format(
      "SELECT {key}, sum(p.rows) FROM ({points}) p CROSS JOIN LATERAL (SELECT {columns} FROM {table} t"
      " WHERE t.{first}{collation} >= p.value::{type}{collation} ORDER BY {order} LIMIT 1) r"
      " WHERE {range} GROUP BY {row} ORDER BY {row_order}",
      fmt::arg("key", key_text_sql(key, "r")),
      fmt::arg("points",
               fmt::format(kPoints, fmt::arg("most", key.partitioned ? kMostOfPartitions : kMostMarks))),
      fmt::arg("columns", columns("t")), fmt::arg("table", rows_sql(key, table)),
      fmt::arg("first", quote_identifier(first.name)), fmt::arg("collation", collation),
      fmt::arg("type", first.type_text), fmt::arg("order", key_order_sql(key, "t")), fmt::arg("range", range),
      fmt::arg("row", columns("r")), fmt::arg("row_order", key_order_sql(key, "r")));
}

RangeMarks range_marks(SqlSession& session, Oid table_oid, const QualifiedName& table, const KeyFacts& key,
                       const KeyRange& range) {
  RangeMarks found;
  const auto rows = session.exec(range_marks_sql(table, key, key_range_sql(key, "r", range)),
                                 {std::to_string(table_oid.value), key.columns.front().name});
  for (const auto& row : rows.rows) found.marks.push_back({parse_key(text_of(row[0])), double_of(row[1])});
  // At most what one of them stands for.
  if (!found.marks.empty() && range.high != found.marks.back().key)
    found.rows_after = found.marks.back().rows;
  return found;
}

}  // namespace crossfade

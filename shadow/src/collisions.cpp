// One statement per index over the whole table: groups of rows that are equal under the new type. PostgreSQL
// sorts or hashes every row of the table for it, in work_mem and then on disk; of a group only the least and
// the greatest key are kept, so that the answer is small however many rows collide. The statement holds one
// snapshot for as long as it runs; it locks nothing but ACCESS SHARE.
#include "crossfade/shadow/collisions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

namespace {

constexpr int kSamples = 5;
constexpr int kNullsNotDistinct = 150000;  // server_version_num

struct UniqueIndex {
  std::string name, bare_name, predicate;
  NullsInIndex nulls = NullsInIndex::differ;
  struct Part {
    std::string sql;  // over the alias t, or an expression that names columns plainly
    std::string collation;
  };
  std::vector<Part> parts;
};

// Valid unique indexes that have the column which bears the migrated one's name among their key columns;
// those of constraints too. (One with the column in an expression is carried only where every value is kept.)
std::vector<UniqueIndex> unique_indexes(SqlSession& session, const Migration& m) {
  const bool option = session.identity().version_num >= kNullsNotDistinct;
  const auto found = session.exec(fmt::format(R"sql(
SELECT i.indexrelid, i.indexrelid::regclass::text, c.relname,
       coalesce(pg_get_expr(i.indpred, i.indrelid), ''), {},
       coalesce('t.' || quote_ident(a.attname), '(' || pg_get_indexdef(i.indexrelid, p + 1, false) || ')'),
       coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
                 JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = i.indcollation[p]
                 AND l.oid <> coalesce(a.attcollation, 0) AND a.attname IS DISTINCT FROM $2), '')
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) p
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[p] AND a.attnum <> 0
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid
  AND EXISTS (SELECT FROM generate_series(0, i.indnkeyatts - 1) q JOIN pg_attribute o
              ON o.attrelid = i.indrelid AND o.attnum = i.indkey[q] WHERE o.attname = $2)
ORDER BY i.indexrelid, p)sql",
                                              option ? "i.indnullsnotdistinct" : "false"),
                                  {std::to_string(m.row.table_oid.value), m.binding.column.name});
  std::vector<UniqueIndex> indexes;
  std::string last;
  for (const auto& row : found.rows) {
    if (indexes.empty() || text_of(row[0]) != last) {
      const auto nulls = bool_of(row[4]) ? NullsInIndex::collide : NullsInIndex::differ;
      indexes.push_back({text_of(row[1]), text_of(row[2]), text_of(row[3]), nulls, {}});
      last = text_of(row[0]);
    }
    indexes.back().parts.push_back({text_of(row[5]), text_of(row[6])});
  }
  return indexes;
}

// A row whose expression fails collides with nothing; it is counted as an error.
std::string forward_value_sql(const Expression& forward, const PhysicalNames& names) {
  const auto call = call_sql(forward, names, "t");
  if (forward.try_function.empty()) return call;
  return fmt::format("CASE WHEN {} IS NULL THEN {} END", try_call_sql(forward, names, "t"), call);
}

std::string value_sql(const ColumnBinding& column, const PhysicalNames& names, ComparedValue value) {
  switch (value) {
    case ComparedValue::forward:
      return forward_value_sql(column.forward, names);
    case ComparedValue::shadow:
      return "t." + quote_identifier(names.new_column);
    case ComparedValue::old:
      break;
  }
  return "t." + quote_identifier(names.old_column);
}

// The rows as they would be if the value in question stood in the column of the migrated one's name, by which
// the index and its predicate call it; and so for each column that moves together with it.
std::string compared_rows_sql(SqlSession& session, const Migration& m, const QualifiedName& table,
                              ComparedValue value) {
  std::string columns, moved;
  std::set<std::string> sides;
  for (const auto* moving : moving_together(m.binding.column)) {
    const auto names = physical_names(*moving, m.row.phase);
    sides.insert({names.old_column, names.new_column});
    moved += fmt::format("{}{} AS {}", moved.empty() ? "" : ", ", value_sql(*moving, names, value),
                         quote_identifier(moving->name));
  }
  const auto found = session.exec(
      "SELECT attname FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped"
      " ORDER BY attnum",
      {std::to_string(m.row.table_oid.value)});
  for (const auto& row : found.rows) {
    const auto name = text_of(row[0]);
    if (!sides.contains(name)) columns += "t." + quote_identifier(name) + ", ";
  }
  // The key is that of the row as it is, whatever stands under the names of its columns here.
  return fmt::format("(SELECT {}{}, {} AS \"cf key\" FROM {} t) t", columns, moved,
                     key_text_sql(m.binding.key, "t"), rows_sql(m.binding.key, table));
}

std::string groups_sql(const std::string& rows, const UniqueIndex& index) {
  std::string columns, present, groups;
  int number = 0;
  for (const auto& part : index.parts) {
    const auto alias = fmt::format("cf_{}", ++number);
    columns += fmt::format(", {}{} AS {}", part.sql,
                           part.collation.empty() ? "" : " COLLATE " + part.collation, alias);
    // Two NULLs are no duplicates for most indexes.
    if (index.nulls == NullsInIndex::differ) present += fmt::format(" AND v.{} IS NOT NULL", alias);
    groups += (groups.empty() ? "v." : ", v.") + alias;
  }
  return fmt::format(
      "WITH g AS MATERIALIZED (SELECT count(*) AS n, min(v.cf_key) AS low, max(v.cf_key) AS high FROM"
      " (SELECT t.\"cf key\" AS cf_key{} FROM {}{}) v"
      " WHERE true{} GROUP BY {} HAVING count(*) > 1)"
      " SELECT (SELECT count(*) FROM g), (SELECT coalesce(sum(g.n), 0) FROM g),"
      " ARRAY(SELECT unnest(ARRAY[s.low::text, s.high::text]) FROM (SELECT g.low, g.high FROM g LIMIT {}) s)",
      columns, rows, index.predicate.empty() ? "" : " WHERE " + index.predicate, present, groups, kSamples);
}

bool is_proved(const Migration& m, const UniqueIndex& index, ComparedValue value) {
  // Whether the index has the others is not asked: then a count finds nothing.
  return std::ranges::all_of(moving_together(m.binding.column), [&](const ColumnBinding* moving) {
    return value == ComparedValue::old ? keeps_distinct(moving->backward, index.nulls)
                                       : keeps_distinct(moving->forward, index.nulls);
  });
}

}  // namespace

std::vector<CollisionCheck> collision_checks(SqlSession& session, const Migration& m,
                                             const QualifiedName& table, ComparedValue value) {
  std::vector<CollisionCheck> checks;
  const auto rows = compared_rows_sql(session, m, table, value);
  for (const auto& index : unique_indexes(session, m)) {
    checks.push_back(
        {index.name, index.bare_name, is_proved(m, index, value) ? "" : groups_sql(rows, index)});
  }
  return checks;
}

std::vector<IndexCollisions> count_collisions(SqlSession& session,
                                              const std::vector<CollisionCheck>& checks) {
  std::vector<IndexCollisions> counted;
  for (const auto& check : checks) {
    IndexCollisions collisions;
    collisions.index = check.index;
    collisions.proved = check.sql.empty();
    if (!collisions.proved) {
      const auto row = session.exec(check.sql).one("collisions");
      collisions.groups = int_of(row[0]);
      collisions.rows = int_of(row[1]);
      const auto keys = parse_array(text_of(row[2]));
      for (std::size_t i = 0; i + 1 < keys.size(); i += 2) {
        collisions.samples.emplace_back(parse_key(text_of(keys[i])), parse_key(text_of(keys[i + 1])));
      }
    }
    counted.push_back(std::move(collisions));
  }
  return counted;
}

}  // namespace crossfade

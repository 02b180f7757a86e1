// One statement per index over the whole table: groups of rows that are equal under the new type. PostgreSQL
// sorts or hashes every row of the table for it, in work_mem and then on disk; of a group only the least and
// the greatest key are kept, so that the answer is small however many rows collide. The statement holds one
// snapshot for as long as it runs; it locks nothing but ACCESS SHARE.
#include "collisions.hpp"

#include <fmt/format.h>

#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

namespace {

constexpr int kSamples = 5;
constexpr int kNullsNotDistinct = 150000;  // server_version_num

struct UniqueIndex {
  std::string name, predicate;
  bool nulls_collide = false;
  std::vector<std::pair<std::string, std::string>> columns;  // name, collation of the index or empty
};

// Valid unique indexes over plain columns of which the migrated one is one; those of constraints too. (One
// with the column in an expression cannot be judged by columns; it is refused as a dependent.)
std::vector<UniqueIndex> unique_indexes(SqlSession& session, const Migration& m) {
  const bool option = session.identity().version_num >= kNullsNotDistinct;
  const auto found =
      session.exec(fmt::format(R"sql(
SELECT i.indexrelid, i.indexrelid::regclass::text, coalesce(pg_get_expr(i.indpred, i.indrelid), ''), {},
       a.attname,
       coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
                 JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = i.indcollation[p]
                 AND l.oid <> a.attcollation), '')
FROM pg_index i CROSS JOIN LATERAL generate_series(0, i.indnkeyatts - 1) p
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[p]
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indexprs IS NULL
  AND EXISTS (SELECT FROM generate_series(0, i.indnkeyatts - 1) q WHERE i.indkey[q] = $2::int2)
ORDER BY i.indexrelid, p)sql",
                               option ? "i.indnullsnotdistinct" : "false"),
                   {std::to_string(m.row.table_oid.value), std::to_string(m.binding.column.old_attnum)});
  std::vector<UniqueIndex> indexes;
  std::string last;
  for (const auto& row : found.rows) {
    if (indexes.empty() || text_of(row[0]) != last) {
      indexes.push_back({text_of(row[1]), text_of(row[2]), bool_of(row[3]), {}});
      last = text_of(row[0]);
    }
    indexes.back().columns.emplace_back(text_of(row[4]), text_of(row[5]));
  }
  return indexes;
}

// A row whose expression fails collides with nothing; it is counted as an error.
std::string new_value_sql(const Migration& m) {
  const auto& forward = m.binding.column.forward;
  const auto call = call_sql(forward, m.names, "t");
  if (forward.try_function.empty()) return call;
  return fmt::format("CASE WHEN {} IS NULL THEN {} END", try_call_sql(forward, m.names, "t"), call);
}

std::string groups_sql(const Migration& m, const QualifiedName& table, const UniqueIndex& index) {
  std::string columns, present, groups;
  int number = 0;
  for (const auto& [name, collation] : index.columns) {
    const bool migrated = name == m.names.old_column;
    const auto value = migrated ? new_value_sql(m) : "t." + quote_identifier(name);
    const auto alias = fmt::format("cf_{}", ++number);
    columns += fmt::format(", {}{} AS {}", value,
                           migrated || collation.empty() ? "" : " COLLATE " + collation, alias);
    // Two NULLs are no duplicates for most indexes.
    if (!index.nulls_collide) present += fmt::format(" AND v.{} IS NOT NULL", alias);
    groups += (groups.empty() ? "v." : ", v.") + alias;
  }
  // The predicate names columns plainly.
  const auto rows =
      fmt::format("SELECT {} AS cf_key{} FROM {} t{}", key_text_sql(m.binding.key, "t"), columns,
                  rows_sql(m.binding.key, table), index.predicate.empty() ? "" : " WHERE " + index.predicate);
  return fmt::format(
      "WITH g AS MATERIALIZED (SELECT count(*) AS n, min(v.cf_key) AS low, max(v.cf_key) AS high FROM ({}) v"
      " WHERE true{} GROUP BY {} HAVING count(*) > 1)"
      " SELECT (SELECT count(*) FROM g), (SELECT coalesce(sum(g.n), 0) FROM g),"
      " ARRAY(SELECT unnest(ARRAY[s.low::text, s.high::text]) FROM (SELECT g.low, g.high FROM g LIMIT {}) s)",
      rows, present, groups, kSamples);
}

}  // namespace

std::vector<CollisionCheck> collision_checks(SqlSession& session, const Migration& m,
                                             const QualifiedName& table) {
  std::vector<CollisionCheck> checks;
  for (const auto& index : unique_indexes(session, m)) {
    const bool proved = m.binding.column.forward.one_to_one;
    checks.push_back({index.name, proved ? "" : groups_sql(m, table, index)});
  }
  return checks;
}

std::vector<IndexCollisions> count_collisions(SqlSession& session, const Migration& m,
                                              const QualifiedName& table) {
  std::vector<IndexCollisions> counted;
  for (const auto& check : collision_checks(session, m, table)) {
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

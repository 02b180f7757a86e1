#include "support/live_graph.hpp"

#include <fmt/format.h>

#include "support/live_family.hpp"

namespace crossfade::test {
namespace {

constexpr const char* kTables = R"sql(
SET search_path = {0};
CREATE TABLE users (id int PRIMARY KEY, n int NOT NULL DEFAULT 0);
CREATE TABLE follows (
  follower_id int REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
  followed_id int REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
  n int NOT NULL DEFAULT 0, PRIMARY KEY (follower_id, followed_id),
  CONSTRAINT apart CHECK (follower_id <> followed_id));
CREATE UNIQUE INDEX back ON follows (followed_id, follower_id DESC) INCLUDE (n);
CREATE INDEX total ON follows ((follower_id + followed_id)) WHERE followed_id > follower_id;
CREATE STATISTICS pair (ndistinct, dependencies) ON follower_id, followed_id FROM follows;
ALTER TABLE follows REPLICA IDENTITY USING INDEX back;
ALTER TABLE follows CLUSTER ON back;
COMMENT ON INDEX back IS 'who follows whom'; COMMENT ON INDEX total IS 'of both';
COMMENT ON CONSTRAINT follows_pkey ON follows IS 'one edge'; COMMENT ON STATISTICS pair IS 'both';
CREATE TABLE notes (id int PRIMARY KEY, follower_id int, followed_id int,
  CONSTRAINT edge FOREIGN KEY (follower_id, followed_id) REFERENCES follows ON UPDATE CASCADE
    ON DELETE SET NULL);
CREATE INDEX notes_edge ON notes (followed_id, follower_id) WHERE follower_id IS NOT NULL;
CREATE TABLE tree (id int PRIMARY KEY REFERENCES users ON UPDATE CASCADE ON DELETE CASCADE,
  parent_id int REFERENCES tree ON UPDATE CASCADE ON DELETE SET NULL, UNIQUE (parent_id, id));
CREATE INDEX down ON tree (parent_id, id);
CREATE VIEW edges AS SELECT f.follower_id, f.followed_id, u.n FROM follows f JOIN users u
  ON u.id = f.followed_id;
CREATE VIEW sums AS SELECT follower_id + followed_id AS both_of FROM edges;
INSERT INTO users SELECT i FROM generate_series(1, {1}) i;
INSERT INTO follows SELECT i, i % {1} + 1 FROM generate_series(1, {1}) i;
INSERT INTO follows SELECT i % {1} + 1, i FROM generate_series(1, {1}) i ON CONFLICT DO NOTHING;
INSERT INTO notes SELECT i, i, i % {1} + 1 FROM generate_series(1, {1}) i;
INSERT INTO tree SELECT i, nullif(i / 2, 0) FROM generate_series(1, {1}) i;
)sql";

std::string in_both(const std::string& statements) {
  return fmt::format("BEGIN; SET LOCAL search_path = public; {0}; SET LOCAL search_path = twin; {0}; COMMIT",
                     statements);
}

}  // namespace

std::string graph_sql(int users) {
  return fmt::format(kTables, "public", users) + "CREATE SCHEMA twin;" + fmt::format(kTables, "twin", users) +
         "SET search_path = public";
}

std::vector<std::string> graph_turn(int id, int turn) {
  const auto of = [&](const char* statements) {
    return in_both(fmt::format(fmt::runtime(statements), fmt::arg("x", id), fmt::arg("y", id + 1),
                               fmt::arg("z", id + 2), fmt::arg("moved", id + 5)));
  };
  std::vector<std::string> sent{
      of("INSERT INTO users (id) VALUES ({x}), ({y}), ({z});"
         "INSERT INTO follows (follower_id, followed_id) VALUES ({x}, {y}), ({y}, {x}), ({x}, {z});"
         "INSERT INTO notes (id, follower_id, followed_id) VALUES ({x}, {x}, {y}), ({y}, {y}, {x});"
         "INSERT INTO tree (id, parent_id) VALUES ({x}, NULL), ({y}, {x}), ({z}, {x})"),
      // Both columns of the key, in two ways at once: by a cascade from each side.
      of("UPDATE users SET id = {moved} WHERE id = {x}"),
      of("UPDATE follows SET follower_id = {z}, followed_id = {y} WHERE follower_id = {y}"),
      of("UPDATE follows SET n = n + 1 WHERE follower_id = {moved}; UPDATE tree SET parent_id = {y} WHERE"
         " id = {z}"),
      of("INSERT INTO follows (follower_id, followed_id) VALUES ({moved}, {y}) ON CONFLICT DO NOTHING; "
         "INSERT INTO follows (follower_id, followed_id, n) VALUES"
         " ({moved}, {z}, 7) ON CONFLICT (follower_id, followed_id) DO UPDATE SET n = excluded.n"),
      of("DELETE FROM follows WHERE followed_id = {z}; INSERT INTO follows (followed_id, follower_id) VALUES"
         " ({z}, {moved})"),
      of("DELETE FROM users WHERE id = {y}")};
  if (turn % 3 != 0) sent.push_back(of("DELETE FROM users WHERE id IN ({moved}, {z})"));
  return sent;
}

std::string graph_difference_sql() {
  std::string sql;
  for (const auto& [table, columns] : {std::pair("users", "id::bigint, n"),
                                       {"follows", "follower_id::bigint, followed_id::bigint, n"},
                                       {"notes", "id, follower_id::bigint, followed_id::bigint"},
                                       {"tree", "id::bigint, parent_id::bigint"}}) {
    for (const auto& [one, other] : {std::pair("public", "twin"), {"twin", "public"}}) {
      sql += fmt::format(
          "{0}SELECT count(*) AS n FROM (SELECT {1} FROM {3}.{2} EXCEPT ALL SELECT {1} FROM"
          " {4}.{2}) d",
          sql.empty() ? "" : " UNION ALL ", columns, table, one, other);
    }
  }
  return "SELECT sum(n) FROM (" + sql + ") x";
}

std::string graph_columns_sql() {
  return R"sql(
SELECT format('%s.%s', m.table_oid::regclass, b ->> 'name'),
  format('SELECT count(*) FROM %s WHERE %I::bigint IS DISTINCT FROM %I::bigint', m.table_oid::regclass,
    CASE m.phase WHEN 'switched' THEN b ->> 'retired_name' ELSE b ->> 'name' END,
    CASE m.phase WHEN 'switched' THEN b ->> 'name' ELSE b ->> 'shadow_name' END)
FROM crossfade.migration m, LATERAL (SELECT m.binding::jsonb -> 'column' AS b) x
WHERE m.phase IN ('backfill', 'dual_write', 'compare', 'switched'))sql";
}

}  // namespace crossfade::test

// Several workers of one reader read ranges of one pass, so ranges are committed in any order, and what a
// death leaves open may lie between them. Their order is that of the key, which PostgreSQL tells.
//
// A pass has one reader at a time. Who goes on with a pass puts its own id into the row; a statement that
// stores ranges takes a share lock of that row and looks for the id under it. So the ranges of a runner that
// was superseded are committed before the successor looks what is open, or never.
#include "read_pass.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

constexpr const char* kPass =
    "SELECT p.id, p.kind, p.direction, p.state, p.began_at, coalesce(p.ended_at::text, ''),"
    " coalesce(p.fingerprint::text, ''), p.result::text, p.rows_read, p.rows_written, p.differences, "
    "p.excepted,"
    " p.repairs, coalesce(extract(epoch FROM clock_timestamp() - p.ended_at), 0)::float8 FROM crossfade.pass "
    "p ";

PassRow pass_of(const SqlResult::Row& row) {
  PassRow pass;
  pass.id = int_of(row[0]);
  pass.kind = text_of(row[1]);
  pass.direction = text_of(row[2]);
  pass.state = text_of(row[3]);
  pass.began_at = text_of(row[4]);
  pass.ended_at = text_of(row[5]);
  pass.fingerprint = text_of(row[6]);
  pass.result = text_of(row[7]);
  pass.rows_read = int_of(row[8]);
  pass.rows_written = int_of(row[9]);
  pass.differences = int_of(row[10]);
  pass.excepted = int_of(row[11]);
  pass.repairs = int_of(row[12]);
  pass.age_seconds = double_of(row[13]);
  return pass;
}

Error no_longer_runs(std::int64_t pass) {
  return Error(ErrorCode::superseded,
               fmt::format("Pass {} was voided or is being read by another runner.", pass),
               "Run the command again; it continues the running pass or opens a new one.");
}

// One value per range or difference, as an array for unnest().
template <class Item, class Field>
SqlValue column_of(const std::vector<Item>& items, Field field) {
  std::vector<std::optional<std::string>> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(field(item));
  return array_literal(values);
}

std::optional<std::string> literal_of(const std::optional<Key>& key) {
  if (!key) return std::nullopt;
  return array_literal(*key);
}

constexpr const char* kStore = R"sql(
WITH durable AS MATERIALIZED (SELECT set_config('synchronous_commit', 'on', true) AS setting),
alive AS MATERIALIZED (
  SELECT p.id FROM crossfade.pass p, durable
  WHERE p.id = $1::bigint AND p.state = 'running' AND p.result->>'reader' = $14
    AND durable.setting IS NOT NULL FOR SHARE OF p),
kept AS (
  INSERT INTO crossfade.comparison (pass_id, number, low, high, rows_read, differences, excepted, result)
  SELECT a.id, r.number, r.low::text[], r.high::text[], r.rows_read, r.differences, r.excepted, r.result
  FROM alive a, unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
                       $8::jsonb[]) AS r (number, low, high, rows_read, differences, excepted, result)
  RETURNING number),
found AS (
  INSERT INTO crossfade.difference (pass_id, key, old_hash, new_hash, sqlstate)
  SELECT a.id, d.key::text[], d.old_hash, d.new_hash, d.sqlstate
  FROM alive a, unnest($9::text[], $10::text[], $11::text[], $12::text[])
                AS d (key, old_hash, new_hash, sqlstate)
  LIMIT $13::bigint
  ON CONFLICT (pass_id, key) DO NOTHING
  RETURNING key)
SELECT (SELECT count(*) FROM kept), (SELECT count(*) FROM found))sql";

// The ranges of a pass in the order of the key. The first one is open below.
std::string placed_sql(const KeyFacts& key) {
  return fmt::format(
      "SELECT c.number, c.low, c.high, c.rows_read, c.differences, c.excepted, lag(c.high) OVER w AS before,"
      " row_number() OVER w AS place, count(*) OVER () AS of_all"
      " FROM crossfade.comparison c WHERE c.pass_id = $1::bigint"
      " WINDOW w AS (ORDER BY c.low IS NOT NULL, {}, c.number)",
      key_array_order_sql(key, "c.low"));
}

// A pass is whole when the first range is open below, the last one open above, and each begins where the one
// before it ended. Without ranges the aggregate is NULL, and the pass does not end.
std::string end_sql(const KeyFacts& key) {
  return fmt::format(R"sql(
WITH placed AS ({}),
sums AS (
  SELECT sum(rows_read) AS rows_read, sum(differences) AS differences, sum(excepted) AS excepted,
         bool_and(CASE WHEN place = 1 THEN low IS NULL ELSE coalesce(low = before, false) END
                  AND (high IS NULL) = (place = of_all)) AS tile
  FROM placed)
UPDATE crossfade.pass p SET state = 'ended', ended_at = clock_timestamp(), rows_read = s.rows_read,
       differences = s.differences, excepted = s.excepted
FROM sums s WHERE p.id = $1::bigint AND p.state = 'running' AND s.tile)sql",
                     placed_sql(key));
}

// What lies before the first range, between two, and behind the last one. Absent bounds are open.
std::string open_sql(const KeyFacts& key) {
  return fmt::format(
      "WITH placed AS ({}) SELECT o.low, o.high FROM ("
      " SELECT place, before AS low, low AS high FROM placed"
      " WHERE CASE WHEN place = 1 THEN low IS NOT NULL ELSE low IS DISTINCT FROM before END"
      " UNION ALL SELECT of_all + 1, high, NULL FROM placed WHERE place = of_all AND high IS NOT NULL"
      " UNION ALL SELECT 1, NULL, NULL WHERE NOT EXISTS (SELECT FROM placed)) o ORDER BY o.place",
      placed_sql(key));
}

std::optional<Key> key_of(const SqlValue& value) {
  return value ? std::optional(parse_key(*value)) : std::nullopt;
}

}  // namespace

std::optional<PassRow> newest_pass(SqlSession& session, const MigrationId& id, std::string_view kind,
                                   std::string_view direction) {
  const auto found = session.exec(
      fmt::format(
          "{}WHERE p.migration_id = $1 AND p.kind = $2 AND p.direction = $3 ORDER BY p.id DESC LIMIT 1",
          kPass),
      {id.text, std::string(kind), std::string(direction)});
  if (found.empty()) return std::nullopt;
  return pass_of(found[0]);
}

void void_passes(SqlSession& session, const MigrationId& id, std::string_view kind) {
  session.exec(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = $1 AND kind = $2 AND state <> 'void'",
      {id.text, std::string(kind)});
}

PassRow open_read_pass(SqlSession& session, const Migration& migration, const QualifiedName& table,
                       std::string_view kind, std::string_view direction, const std::string& fingerprint,
                       const std::string& reader) {
  const auto running = fmt::format(
      "{}WHERE p.migration_id = $1 AND p.kind = $2 AND p.direction = $3 AND p.state = 'running'"
      " ORDER BY p.id DESC LIMIT 1",
      kPass);
  const SqlParams which{migration.row.id.text, std::string(kind), std::string(direction)};
  const auto found = session.exec(running, which);
  if (!found.empty()) return pass_of(found[0]);
  nlohmann::json result{{"reader", reader}};
  if (const auto high = greatest_key(session, table, migration.binding.key)) {
    result["opening_high"] = array_literal(*high);
  }
  auto values = which;
  values.push_back(fingerprint.empty() ? SqlValue() : SqlValue(fingerprint));
  values.push_back(result.dump());
  session.exec(
      "INSERT INTO crossfade.pass (migration_id, kind, direction, fingerprint, result)"
      " VALUES ($1, $2, $3, $4::jsonb, $5::jsonb)",
      values);
  return pass_of(session.exec(running, which).one("the new pass"));
}

std::string new_reader() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", random());
  return id;
}

bool is_claimed(const PassRow& pass, const std::string& reader) {
  return nlohmann::json::parse(pass.result).value("reader", std::string()) == reader;
}

void claim_pass(SqlSession& session, std::int64_t pass, const std::string& reader) {
  const auto claimed = session.exec(
      "UPDATE crossfade.pass SET result = result || jsonb_build_object('reader', $2::text)"
      " WHERE id = $1::bigint AND state <> 'void'",
      {std::to_string(pass), reader});
  if (claimed.affected_rows == 0) throw no_longer_runs(pass);
}

PassPosition position_of(SqlSession& session, std::int64_t pass, const KeyFacts& key) {
  const SqlParams id{std::to_string(pass)};
  const auto row = session
                       .exec(R"sql(
SELECT p.state, p.result->>'opening_high',
       coalesce((SELECT max(c.number) FROM crossfade.comparison c WHERE c.pass_id = p.id), 0)::bigint,
       coalesce((SELECT sum(c.rows_read) FROM crossfade.comparison c WHERE c.pass_id = p.id), 0)::bigint,
       (SELECT count(*) FROM crossfade.difference d WHERE d.pass_id = p.id)
FROM crossfade.pass p WHERE p.id = $1::bigint)sql",
                             id)
                       .one("the pass");
  PassPosition position;
  position.state = text_of(row[0]);
  if (position.state == "void") throw no_longer_runs(pass);
  position.opening_high = key_of(row[1]);
  position.next_number = int_of(row[2]) + 1;
  position.rows_read = int_of(row[3]);
  position.stored_differences = int_of(row[4]);
  for (const auto& gap : session.exec(open_sql(key), id).rows)
    position.open.push_back({key_of(gap[0]), key_of(gap[1])});
  return position;
}

std::int64_t store_ranges(SqlSession& session, std::int64_t pass, const std::string& reader,
                          const std::vector<RangeRow>& ranges, const std::vector<DifferenceRow>& differences,
                          std::int64_t room) {
  const auto number = [](std::int64_t RangeRow::*member) {
    return [member](const RangeRow& r) { return std::optional(std::to_string(r.*member)); };
  };
  const auto text = [](std::string DifferenceRow::*member) {
    return [member](const DifferenceRow& d) { return std::optional(d.*member); };
  };
  const SqlParams params{
      std::to_string(pass),
      column_of(ranges, number(&RangeRow::number)),
      column_of(ranges, [](const RangeRow& r) { return literal_of(r.range.low); }),
      column_of(ranges, [](const RangeRow& r) { return literal_of(r.range.high); }),
      column_of(ranges, number(&RangeRow::rows_read)),
      column_of(ranges, number(&RangeRow::differences)),
      column_of(ranges, number(&RangeRow::excepted)),
      column_of(ranges, [](const RangeRow& r) { return std::optional(r.result); }),
      column_of(differences, [](const DifferenceRow& d) { return std::optional(array_literal(d.key)); }),
      column_of(differences, text(&DifferenceRow::old_hash)),
      column_of(differences, text(&DifferenceRow::new_hash)),
      column_of(differences,
                [](const DifferenceRow& d) {
                  return d.sqlstate.empty() ? std::nullopt : std::optional(d.sqlstate);
                }),
      std::to_string(std::max<std::int64_t>(room, 0)),
      reader};
  const auto stored = session.exec(kStore, params).one("the ranges");
  if (int_of(stored[0]) != static_cast<std::int64_t>(ranges.size())) throw no_longer_runs(pass);
  return int_of(stored[1]);
}

void end_pass(SqlSession& session, std::int64_t pass, const KeyFacts& key) {
  const SqlParams id{std::to_string(pass)};
  if (session.exec(end_sql(key), id).affected_rows == 1) return;
  if (session.exec("UPDATE crossfade.pass SET state = 'void' WHERE id = $1::bigint AND state = 'running'", id)
          .affected_rows == 0) {
    position_of(session, pass, key);  // throws when it is void; otherwise another runner ended it
    return;
  }
  throw Error(ErrorCode::internal_error,
              fmt::format("The ranges of pass {} do not tile the key space; the pass is void.", pass),
              "Run the command again; it reads everything again.");
}

void prune_ranges(SqlSession& session, std::int64_t pass) {
  session.exec(R"sql(
DELETE FROM crossfade.comparison WHERE pass_id IN (
  SELECT o.id FROM crossfade.pass o JOIN crossfade.pass p USING (migration_id, kind, direction)
  WHERE p.id = $1::bigint AND o.id <= p.id AND o.state <> 'running'
  ORDER BY o.id DESC OFFSET 3))sql",
               {std::to_string(pass)});
}

}  // namespace crossfade

#include "crossfade/shadow/units.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "sweep_order.hpp"

namespace crossfade {

namespace {

// A unit of a small table is small, so that there are several for the workers; that of a large one has room
// for windows whose pieces outweigh the fixed cost of a chunk. Whoever has nothing to do is given a part of
// one.
constexpr int kMostUnits = 64;
constexpr std::int64_t kRowsOfSmallUnit = 5000;
constexpr std::int64_t kFewUnits = 8;
constexpr std::int64_t kRowsOfLargeUnit = 200'000;
// Enough sampled keys for even quantiles; a sample reads whole pages, so tiny tables are read whole.
constexpr double kSampledRows = 6400;

struct TableSize {
  std::int64_t rows = 0, units = 1;
};

// Of one relation: the table itself, or a leaf of it.
TableSize size_of(SqlSession& session, Oid relation, std::int64_t most) {
  const auto size = session
                        .exec(
                            "SELECT greatest(c.reltuples, 0)::bigint, pg_relation_size(c.oid) FROM pg_class "
                            "c WHERE c.oid = $1::oid",
                            {std::to_string(relation.value)})
                        .one("table");
  // reltuples is 0 or -1 before the first ANALYZE: then guess from the size, at a narrow row.
  const auto rows = std::max(int_of(size[0]), int_of(size[1]) / 100);
  const auto units =
      std::max(std::clamp<std::int64_t>(rows / kRowsOfSmallUnit, 1, kFewUnits), rows / kRowsOfLargeUnit);
  return {rows, std::min(units, most)};
}

std::vector<Key> quantiles(SqlSession& session, const Migration& m, const QualifiedName& table,
                           const TableSize& size, const Key& high) {
  const auto [rows, units] = size;
  std::vector<Key> bounds;
  if (units == 1) return bounds;
  const double percent = std::clamp(100.0 * kSampledRows / static_cast<double>(rows), 0.0001, 100.0);
  const auto& key = m.binding.key;
  const auto sampled = session.exec(
      fmt::format("SELECT k FROM (SELECT k, row_number() OVER w AS n, count(*) OVER () AS total,"
                  " row_number() OVER w * $2::bigint / (count(*) OVER () + 1) AS slot FROM"
                  " (SELECT {} AS k FROM ONLY {} t TABLESAMPLE SYSTEM ({:.6f}) WHERE {} AND NOT {}) s"
                  " WINDOW w AS (ORDER BY {})) q"
                  " WHERE slot > 0 AND slot > (n - 1) * $2::bigint / (total + 1) ORDER BY n",
                  key_text_sql(key, "t"), table.sql(), percent, key_range_sql(key, "t", "", "$1::text[]"),
                  key_equals_sql(key, "t", "$1::text[]"), key_array_order_sql(key, "s.k")),
      {array_literal(high), std::to_string(units)});
  for (const auto& row : sampled.rows) bounds.push_back(parse_key(text_of(row[0])));
  return bounds;
}

void plan_keys(SqlSession& session, const Migration& m, Oid relation, const QualifiedName& name,
               const Key& high, std::int64_t most, std::vector<PlannedUnit>& units) {
  auto bounds = quantiles(session, m, name, size_of(session, relation, most), high);
  bounds.push_back(high);
  std::optional<Key> low;
  for (auto& bound : bounds) {
    units.push_back({relation, low, bound, {}});
    low = std::move(bound);
  }
}

// A relation of which every row that is older than the capture lies in the first blocks of one storage.
void plan_blocks(SqlSession& session, Oid relation, const CountedBlocks& counted, std::int64_t most,
                 std::vector<PlannedUnit>& units) {
  const auto all = std::max<std::int64_t>(counted.blocks, 1);
  const auto count = std::min(size_of(session, relation, most).units, all);
  std::optional<Key> low;
  for (std::int64_t i = 1; i <= count; ++i) {
    const auto bound = block_bound(all * i / count);
    units.push_back({relation, low, bound, counted.relfilenode});
    low = bound;
  }
}

struct Relation {
  Oid oid;
  QualifiedName name;
};

// `high`: its greatest key. Whoever cannot be read by blocks is read by key.
void plan_relation(SqlSession& session, const Migration& m, RangeBy by, const Relation& relation,
                   const Key& high, std::int64_t most, std::vector<PlannedUnit>& units) {
  const auto counted =
      by == RangeBy::block ? count_blocks(session, m, relation.oid, relation.name) : std::nullopt;
  if (counted)
    plan_blocks(session, relation.oid, *counted, most, units);
  else
    plan_keys(session, m, relation.oid, relation.name, high, most, units);
}

// Each leaf up to its greatest key, or its last block, of now. A row that was in it when the capture came and
// has not been written since is still there; whatever was written or moved since came through the capture.
std::vector<PlannedUnit> plan_leaves(SqlSession& session, const Migration& m, RangeBy by,
                                     const std::vector<PartitionFacts>& leaves) {
  std::vector<PlannedUnit> units;
  const auto most = std::max<std::int64_t>(kMostUnits / std::max<std::int64_t>(std::ssize(leaves), 1), 1);
  for (const auto& leaf : leaves) {
    if (const auto high = greatest_key(session, leaf.name, m.binding.key))
      plan_relation(session, m, by, {leaf.oid, leaf.name}, *high, most, units);
  }
  return units;
}

std::vector<PartitionFacts> leaves_of(SqlSession& session, const Migration& m) {
  auto leaves = read_partitions(session, m.row.table_oid);
  std::erase_if(leaves, [](const PartitionFacts& partition) { return !partition.leaf; });
  return leaves;
}

void store_units(SqlSession& session, const std::string& pass, const std::vector<PlannedUnit>& units) {
  for (const auto& unit : units) {
    session.exec(
        "INSERT INTO crossfade.unit (pass_id, number, relation, low, high, range_by, relfilenode)"
        " SELECT $1::bigint, coalesce(max(u.number), 0) + 1, $2::oid, $3::text[], $4::text[],"
        " CASE WHEN $5::oid IS NULL THEN 'key' ELSE 'block' END, $5::oid"
        " FROM crossfade.unit u WHERE u.pass_id = $1::bigint",
        {pass, std::to_string(unit.relation.value),
         unit.low ? SqlValue(array_literal(*unit.low)) : SqlValue(), array_literal(unit.high),
         unit.relfilenode.empty() ? SqlValue() : SqlValue(unit.relfilenode)});
  }
}

PassRow pass_of(SqlSession& session, const Migration& m, std::string_view kind) {
  const auto pass = newest_pass(session, m.row.id, kind);
  return pass ? *pass : PassRow{};
}

}  // namespace

PassRow open_sweep_pass(SqlSession& session, const Migration& m, const QualifiedName& table,
                        std::string_view kind, const std::optional<Key>& high, SweepOrder order) {
  if (auto pass = newest_pass(session, m.row.id, kind); pass && pass->state == "running") return *pass;
  std::vector<PlannedUnit> units;
  SweepPlan plan;
  if (high) plan = choose_order(session, m, table, kind, order);
  if (high && m.binding.key.partitioned)
    units = plan_leaves(session, m, plan.by, leaves_of(session, m));
  else if (high)
    plan_relation(session, m, plan.by, {m.row.table_oid, table}, *high, kMostUnits, units);
  Transaction transaction(session);
  const auto id =
      text_of(session
                  .exec("INSERT INTO crossfade.pass (migration_id, kind, state, ended_at, sweep)"
                        " VALUES ($1, $2, $3, CASE WHEN $3 = 'ended' THEN clock_timestamp() END, $4::jsonb)"
                        " RETURNING id",
                        {m.row.id.text, std::string(kind), std::string(units.empty() ? "ended" : "running"),
                         to_json(plan)})
                  .one("pass")[0]);
  store_units(session, id, units);
  transaction.commit();
  failpoint::hit("units.planned");
  return pass_of(session, m, kind);
}

namespace {

// Where units may be added: the backfill while it runs, else a catch_up.
std::optional<PassRow> running_sweep(SqlSession& session, const Migration& m) {
  for (const auto* kind : {"backfill", "catch_up"}) {
    if (auto pass = newest_pass(session, m.row.id, kind); pass && pass->state == "running") return pass;
  }
  return std::nullopt;
}

}  // namespace

std::vector<PlannedUnit> plan_arrived(SqlSession& session, const Migration& m,
                                      const std::vector<Oid>& arrived) {
  auto leaves = leaves_of(session, m);
  std::erase_if(leaves, [&](const PartitionFacts& leaf) {
    return std::ranges::find(arrived, leaf.oid) == arrived.end();
  });
  // By key, whatever the order of the pass: the table may be in dual_write by now.
  return plan_leaves(session, m, RangeBy::key, leaves);
}

void store_arrived(SqlSession& session, const Migration& m, const std::vector<Oid>& arrived,
                   const std::vector<PlannedUnit>& units) {
  auto pass = running_sweep(session, m);
  if (pass) {
    session.exec(
        "DELETE FROM crossfade.unit u WHERE u.pass_id = $1::bigint AND (u.relation = ANY ($2::oid[])"
        " OR u.relation NOT IN (SELECT p.relid FROM " +
            partition_tree_sql("$3::oid") + " p))",
        {std::to_string(pass->id), oid_array(arrived), std::to_string(m.row.table_oid.value)});
  } else if (newest_pass(session, m.row.id, "backfill") && !units.empty()) {
    session.exec("INSERT INTO crossfade.pass (migration_id, kind) VALUES ($1, 'catch_up')", {m.row.id.text});
    pass = newest_pass(session, m.row.id, "catch_up");
  }
  // Without a backfill there is one to come, which plans for all.
  if (pass) store_units(session, std::to_string(pass->id), units);
}

RewrittenUnits plan_rewritten(SqlSession& session, const Migration& m) {
  RewrittenUnits planned;
  const auto pass = running_sweep(session, m);
  if (!pass) return planned;
  const auto found = session.exec(
      "SELECT u.number, u.relation FROM crossfade.unit u WHERE u.pass_id = $1::bigint"
      " AND u.relfilenode <> pg_relation_filenode(u.relation) ORDER BY u.relation",
      {std::to_string(pass->id)});
  std::vector<Oid> relations;
  for (const auto& row : found.rows) {
    planned.pass = pass->id;
    planned.void_ones.push_back(static_cast<int>(int_of(row[0])));
    const Oid relation{static_cast<std::uint32_t>(int_of(row[1]))};
    if (relations.empty() || relations.back() != relation) relations.push_back(relation);
  }
  const auto most = std::max<std::int64_t>(kMostUnits / std::max<std::int64_t>(std::ssize(relations), 1), 1);
  for (const auto relation : relations) {
    const auto name = relation_name(session, relation);
    if (!name) continue;
    if (const auto high = greatest_key(session, *name, m.binding.key))
      plan_relation(session, m, RangeBy::block, {relation, *name}, *high, most, planned.units);
  }
  return planned;
}

// What the old ones have written was written: the pass keeps their counts.
void store_rewritten(SqlSession& session, const RewrittenUnits& planned) {
  if (planned.pass == 0) return;
  const std::string pass = std::to_string(planned.pass);
  std::vector<std::optional<std::string>> numbers;
  for (const int number : planned.void_ones) numbers.emplace_back(std::to_string(number));
  session.exec(
      "WITH gone AS (DELETE FROM crossfade.unit u WHERE u.pass_id = $1::bigint AND u.number = ANY "
      "($2::integer[])"
      " RETURNING u.rows_read, u.rows_written)"
      " UPDATE crossfade.pass p SET rows_read = p.rows_read + g.rows_read,"
      " rows_written = p.rows_written + g.rows_written"
      " FROM (SELECT coalesce(sum(rows_read), 0) AS rows_read, coalesce(sum(rows_written), 0) AS rows_written"
      " FROM gone) g WHERE p.id = $1::bigint",
      {pass, array_literal(numbers)});
  store_units(session, pass, planned.units);
}

UnitTotals unit_totals(SqlSession& session, std::int64_t pass) {
  const auto row = session
                       .exec(
                           "SELECT count(*), count(*) FILTER (WHERE done),"
                           " coalesce(sum(greatest(rows_read, rows_written)), 0), "
                           "coalesce(sum(rows_written), 0),"
                           " coalesce(sum(chunks), 0), coalesce(sum(rows_hot), 0), (SELECT count(*) FROM "
                           "crossfade.leftover l WHERE "
                           "l.pass_id = $1::bigint)"
                           " FROM crossfade.unit WHERE pass_id = $1::bigint",
                           {std::to_string(pass)})
                       .one("units");
  return {int_of(row[0]), int_of(row[1]), int_of(row[2]), int_of(row[3]),
          int_of(row[4]), int_of(row[6]), int_of(row[5])};
}

// The row of the backfill is locked first: of two runners one hands over, and the other finds it done.
std::optional<PassRow> open_catch_up(SqlSession& session, const Migration& m, std::int64_t backfill) {
  const SqlParams which{std::to_string(backfill)};
  Transaction transaction(session);
  session.exec("SELECT FROM crossfade.pass WHERE id = $1::bigint FOR UPDATE", which);
  auto existing = newest_pass(session, m.row.id, "catch_up");
  if (!existing || existing->id < backfill || existing->state == "void") {
    session.exec(
        "UPDATE crossfade.pass p SET state = 'ended', ended_at = clock_timestamp(), rows_read = u.rows_read,"
        " rows_written = u.rows_written FROM (SELECT coalesce(sum(rows_read), 0) AS rows_read,"
        " coalesce(sum(rows_written), 0) AS rows_written, coalesce(bool_and(done), true) AS done"
        " FROM crossfade.unit WHERE pass_id = $1::bigint) u"
        " WHERE p.id = $1::bigint AND p.state = 'running' AND u.done",
        which);
    const auto opened = session.exec(
        "INSERT INTO crossfade.pass (migration_id, kind, state, ended_at)"
        " SELECT p.migration_id, 'catch_up', CASE WHEN l.any_left THEN 'running' ELSE 'ended' END,"
        " CASE WHEN NOT l.any_left THEN clock_timestamp() END"
        " FROM crossfade.pass p, LATERAL (SELECT EXISTS (SELECT FROM crossfade.leftover o"
        " WHERE o.pass_id = p.id) AS any_left) l WHERE p.id = $1::bigint AND p.state = 'ended' RETURNING id",
        which);
    if (opened.empty()) return std::nullopt;
    session.exec("UPDATE crossfade.leftover SET pass_id = $2::bigint WHERE pass_id = $1::bigint",
                 {which[0], opened[0][0]});
  }
  transaction.commit();
  failpoint::hit("catch_up.opened");
  return pass_of(session, m, "catch_up");
}

bool end_sweep_pass(SqlSession& session, std::int64_t pass) {
  return session
             .exec(
                 "UPDATE crossfade.pass p SET state = 'ended', ended_at = clock_timestamp(),"
                 " rows_read = p.rows_read + (SELECT coalesce(sum(u.rows_read), 0) FROM crossfade.unit u"
                 " WHERE u.pass_id = p.id),"
                 " rows_written = p.rows_written + (SELECT coalesce(sum(u.rows_written), 0)"
                 " FROM crossfade.unit u WHERE u.pass_id = p.id)"
                 " WHERE p.id = $1::bigint AND p.state = 'running'"
                 " AND NOT EXISTS (SELECT FROM crossfade.unit u WHERE u.pass_id = p.id AND NOT u.done)"
                 " AND NOT EXISTS (SELECT FROM crossfade.leftover l WHERE l.pass_id = p.id)",
                 {std::to_string(pass)})
             .affected_rows == 1;
}

}  // namespace crossfade

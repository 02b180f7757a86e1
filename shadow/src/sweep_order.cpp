#include "sweep_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

// Below it every page is cached, whatever the order, and a chunk by key can be halved down to a row.
constexpr std::int64_t kSmallTable = 128;
// An index leads to a page as often as it has rows; a range of blocks is read page by page.
constexpr const char* kEachPageOnce = "by blocks a page is read once in a visit";
constexpr double kSampledPages = 100;
constexpr double kOrdered = 0.5;

// How far the order of the keys is the order of the pages, from -1 to 1, measured on whole pages: what
// pg_stats knows of the first column only, and after ANALYZE, and may not show. Absent: too few rows to tell.
std::optional<double> correlation(SqlSession& session, const Migration& m, const QualifiedName& table,
                                  std::int64_t blocks) {
  const double percent = std::clamp(100.0 * kSampledPages / static_cast<double>(blocks), 0.0001, 100.0);
  const auto row = session
                       .exec(fmt::format("SELECT corr(s.place, s.block) FROM (SELECT"
                                         " row_number() OVER (ORDER BY {})::float8 AS place,"
                                         " (t.ctid::text::point)[0] AS block"
                                         " FROM ONLY {} t TABLESAMPLE SYSTEM ({:.6f})) s",
                                         key_order_sql(m.binding.key, "t"), table.sql(), percent))
                       .one("the sample");
  if (!row[0]) return std::nullopt;
  return double_of(row[0]);
}

std::int64_t size_in_blocks(SqlSession& session, const Migration& m) {
  return int_of(session
                    .exec("SELECT pg_relation_size($1::oid) / current_setting('block_size')::bigint",
                          {std::to_string(m.row.table_oid.value)})
                    .one("the size")[0]);
}

}  // namespace

// One that came after the capture may hold older rows in any of its blocks, and so may a partition, whose
// size at the capture nobody noted.
std::optional<CountedBlocks> count_blocks(SqlSession& session, const Migration& m, Oid relation,
                                          const QualifiedName& name) {
  const auto found = session.exec(
      fmt::format("SELECT s.now, CASE WHEN c.oid = m.table_oid AND s.now = m.capture_relfilenode"
                  " THEN m.capture_blocks"
                  " ELSE pg_relation_size(c.oid) / current_setting('block_size')::bigint END"
                  " FROM crossfade.migration m, pg_class c, pg_am a, pg_relation_filenode($2::oid) AS s (now)"
                  " WHERE m.id = $1 AND c.oid = $2::oid AND a.oid = c.relam AND a.amname = 'heap'"
                  " AND NOT EXISTS (SELECT FROM ONLY {} t WHERE false)",
                  name.sql()),
      {m.row.id.text, std::to_string(relation.value)});
  if (found.empty()) return std::nullopt;
  return CountedBlocks{text_of(found[0][0]), int_of(found[0][1])};
}

SweepPlan choose_order(SqlSession& session, const Migration& m, const QualifiedName& table,
                       std::string_view kind, SweepOrder tuned) {
  SweepPlan plan;
  if (kind != "backfill") {
    plan.reason = "a replay goes by key";
    return plan;
  }
  const auto go_by_blocks = [&](const char* reason) {
    plan.by = RangeBy::block;
    plan.reason = reason;
    return plan;
  };
  if (tuned == SweepOrder::physical) return go_by_blocks("tuned");
  if (m.binding.key.partitioned) {
    if (tuned == SweepOrder::automatic) return go_by_blocks(kEachPageOnce);
    plan.reason = "tuned";
    return plan;
  }
  const auto blocks = size_in_blocks(session, m);
  if (tuned == SweepOrder::automatic && blocks >= kSmallTable) return go_by_blocks(kEachPageOnce);
  std::optional<double> measured;
  if (blocks >= kSmallTable) measured = correlation(session, m, table, blocks);
  plan.follows_pages = !measured || std::abs(*measured) >= kOrdered;
  plan.reason = blocks < kSmallTable
                    ? std::string("the table is small")
                    : (measured ? fmt::format("correlation of key and pages {:.2f}", *measured)
                                : std::string("too few rows to tell how the key lies"));
  if (tuned == SweepOrder::key) plan.reason = "tuned; " + plan.reason;
  return plan;
}

std::string to_json(const SweepPlan& plan) {
  return nlohmann::json{{"order", plan.by == RangeBy::key ? "key" : "physical"},
                        {"order_reason", plan.reason},
                        {"follows_pages", plan.follows_pages}}
      .dump();
}

}  // namespace crossfade

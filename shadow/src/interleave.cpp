#include "interleave.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace crossfade {

namespace {

// A table of a MiB may double.
constexpr std::int64_t kSmallTable = 128;
// The first share leaves its page, the rest stays. More visits read more, which pays where a version that
// leaves its page is an entry in several indexes.
constexpr int kMostVisits = 15;
constexpr int kMostVisitsOfFewIndexes = 8;
constexpr std::int64_t kSeveralIndexes = 3;
// A share should be more than a row: of two rows on a page one would leave it.
constexpr double kRowsPerShare = 2.5;
// Below it the visits cost more reading than they save.
constexpr double kPoorShare = 0.3;

}  // namespace

Interleave choose_interleave(const InterleaveFacts& f) {
  if (!f.writes) return {1, "a replay should write nothing"};
  if (f.tuned > 0) return {f.tuned, "tuned"};
  if (f.shadow_is_indexed) return {1, "an index has the new column, so no update can be heap-only"};
  if (f.blocks < kSmallTable) return {1, "the table is small"};
  if (!f.follows_pages) return {1, "neighbours in key order lie on different pages"};
  if (f.rows_per_page < 2 * kRowsPerShare) return {1, fmt::format("{:.0f} rows to a page", f.rows_per_page)};
  if (f.free_share >= 0.5)
    return {1, fmt::format("the fillfactor leaves {:.0f} % of each page free", 100 * f.free_share)};
  if (!f.old_snapshot.empty())
    return {1, fmt::format("{} keeps dead rows from being removed", f.old_snapshot)};
  if (f.hot_share && *f.hot_share < kPoorShare) {
    return {1, fmt::format("only {:.0f} % of the last window's updates stayed on their page",
                           100 * *f.hot_share)};
  }
  const int most = f.indexes < kSeveralIndexes ? kMostVisitsOfFewIndexes : kMostVisits;
  const auto visits = std::clamp(static_cast<int>(f.rows_per_page / kRowsPerShare), 2, most);
  return {visits, fmt::format("{:.0f} rows to a page, {} index{}", f.rows_per_page, f.indexes,
                              f.indexes == 1 ? "" : "es")};
}

PageFacts read_page_facts(SqlSession& session, const Migration& m, Oid relation, const QualifiedName& table) {
  const auto row =
      session
          .exec(
              "SELECT EXISTS (SELECT FROM pg_index i JOIN pg_depend d ON d.classid = 'pg_class'::regclass"
              " AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid"
              " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid"
              " WHERE i.indrelid = c.oid AND a.attname = $2),"
              " current_setting('track_counts')::boolean,"
              " pg_relation_size(c.oid) / current_setting('block_size')::bigint,"
              " CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN c.reltuples / c.relpages END,"
              " 1 - coalesce(substring(array_to_string(c.reloptions, ',') FROM 'fillfactor=([0-9]+)'), "
              "'100')::float8 / 100, (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid)"
              " FROM pg_class c WHERE c.oid = $1::oid",
              {std::to_string(relation.value), m.names.new_column})
          .one("the table");
  PageFacts facts{bool_of(row[0]), bool_of(row[1]), int_of(row[2]), 0, double_of(row[4]), int_of(row[5])};
  if (row[3]) {
    facts.rows_per_page = double_of(row[3]);
  } else if (facts.blocks > 0) {
    constexpr std::int64_t kPages = 16;
    const auto first = std::max<std::int64_t>(facts.blocks / 2 - kPages / 2, 0);
    const auto pages = std::min(kPages, facts.blocks - first);
    const auto tid = [](std::int64_t block) { return fmt::format("({},0)", block); };
    const auto rows =
        session
            .exec(fmt::format("SELECT count(*) FROM ONLY {} t WHERE t.ctid >= $1::tid AND t.ctid < $2::tid",
                              table.sql()),
                  {tid(first), tid(first + pages)})
            .one("rows");
    facts.rows_per_page = static_cast<double>(int_of(rows[0])) / static_cast<double>(pages);
  }
  return facts;
}

SnapshotAge read_snapshot_age(SqlSession& session, const std::optional<std::string>& mark) {
  // VACUUM shows a snapshot that holds nobody up.
  const auto row = session
                       .exec(
                           "SELECT now.xid, (SELECT o.who FROM (SELECT 'session ' || a.pid AS who,"
                           " greatest(age(a.backend_xid), age(a.backend_xmin)) AS age FROM pg_stat_activity a"
                           " WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database()"
                           "  OR a.backend_type = 'walsender')"
                           " AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)"
                           " UNION ALL SELECT 'prepared transaction ' || p.gid, age(p.transaction)"
                           " FROM pg_prepared_xacts p WHERE p.database = current_database()"
                           " UNION ALL SELECT 'replication slot ' || s.slot_name, age(s.xmin)"
                           " FROM pg_replication_slots s) o"
                           " WHERE o.age >= now.xid - $1::bigint ORDER BY o.age DESC LIMIT 1)"
                           " FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid) now",
                           {mark ? SqlValue(*mark) : SqlValue()})
                       .one("snapshots");
  return {text_of(row[0]), row[1].value_or("")};
}

}  // namespace crossfade

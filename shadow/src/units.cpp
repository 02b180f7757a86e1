#include "crossfade/shadow/units.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

// Small tables get few units, so that a test sees several and a billion rows see no more than this many state
// rows.
constexpr int kMostUnits = 64;
constexpr std::int64_t kRowsPerUnit = 5000;
// Enough sampled keys for even quantiles; a sample reads whole pages, so tiny tables are read whole.
constexpr double kSampledRows = 6400;

std::vector<Key> quantiles(SqlSession& session, const Migration& m, const QualifiedName& table,
                           const Key& high) {
  const auto size = session
                        .exec(
                            "SELECT greatest(c.reltuples, 0)::bigint, pg_relation_size(c.oid) FROM pg_class "
                            "c WHERE c.oid = $1::oid",
                            {std::to_string(m.row.table_oid.value)})
                        .one("table");
  // reltuples is 0 or -1 before the first ANALYZE: then guess from the size, at a narrow row.
  const auto rows = std::max(int_of(size[0]), int_of(size[1]) / 100);
  const auto units = std::clamp<std::int64_t>(rows / kRowsPerUnit, 1, kMostUnits);
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

PassRow pass_of(SqlSession& session, const Migration& m, std::string_view kind) {
  const auto pass = newest_pass(session, m.row.id, kind);
  return pass ? *pass : PassRow{};
}

}  // namespace

PassRow open_sweep_pass(SqlSession& session, const Migration& m, const QualifiedName& table,
                        std::string_view kind, const std::optional<Key>& high) {
  if (auto pass = newest_pass(session, m.row.id, kind); pass && pass->state == "running") return *pass;
  std::vector<Key> bounds;
  if (high) bounds = quantiles(session, m, table, *high);
  Transaction transaction(session);
  const auto id = text_of(
      session
          .exec("INSERT INTO crossfade.pass (migration_id, kind, state, ended_at)"
                " VALUES ($1, $2, $3, CASE WHEN $3 = 'ended' THEN clock_timestamp() END) RETURNING id",
                {m.row.id.text, std::string(kind), std::string(high ? "running" : "ended")})
          .one("pass")[0]);
  SqlValue low;
  int number = 0;
  const auto add = [&](const Key& bound) {
    const auto text = array_literal(bound);
    session.exec(
        "INSERT INTO crossfade.unit (pass_id, number, relation, low, high) VALUES ($1, $2, $3::oid, $4, $5)",
        {id, std::to_string(++number), std::to_string(m.row.table_oid.value), low, text});
    low = text;
  };
  for (const auto& bound : bounds) add(bound);
  if (high) add(*high);
  transaction.commit();
  failpoint::hit("units.planned");
  return pass_of(session, m, kind);
}

UnitTotals unit_totals(SqlSession& session, std::int64_t pass) {
  const auto row = session
                       .exec(
                           "SELECT count(*), count(*) FILTER (WHERE done), coalesce(sum(rows_read), 0), "
                           "coalesce(sum(rows_written), 0),"
                           " coalesce(sum(chunks), 0), (SELECT count(*) FROM crossfade.leftover l WHERE "
                           "l.pass_id = $1::bigint)"
                           " FROM crossfade.unit WHERE pass_id = $1::bigint",
                           {std::to_string(pass)})
                       .one("units");
  return {int_of(row[0]), int_of(row[1]), int_of(row[2]), int_of(row[3]), int_of(row[4]), int_of(row[5])};
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

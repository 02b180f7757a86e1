// Why only the holder cuts. A chunk computes its upper bound from the bound that its worker knows; a bound
// that somebody else moves down could be passed by a chunk that is under way. The holder has no chunk under
// way when it cuts, and every later one has the new bound. A holder that lost the unit (a lease that ran out,
// a takeover) finds another lease token and cuts nothing; its late chunks find it too. Cut and new unit are
// one transaction: in every snapshot either the old unit is open or both are there, so no pass ends between
// them. The pass is locked first, so that two cuts never draw one number.
//
// Where it is cut matters to nobody's rows: any key, or block, beyond what the holder has opened divides the
// range.
#include "unit_split.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

// A part that is smaller is done before anybody has found and claimed it.
constexpr std::int64_t kLeastRows = 500;
constexpr std::int64_t kLeastBlocks = 16;
// Rows that may be counted one by one; where more are left, a sample of pages tells the middle, and where too
// few pages of the sample are of the unit, it is cut after this many rows.
constexpr std::int64_t kMostCounted = 4000;
constexpr std::int64_t kRowsWithoutSample = 20'000;
constexpr double kSampledRows = 6400;
constexpr std::int64_t kLeastSampled = 16;

SqlValue nullable(const std::optional<Key>& key) { return key ? SqlValue(array_literal(*key)) : SqlValue(); }

std::optional<Key> sampled_middle(SqlSession& session, const Migration& m, const QualifiedName& table,
                                  const HeldUnit& held) {
  const auto size =
      session
          .exec(
              "SELECT greatest(c.reltuples, pg_relation_size(c.oid) / 100, 1)::bigint FROM pg_class c"
              " WHERE c.oid = $1::oid",
              {std::to_string(held.relation.value)})
          .one("table");
  const double percent =
      std::clamp(100.0 * kSampledRows / static_cast<double>(int_of(size[0])), 0.0001, 100.0);
  const auto& key = m.binding.key;
  const auto found = session.exec(
      fmt::format("SELECT k FROM (SELECT k, row_number() OVER (ORDER BY {}) AS n, count(*) OVER () AS total"
                  " FROM (SELECT {} AS k FROM ONLY {} t TABLESAMPLE SYSTEM ({:.6f}) WHERE {}"
                  " AND ($1::text[] IS NULL OR true)) s) q WHERE total >= {} AND n = (total + 1) / 2",
                  key_array_order_sql(key, "s.k"), key_text_sql(key, "t"), table.sql(), percent,
                  key_range_sql(key, "t", held.opened ? "$1::text[]" : "", "$2::text[]"), kLeastSampled),
      {nullable(held.opened), array_literal(held.high)});
  if (found.empty()) return std::nullopt;
  return parse_key(text_of(found[0][0]));
}

// A block with as many before it as behind it; nullopt when too few are left.
std::optional<Key> middle_block(const HeldUnit& held) {
  const auto opened = held.opened ? block_of(*held.opened) : 0;
  const auto left = block_of(held.high) - opened;
  if (left < 2 * kLeastBlocks) return std::nullopt;
  return block_bound(opened + left / 2);
}

// A key that leaves rows on both sides of it; nullopt when too few are left.
std::optional<Key> middle(SqlSession& session, const Migration& m, const QualifiedName& table,
                          const HeldUnit& held) {
  if (held.by == RangeBy::block) return middle_block(held);
  const auto& key = m.binding.key;
  const auto counted =
      int_of(session
                 .exec(fmt::format("SELECT count(*) FROM (SELECT FROM ONLY {} t WHERE {}"
                                   " AND ($1::text[] IS NULL OR true) LIMIT {}) r",
                                   table.sql(),
                                   key_range_sql(key, "t", held.opened ? "$1::text[]" : "", "$2::text[]"),
                                   kMostCounted),
                       {nullable(held.opened), array_literal(held.high)})
                 .one("rows")[0]);
  if (counted < 2 * kLeastRows) return std::nullopt;
  if (counted == kMostCounted) {
    if (auto sampled = sampled_middle(session, m, table, held)) return sampled;
    if (auto far = nth_key(session, table, key, {held.opened, held.high}, kRowsWithoutSample)) return far;
  }
  return nth_key(session, table, key, {held.opened, held.high}, counted / 2);
}

void refuse(SqlSession& session, const PassRow& pass, const HeldUnit& held) {
  session.exec(
      "UPDATE crossfade.unit SET split = 'refused' WHERE pass_id = $1::bigint AND number = $2::integer"
      " AND lease_token = $3::uuid",
      {std::to_string(pass.id), std::to_string(held.number), held.lease});
}

bool cut_at(SqlSession& session, const Migration& m, const Token& token, const PassRow& pass,
            const HeldUnit& held, const Key& at) {
  const std::string pass_id = std::to_string(pass.id);
  Transaction transaction(session);
  session.exec("SELECT FROM crossfade.pass WHERE id = $1::bigint FOR NO KEY UPDATE", {pass_id});
  const auto cut = session.exec(
      "WITH cut AS (UPDATE crossfade.unit u SET high = $5::text[], split = NULL"
      " WHERE u.pass_id = $1::bigint AND u.number = $2::integer AND u.lease_token = $3::uuid"
      " AND u.watermark IS NOT DISTINCT FROM $4::text[] AND u.high = $6::text[] AND NOT u.done"
      " AND EXISTS (SELECT FROM crossfade.migration m WHERE m.id = $7::uuid AND m.token = $8::uuid"
      "  AND m.phase = $9 AND m.status = 'running')"
      " AND (SELECT count(*) FROM crossfade.unit c WHERE c.pass_id = $1::bigint) < $10::integer"
      " RETURNING u.pass_id, u.relation, u.range_by, u.relfilenode)"
      " INSERT INTO crossfade.unit (pass_id, number, relation, low, high, range_by, relfilenode)"
      " SELECT c.pass_id, (SELECT max(o.number) + 1 FROM crossfade.unit o WHERE o.pass_id = $1::bigint),"
      " c.relation, $5::text[], $6::text[], c.range_by, c.relfilenode FROM cut c",
      {pass_id, std::to_string(held.number), held.lease, nullable(held.watermark), array_literal(at),
       array_literal(held.high), m.row.id.text, token.text, std::string(to_text(m.row.phase)),
       std::to_string(kMostUnitsOfPass)});
  if (cut.affected_rows == 0) return false;
  transaction.commit();
  return true;
}

}  // namespace

std::optional<Key> split_when_asked(SqlSession& session, const Migration& m, const QualifiedName& table,
                                    const Token& token, const PassRow& pass, const HeldUnit& held) {
  const std::string pass_id = std::to_string(pass.id);
  const auto asked = session.exec_prepared(
      "SELECT FROM crossfade.unit WHERE pass_id = $1::bigint AND number = $2::integer"
      " AND lease_token = $3::uuid AND split = 'wanted'",
      {pass_id, std::to_string(held.number), held.lease});
  if (asked.empty()) return std::nullopt;
  const auto at = middle(session, m, table, held);
  if (!at || *at == held.high) {
    refuse(session, pass, held);
    return std::nullopt;
  }
  failpoint::hit("split.before");
  if (!cut_at(session, m, token, pass, held, *at)) {
    // Somebody else has the unit by now, the fence is empty, or there are enough units.
    refuse(session, pass, held);
    return std::nullopt;
  }
  failpoint::hit("split.after");
  return at;
}

}  // namespace crossfade

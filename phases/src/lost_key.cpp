// The key by which the sweep, the leftovers and the comparison find their rows, when somebody takes it away
// while the migration is at work. Without the index each range is a scan of the table; without uniqueness two
// rows may share the key at which a chunk ends, and the next one begins after both. So nothing goes by it any
// more, and the phase says which key it was.
//
// NOT NULL of the migrated column, where that is part of the key, is a matter of the ledger: on the way back
// it is a check of ours for a while.
#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "handlers.hpp"

namespace crossfade {

namespace {

// $1 table, $2 the names of the key's columns, $3 the migrated column. By its columns, since REINDEX
// CONCURRENTLY makes another index of it, and the switch may.
constexpr const char* kKeyNow = R"sql(
WITH k AS (
  SELECT n.name, n.number, a.attnum, a.attnotnull FROM unnest($2::text[]) WITH ORDINALITY AS n (name, number)
  LEFT JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attname = n.name AND NOT a.attisdropped)
SELECT coalesce(string_agg(quote_ident(k.name), ', ' ORDER BY k.number) FILTER (WHERE k.attnum IS NULL), ''),
  coalesce(string_agg(quote_ident(k.name), ', ' ORDER BY k.number)
    FILTER (WHERE NOT k.attnotnull AND k.name <> $3), ''),
  string_agg(quote_ident(k.name), ', ' ORDER BY k.number),
  EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid
    AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
    AND i.indnkeyatts = cardinality($2::text[])
    AND (i.indkey::int2[])[0:i.indnkeyatts - 1] @> ARRAY(SELECT q.attnum FROM k q WHERE q.attnum IS NOT NULL))
FROM k)sql";

}  // namespace

std::optional<Blocker> lost_key(SqlSession& session, const Migration& m) {
  std::vector<std::optional<std::string>> names;
  for (const auto& column : m.binding.key.columns) names.emplace_back(column.name);
  const auto table = relation_name(session, m.row.table_oid);
  if (names.empty() || !table) return std::nullopt;
  const auto now =
      session
          .exec(kKeyNow, {std::to_string(m.row.table_oid.value), array_literal(names), m.binding.column.name})
          .one("key");
  const auto gone = text_of(now[0]), nullable = text_of(now[1]), columns = text_of(now[2]);
  std::string why, cure;
  if (!gone.empty()) {
    why = fmt::format("column {} is gone or has another name", gone);
    cure = "give the column its name again";
  } else if (!bool_of(now[3])) {
    why = fmt::format("no unique, valid, complete and immediate index over ({}) is left", columns);
    cure = fmt::format("make it again: CREATE UNIQUE INDEX CONCURRENTLY … ON {} ({}){}", table->display(),
                       columns,
                       m.binding.key.primary ? ", then ALTER TABLE … ADD PRIMARY KEY USING INDEX …" : "");
  } else if (!nullable.empty()) {
    why = fmt::format("column {} may be NULL now", nullable);
    cure = fmt::format("ALTER TABLE {} ALTER COLUMN … SET NOT NULL", table->display());
  } else {
    return std::nullopt;
  }
  return Blocker{
      ErrorCode::finding_refused,
      fmt::format("no_usable_key: {} of table {}, the key ({}) that the sweep and the comparison go by, was "
                  "lost: {}.",
                  m.binding.key.index_name, table->display(), columns, why),
      "no_usable_key", fmt::format("{}; then 'crossfade next {}'", cure, m.row.name)};
}

void require_key(SqlSession& session, const Migration& m) {
  if (const auto lost = lost_key(session, m))
    throw Error(ErrorCode::table_changed, lost->text, lost->hint, m.row.table.display());
}

}  // namespace crossfade

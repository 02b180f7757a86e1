#include "crossfade/shadow/foreign_keys.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace crossfade {

std::vector<ForeignKeyColumn> referring_to(SqlSession& session, Oid table, int attnum) {
  const auto found = session.exec(R"sql(
SELECT k.conname, k.conrelid, n.nspname, c.relname, a.attnum, a.attname, pg_get_constraintdef(k.oid)
FROM pg_constraint k CROSS JOIN generate_subscripts(k.confkey, 1) p
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[p]
WHERE k.contype = 'f' AND k.confrelid = $1::oid AND k.confkey[p] = $2::int2 AND k.conparentid = 0
ORDER BY k.conrelid, k.conname)sql",
                                  {std::to_string(table.value), std::to_string(attnum)});
  std::vector<ForeignKeyColumn> columns;
  for (const auto& row : found.rows) {
    columns.push_back({text_of(row[0]),
                       Oid{static_cast<std::uint32_t>(int_of(row[1]))},
                       {text_of(row[2]), text_of(row[3])},
                       static_cast<int>(int_of(row[4])),
                       text_of(row[5]),
                       text_of(row[6])});
  }
  return columns;
}

std::vector<ForeignKeyColumn> columns_that_follow(SqlSession& session, Oid table, int attnum) {
  std::vector<ForeignKeyColumn> following;
  std::set<std::pair<Oid, int>> seen{{table, attnum}};
  std::vector<std::pair<Oid, int>> open{{table, attnum}};
  for (std::size_t i = 0; i < open.size(); ++i) {
    const auto [referred, number] = open[i];
    for (auto& column : referring_to(session, referred, number)) {
      if (!seen.insert({column.table, column.attnum}).second) continue;
      open.emplace_back(column.table, column.attnum);
      following.push_back(std::move(column));
    }
  }
  return following;
}

}  // namespace crossfade

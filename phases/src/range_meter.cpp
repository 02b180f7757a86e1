#include "crossfade/phases/range_meter.hpp"

#include <fmt/format.h>

#include <optional>

#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

namespace {

// The share of the old type in percent, when it is one to warn of.
std::optional<std::string> share_to_warn_of(SqlSession& session, const std::string& value,
                                            const std::string& most) {
  const auto row = session
                       .exec(
                           "SELECT floor(abs($1::numeric) * 100 / $2::numeric)::text,"
                           " abs($1::numeric) BETWEEN $2::numeric * 0.8 AND $2::numeric",
                           {value, most})
                       .one("share");
  if (!bool_of(row[1])) return std::nullopt;
  return text_of(row[0]);
}

std::string warning(const std::string& what, const std::string& value, const std::string& share,
                    const std::string& type) {
  return fmt::format("{} {}, {} % of what {} holds; past it there is no way back", what, value, share, type);
}

// The value farthest from zero; absent without an index that tells it, and in an empty table.
std::optional<std::string> farthest_value(SqlSession& session, const Migration& m,
                                          const QualifiedName& table) {
  const auto index = session.exec(
      "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
      " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam"
      " WHERE i.indrelid = $1::oid AND a.attname = $2 AND i.indisvalid AND i.indpred IS NULL"
      " AND am.amname = 'btree' LIMIT 1",
      {std::to_string(m.row.table_oid.value), m.names.new_column});
  if (index.empty()) return std::nullopt;
  const auto found =
      session.exec(fmt::format("SELECT CASE WHEN -e.low::numeric > e.high THEN e.low ELSE e.high END"
                               " FROM (SELECT min({0}) AS low, max({0}) AS high FROM ONLY {1}) e",
                               quote_identifier(m.names.new_column), table.sql()));
  if (!found[0][0]) return std::nullopt;
  return text_of(found[0][0]);
}

}  // namespace

std::string greatest_of(const std::string& integer_type) {
  return integer_type == "smallint" ? "32767" : "2147483647";
}

std::vector<std::string> range_warnings(SqlSession& session, const Migration& m, const QualifiedName& table) {
  std::vector<std::string> warnings;
  const auto& column = m.binding.column;
  if (!widens_integer(column)) return warnings;
  const auto most = greatest_of(column.old_type);
  for (const auto& entry : load_ledger(session, m.row.id).carried) {
    if (entry.kind != DependentKind::sequence && entry.kind != DependentKind::identity) continue;
    const auto value = text_of(session.exec("SELECT last_value FROM " + entry.name).one("sequence")[0]);
    if (const auto share = share_to_warn_of(session, value, most)) {
      warnings.push_back(
          warning(fmt::format("sequence {} stands at", entry.name), value, *share, column.old_type));
    }
  }
  if (const auto value = farthest_value(session, m, table)) {
    if (const auto share = share_to_warn_of(session, *value, most)) {
      warnings.push_back(warning(fmt::format("{} reaches", display_identifier(column.name)), *value, *share,
                                 column.old_type));
    }
  }
  return warnings;
}

}  // namespace crossfade

#include "crossfade/shadow/key_sql.hpp"

#include <fmt/format.h>

namespace crossfade {

namespace {

std::string reference(const KeyColumn& column, std::string_view alias) {
  return (alias.empty() ? "" : std::string(alias) + ".") + quote_identifier(column.name);
}

std::string collated(const KeyColumn& column, const std::string& expression) {
  return column.collation.empty() ? expression : expression + " COLLATE " + column.collation;
}

template <class Item>
std::string joined(const KeyFacts& key, Item item) {
  std::string list;
  for (std::size_t i = 0; i < key.columns.size(); ++i)
    list += (i > 0 ? ", " : "") + item(key.columns[i], i + 1);
  return list;
}

std::string array_of(const std::optional<Key>& key) { return key ? array_literal(*key) : std::string(); }

}  // namespace

std::string key_tuple_sql(const KeyFacts& key, std::string_view alias) {
  return "(" +
         joined(key, [&](const KeyColumn& c, std::size_t) { return collated(c, reference(c, alias)); }) + ")";
}

std::string key_order_sql(const KeyFacts& key, std::string_view alias) {
  return joined(key, [&](const KeyColumn& c, std::size_t) { return collated(c, reference(c, alias)); });
}

std::string key_text_sql(const KeyFacts& key, std::string_view alias) {
  return "ARRAY[" +
         joined(key, [&](const KeyColumn& c, std::size_t) { return reference(c, alias) + "::text"; }) + "]";
}

std::string key_value_sql(const KeyFacts& key, std::string_view array) {
  return "(" +
         joined(key,
                [&](const KeyColumn& c, std::size_t n) {
                  return collated(c, fmt::format("(({})[{}])::{}", array, n, c.type_text));
                }) +
         ")";
}

std::string key_range_sql(const KeyFacts& key, std::string_view alias, std::string_view low,
                          std::string_view high) {
  std::string sql;
  if (!low.empty()) sql = key_tuple_sql(key, alias) + " > " + key_value_sql(key, low);
  if (!high.empty()) {
    sql += (sql.empty() ? "" : " AND ") + key_tuple_sql(key, alias) + " <= " + key_value_sql(key, high);
  }
  return sql.empty() ? "true" : sql;
}

std::string key_equals_sql(const KeyFacts& key, std::string_view alias, std::string_view array) {
  return key_tuple_sql(key, alias) + " = " + key_value_sql(key, array);
}

std::string nth_key_sql(const QualifiedName& table, const KeyFacts& key, const KeyRange& range) {
  // One text per combination of open bounds, each prepared once; $3 counts rows, so the read is proportional
  // to it.
  return fmt::format(
      "SELECT {} FROM ONLY {} t WHERE {} AND ($1::text[] IS NULL OR true) AND ($2::text[] IS NULL OR true)"
      " ORDER BY {} LIMIT 1 OFFSET $3::bigint",
      key_text_sql(key, "t"), table.sql(),
      key_range_sql(key, "t", range.low ? "$1::text[]" : "", range.high ? "$2::text[]" : ""),
      key_order_sql(key, "t"));
}

std::optional<Key> nth_key(SqlSession& session, const QualifiedName& table, const KeyFacts& key,
                           const KeyRange& range, std::int64_t n) {
  const auto sql = nth_key_sql(table, key, range);
  const auto value = [](const std::optional<Key>& k) { return k ? SqlValue(array_of(k)) : SqlValue(); };
  const auto found = session.exec_prepared(sql, {value(range.low), value(range.high), std::to_string(n - 1)});
  if (found.empty()) return std::nullopt;
  return parse_key(text_of(found[0][0]));
}

std::string greatest_key_sql(const QualifiedName& table, const KeyFacts& key) {
  std::string descending =
      joined(key, [&](const KeyColumn& c, std::size_t) { return collated(c, reference(c, "t")) + " DESC"; });
  return fmt::format("SELECT {} FROM ONLY {} t ORDER BY {} LIMIT 1", key_text_sql(key, "t"), table.sql(),
                     descending);
}

std::optional<Key> greatest_key(SqlSession& session, const QualifiedName& table, const KeyFacts& key) {
  const auto found = session.exec(greatest_key_sql(table, key));
  if (found.empty()) return std::nullopt;
  return parse_key(text_of(found[0][0]));
}

}  // namespace crossfade

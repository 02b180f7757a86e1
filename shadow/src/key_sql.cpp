// Two forms of a range. Where all columns of the index run the same way, a row-wise comparison is the range,
// and one index condition. Where directions are mixed there is no such comparison: the range is a union of
// boxes, in each of which some leading columns are equal to the bound and the next one lies beyond it. The
// boxes are disjoint and together the whole range, because two keys differ first in exactly one column. Each
// box is a condition that the index serves exactly; a leading bound beside them lets the planner read one
// stretch of the index instead.
#include "crossfade/shadow/key_sql.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

// One end of a range: an expression that is a text[], or a key whose values stand in the text. Empty: open.
struct Bound {
  Bound(std::string_view expression) : array(expression) {}
  Bound(const std::string& expression) : array(expression) {}
  Bound(const std::optional<Key>& values) : key(values ? &*values : nullptr) {}
  bool empty() const { return array.empty() && key == nullptr; }
  std::string_view array;
  const Key* key = nullptr;
};

// Number n of a key, typed.
std::string element(const KeyColumn& column, const Bound& bound, std::size_t n) {
  const auto value = bound.key != nullptr ? quote_literal(bound.key->parts.at(n - 1))
                                          : fmt::format("(({})[{}])", bound.array, n);
  return collated(column, fmt::format("{}::{}", value, column.type_text));
}

bool is_mixed(const KeyFacts& key) {
  return std::ranges::any_of(key.columns, [](const KeyColumn& c) { return c.descending; });
}

// What the server takes for granted is left out.
std::string direction(const KeyColumn& column, bool reversed) {
  const bool descending = column.descending != reversed;
  const bool nulls_first = column.nulls_first != reversed;
  std::string sql = descending ? " DESC" : "";
  if (nulls_first != descending) sql += nulls_first ? " NULLS FIRST" : " NULLS LAST";
  return sql;
}

std::string order(const KeyFacts& key, std::string_view alias, bool reversed) {
  return joined(key, [&](const KeyColumn& c, std::size_t) {
    return collated(c, reference(c, alias)) + direction(c, reversed);
  });
}

std::string tuple(const KeyFacts& key, std::string_view alias) {
  return "(" +
         joined(key, [&](const KeyColumn& c, std::size_t) { return collated(c, reference(c, alias)); }) + ")";
}

std::string typed_tuple(const KeyFacts& key, const Bound& bound) {
  return "(" + joined(key, [&](const KeyColumn& c, std::size_t n) { return element(c, bound, n); }) + ")";
}

enum class Side { after, before };

std::string compare(const KeyColumn& column, std::string_view alias, const std::string& op,
                    const Bound& bound, std::size_t n) {
  return fmt::format("{} {} {}", collated(column, reference(column, alias)), op, element(column, bound, n));
}

std::string strictly(const KeyColumn& column, Side side) {
  return (side == Side::after) != column.descending ? ">" : "<";
}

// The keys on one side of a bound, as conditions that exclude each other.
std::vector<std::string> boxes(const KeyFacts& key, std::string_view alias, const Bound& bound, Side side) {
  std::vector<std::string> list;
  std::string equal;
  for (std::size_t i = 0; i < key.columns.size(); ++i) {
    const auto& column = key.columns[i];
    list.push_back(equal + compare(column, alias, strictly(column, side), bound, i + 1));
    equal += compare(column, alias, "=", bound, i + 1) + " AND ";
  }
  if (side == Side::before) list.push_back(equal.substr(0, equal.size() - 5));  // the bound itself
  return list;
}

std::vector<std::string> range_boxes(const KeyFacts& key, std::string_view alias, const Bound& low,
                                     const Bound& high) {
  if (low.empty()) return boxes(key, alias, high, Side::before);
  auto above = boxes(key, alias, low, Side::after);
  if (high.empty()) return above;
  std::vector<std::string> list;
  for (const auto& above_low : above) {
    for (const auto& below_high : boxes(key, alias, high, Side::before))
      list.push_back(above_low + " AND " + below_high);
  }
  return list;
}

std::string mixed_range(const KeyFacts& key, std::string_view alias, const Bound& low, const Bound& high) {
  const auto& first = key.columns.front();  // ascends
  std::string sql;
  if (!low.empty()) sql += compare(first, alias, ">=", low, 1) + " AND ";
  if (!high.empty()) sql += compare(first, alias, "<=", high, 1) + " AND ";
  std::string any;
  for (const auto& box : range_boxes(key, alias, low, high)) any += (any.empty() ? "(" : " OR (") + box + ")";
  return "(" + sql + "(" + any + "))";
}

// From each box its own first rows, which the index serves in order, and of those the n-th: a range that
// begins in the middle of many rows with one leading value does not read that value's rows from the start.
std::string mixed_nth_sql(const QualifiedName& table, const KeyFacts& key, const std::string& low,
                          const std::string& high) {
  const auto columns =
      joined(key, [](const KeyColumn& c, std::size_t) { return "t." + quote_identifier(c.name); });
  std::string sql;
  for (const auto& box : range_boxes(key, "t", low, high)) {
    sql += fmt::format("{}(SELECT {} FROM {} t WHERE {} ORDER BY {} LIMIT $3::bigint + 1)",
                       sql.empty() ? "" : " UNION ALL ", columns, rows_sql(key, table), box,
                       order(key, "t", false));
  }
  return fmt::format(
      "SELECT {} FROM ({}) q WHERE ($1::text[] IS NULL OR true) AND ($2::text[] IS NULL OR true)"
      " ORDER BY {} LIMIT 1 OFFSET $3::bigint",
      key_text_sql(key, "q"), sql, order(key, "q", false));
}

}  // namespace

std::string rows_sql(const KeyFacts& key, const QualifiedName& table) {
  return key.partitioned ? table.sql() : "ONLY " + table.sql();
}

std::string key_order_sql(const KeyFacts& key, std::string_view alias) { return order(key, alias, false); }

std::string key_reverse_order_sql(const KeyFacts& key, std::string_view alias) {
  return order(key, alias, true);
}

std::string key_array_order_sql(const KeyFacts& key, std::string_view array) {
  return joined(
      key, [&](const KeyColumn& c, std::size_t n) { return element(c, array, n) + direction(c, false); });
}

std::string key_text_sql(const KeyFacts& key, std::string_view alias) {
  return "ARRAY[" +
         joined(key, [&](const KeyColumn& c, std::size_t) { return reference(c, alias) + "::text"; }) + "]";
}

namespace {
std::string between(const KeyFacts& key, std::string_view alias, const Bound& low, const Bound& high) {
  if (low.empty() && high.empty()) return "true";
  if (is_mixed(key)) return mixed_range(key, alias, low, high);
  std::string sql;
  if (!low.empty()) sql = tuple(key, alias) + " > " + typed_tuple(key, low);
  if (!high.empty()) {
    sql += (sql.empty() ? "" : " AND ") + tuple(key, alias) + " <= " + typed_tuple(key, high);
  }
  return sql;
}
}  // namespace

std::string key_range_sql(const KeyFacts& key, std::string_view alias, std::string_view low,
                          std::string_view high) {
  return between(key, alias, low, high);
}

std::string key_range_sql(const KeyFacts& key, std::string_view alias, const KeyRange& range) {
  return between(key, alias, range.low, range.high);
}

std::string key_equals_sql(const KeyFacts& key, std::string_view alias, std::string_view array) {
  return tuple(key, alias) + " = " + typed_tuple(key, Bound(array));
}

std::string nth_key_sql(const QualifiedName& table, const KeyFacts& key, const KeyRange& range) {
  const std::string low = range.low ? "$1::text[]" : "", high = range.high ? "$2::text[]" : "";
  if (is_mixed(key) && (range.low || range.high)) return mixed_nth_sql(table, key, low, high);
  // One text per combination of open bounds, each prepared once; $3 counts rows, so the read is proportional
  // to it.
  return fmt::format(
      "SELECT {} FROM {} t WHERE {} AND ($1::text[] IS NULL OR true) AND ($2::text[] IS NULL OR true)"
      " ORDER BY {} LIMIT 1 OFFSET $3::bigint",
      key_text_sql(key, "t"), rows_sql(key, table), key_range_sql(key, "t", low, high),
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
  return fmt::format("SELECT {} FROM {} t ORDER BY {} LIMIT 1", key_text_sql(key, "t"), rows_sql(key, table),
                     order(key, "t", true));
}

std::optional<Key> greatest_key(SqlSession& session, const QualifiedName& table, const KeyFacts& key) {
  const auto found = session.exec(greatest_key_sql(table, key));
  if (found.empty()) return std::nullopt;
  return parse_key(text_of(found[0][0]));
}

}  // namespace crossfade

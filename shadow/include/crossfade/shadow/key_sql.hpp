// SQL over the key of a table: tuples, bounds and ranges. All ordering and comparing is PostgreSQL's, under
// the index's own collation and column order; a key travels as one text[] and is typed in the server.
#pragma once

#include <string>
#include <string_view>

#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// What stands after FROM or UPDATE to reach every row of the table. A partitioned table has none of its own;
// of any other one no child is meant.
std::string rows_sql(const KeyFacts& key, const QualifiedName& table);
// t."a" COLLATE …, t."b" DESC: for ORDER BY.
std::string key_order_sql(const KeyFacts& key, std::string_view alias);
// The same, from the other end.
std::string key_reverse_order_sql(const KeyFacts& key, std::string_view alias);
// The same order over a text[] expression that holds keys.
std::string key_array_order_sql(const KeyFacts& key, std::string_view array);
// ARRAY[t."a"::text, t."b"::text]: a Key as text[].
std::string key_text_sql(const KeyFacts& key, std::string_view alias);
// low < key AND key <= high in the order of the index; an empty array expression leaves that side open.
// "true" when both are.
std::string key_range_sql(const KeyFacts& key, std::string_view alias, std::string_view low,
                          std::string_view high);
// The same with the values in the text, where the planner sees them as what they are: it knows how much of
// the table is meant, and a filter over millions of rows compares with a constant.
std::string key_range_sql(const KeyFacts& key, std::string_view alias, const KeyRange& range);
// key = array.
std::string key_equals_sql(const KeyFacts& key, std::string_view alias, std::string_view array);

// The key of the n-th row of (low, high] in key order; nullopt when the range holds fewer than n rows.
// A plain index read that locks nothing; the caller treats nullopt as "the rest of the range", never as
// "empty".
std::optional<Key> nth_key(SqlSession& session, const QualifiedName& table, const KeyFacts& key,
                           const KeyRange& range, std::int64_t n);
// Its text; of the range it matters only which bounds are there. $1 low, $2 high, $3 rows before it.
std::string nth_key_sql(const QualifiedName& table, const KeyFacts& key, const KeyRange& range);
// The greatest key; nullopt for an empty table.
std::optional<Key> greatest_key(SqlSession& session, const QualifiedName& table, const KeyFacts& key);
std::string greatest_key_sql(const QualifiedName& table, const KeyFacts& key);

}  // namespace crossfade

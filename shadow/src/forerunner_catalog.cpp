#include "forerunner_catalog.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/state_store.hpp"

namespace crossfade {

namespace {

// A column of the group: what is to bear its name next, and its number.
struct Successor {
  std::string column;
  int attnum = 0;
};
// By table and name. All of a group are in one phase.
using Successors = std::map<std::pair<Oid, std::string>, Successor>;

Successors successors_of(SqlSession& session, const Migration& m) {
  Successors successors;
  for (auto& row : StateStore(session).group(m.row.leader.value_or(m.row.id))) {
    const auto other = migration_of(std::move(row));
    const auto& column = other.binding.column;
    const auto names = physical_names(column, m.row.phase);
    successors[{other.row.table_oid, column.name}] = {
        new_column_is_public(m.row.phase) ? names.old_column : names.new_column, column.old_attnum};
  }
  return successors;
}

std::vector<std::string> renamed(const Successors& successors, Oid table, const SqlValue& columns) {
  std::vector<std::string> names;
  for (const auto& column : parse_array(text_of(columns))) {
    const auto found = successors.find({table, column.value_or("")});
    names.push_back(found == successors.end() ? column.value_or("") : found->second.column);
  }
  return names;
}

// The constraint is in the ledger of each column of the table that moves; the lowest makes the forerunners.
bool is_the_one(const Successors& successors, const Migration& m, const SqlValue& columns) {
  int lowest = 0;
  for (const auto& column : parse_array(text_of(columns))) {
    const auto found = successors.find({m.row.table_oid, column.value_or("")});
    if (found == successors.end()) continue;
    if (lowest == 0 || found->second.attnum < lowest) lowest = found->second.attnum;
  }
  return lowest == m.binding.column.old_attnum;
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const auto& name : names) quoted.push_back(quote_identifier(name));
  return fmt::format("{}", fmt::join(quoted, ", "));
}

std::string array_of(const std::vector<std::string>& names) {
  return array_literal(std::vector<std::optional<std::string>>(names.begin(), names.end()));
}

// PostgreSQL 14 has no column confdelsetcols.
constexpr const char* kConstraint = R"sql(
SELECT k.confrelid, n.nspname, c.relname,
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY x (number, place) JOIN pg_attribute a
    ON a.attrelid = k.conrelid AND a.attnum = x.number ORDER BY x.place),
  ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY x (number, place) JOIN pg_attribute a
    ON a.attrelid = k.confrelid AND a.attnum = x.number ORDER BY x.place),
  ARRAY(SELECT a.attname::text FROM jsonb_array_elements_text(nullif(to_jsonb(k) -> 'confdelsetcols', 'null'))
    WITH ORDINALITY x (number, place) JOIN pg_attribute a ON a.attrelid = k.conrelid
    AND a.attnum = x.number::int2 ORDER BY x.place),
  CASE k.confmatchtype WHEN 'f' THEN ' MATCH FULL' ELSE '' END,
  CASE k.confupdtype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL'
    WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END,
  CASE k.confdeltype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL'
    WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END,
  k.condeferrable, k.condeferred
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conrelid = $1::oid AND k.conname = $2)sql";

// $1 names.
constexpr const char* kStanding = R"sql(
SELECT n.nspname, c.relname, pn.nspname, p.relname, k.conname, k.conrelid FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conname = ANY ($1::text[])
ORDER BY k.conrelid, k.conname)sql";

}  // namespace

std::vector<Forerunner> forerunners_of(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<Forerunner> all;
  std::optional<Successors> successors;
  for (const auto& entry : ledger.carried) {
    if (!entry.leafwise || entry.kind != DependentKind::foreign_key) continue;
    Forerunner f;
    f.constraint = entry.referring ? entry.constraint : entry.name;
    f.name = m.generated.twin(f.constraint);
    f.table = entry.referring.value_or(m.row.table_oid);
    const auto found = session.exec(kConstraint, {std::to_string(f.table.value), f.constraint});
    // That it is gone is told by the ledger.
    if (found.empty()) continue;
    if (!successors) successors = successors_of(session, m);
    const auto& row = found[0];
    if (!is_the_one(*successors, m, row[entry.referring ? 4 : 3])) continue;
    f.partner = Oid{static_cast<std::uint32_t>(int_of(row[0]))};
    f.partner_name = {text_of(row[1]), text_of(row[2])};
    const auto columns = renamed(*successors, f.table, row[3]);
    const auto referred = renamed(*successors, f.partner, row[4]);
    const auto set = renamed(*successors, f.table, row[5]);
    f.columns = array_of(columns);
    f.referred = array_of(referred);
    f.deferrable = bool_of(row[9]);
    f.deferred = bool_of(row[10]);
    f.words = fmt::format("FOREIGN KEY ({}) REFERENCES {} ({}){} ON UPDATE {} ON DELETE {}{}{}",
                          quoted_list(columns), f.partner_name.sql(), quoted_list(referred), text_of(row[6]),
                          text_of(row[7]), text_of(row[8]),
                          set.empty() ? "" : fmt::format(" ({})", quoted_list(set)),
                          f.deferrable ? " DEFERRABLE INITIALLY DEFERRED" : "");
    all.push_back(std::move(f));
  }
  return all;
}

std::string is_forerunner_sql(const Forerunner& f, const std::string& leaf) {
  const auto names = [](const char* key, const char* relation) {
    return fmt::format(
        "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.{0}) WITH ORDINALITY x (number, place)"
        " JOIN pg_catalog.pg_attribute a ON a.attrelid = k.{1} AND a.attnum = x.number ORDER BY x.place)",
        key, relation);
  };
  return fmt::format(
      "k.conrelid = {} AND k.contype = 'f' AND k.conname = {} AND k.conparentid = 0 AND k.confrelid = {}::oid"
      " AND {} = {}::text[] AND {} = {}::text[]",
      leaf, quote_literal(f.name), f.partner.value, names("conkey", "conrelid"), quote_literal(f.columns),
      names("confkey", "confrelid"), quote_literal(f.referred));
}

std::vector<KeyLeaf> leaves_of(SqlSession& session, const Forerunner& f) {
  std::vector<KeyLeaf> leaves;
  for (const auto& row :
       session
           .exec(fmt::format("SELECT p.relid, n.nspname, c.relname, k.oid IS NOT NULL,"
                             " coalesce(k.convalidated, false) FROM {} p JOIN pg_class c ON c.oid = p.relid"
                             " JOIN pg_namespace n ON n.oid = c.relnamespace"
                             " LEFT JOIN pg_constraint k ON {} WHERE p.leaf ORDER BY p.relid",
                             partition_tree_sql(fmt::format("{}::oid", f.table.value)),
                             is_forerunner_sql(f, "p.relid")))
           .rows) {
    leaves.push_back({Oid{static_cast<std::uint32_t>(int_of(row[0]))},
                      {text_of(row[1]), text_of(row[2])},
                      bool_of(row[3]),
                      bool_of(row[4])});
  }
  return leaves;
}

std::vector<std::optional<std::string>> forerunner_names(const Migration& m, const Ledger& ledger) {
  std::set<std::string> names;
  for (const auto& entry : ledger.carried) {
    if (entry.leafwise && entry.kind == DependentKind::foreign_key)
      names.insert(m.generated.twin(entry.referring ? entry.constraint : entry.name));
  }
  return {names.begin(), names.end()};
}

std::vector<StandingKey> standing(SqlSession& session, const std::vector<std::optional<std::string>>& names,
                                  const std::vector<KeyLeaf>* leaves) {
  std::vector<StandingKey> all;
  if (names.empty()) return all;
  for (const auto& row : session.exec(kStanding, {array_literal(names)}).rows) {
    const Oid table{static_cast<std::uint32_t>(int_of(row[5]))};
    const auto here = [&](const KeyLeaf& leaf) { return leaf.oid == table && leaf.has; };
    if (leaves != nullptr && std::ranges::any_of(*leaves, here)) continue;
    all.push_back({{text_of(row[0]), text_of(row[1])}, {text_of(row[2]), text_of(row[3])}, text_of(row[4])});
  }
  return all;
}

}  // namespace crossfade

#include <fmt/format.h>

#include <string_view>

#include "checks.hpp"

namespace crossfade::checks {

namespace {

std::string_view word(std::string_view relkind) {
  if (relkind == "v") return "a view";
  if (relkind == "m") return "a materialised view";
  if (relkind == "f") return "a foreign table";
  return "not a table";
}

// What only pg_class tells: a typed table takes no column, a table of 1600 columns (dropped ones count) no
// further one, and rows of another access method do not behave as the sweep expects.
void peculiarities(const Context& context) {
  constexpr int kMostColumns = 1600;
  const auto row = context.session
                       .exec(
                           "SELECT c.reloftype <> 0, c.relnatts, coalesce(m.amname, '') FROM pg_class c"
                           " LEFT JOIN pg_am m ON m.oid = c.relam WHERE c.oid = $1::oid",
                           {context.table_oid()})
                       .one("table");
  const auto table = context.table_text();
  if (bool_of(row[0])) {
    context.refuse("relation_kind", table,
                   fmt::format("Table {} is of a composite type and takes no column.", table),
                   "Detach it from the type first: ALTER TABLE … NOT OF.");
  }
  if (int_of(row[1]) >= kMostColumns) {
    context.refuse("relation_kind", table,
                   fmt::format("Table {} has {} columns, dropped ones included, and takes no more.", table,
                               int_of(row[1])),
                   "Rewrite the table (dump and restore) to lose the dropped columns.");
  }
  if (context.table.kind == "r" && text_of(row[2]) != "heap") {
    context.refuse("relation_kind", table,
                   fmt::format("Table {} uses the access method {}; only heap is known to work.", table,
                               text_of(row[2])),
                   "Migrate a heap table.");
  }
}

}  // namespace

void relation_kind(const Context& context) {
  const auto& facts = context.table;
  const auto table = context.table_text();
  if (facts.kind != "r" && facts.kind != "p") {
    return context.refuse("relation_kind", table,
                          fmt::format("Relation {} is {}, not an ordinary table.", table, word(facts.kind)),
                          "Name the table that holds the column.");
  }
  if (facts.name.schema.starts_with("pg_") || facts.name.schema == "information_schema" ||
      facts.name.schema == "crossfade") {
    return context.refuse("relation_kind", table, fmt::format("Table {} belongs to the system.", table),
                          "Name a table of the application.");
  }
  if (facts.is_partition) {
    context.refuse("relation_kind", table, fmt::format("Table {} is a partition of another table.", table),
                   "A column is a matter of the whole: name the partitioned table.");
  } else if (facts.has_parents) {
    context.refuse("relation_kind", table, fmt::format("Table {} inherits from another table.", table),
                   "End the inheritance first: ALTER TABLE … NO INHERIT ….");
  }
  if (facts.has_children && facts.kind != "p") {
    context.refuse("relation_kind", table, fmt::format("Other tables inherit from table {}.", table),
                   "End the inheritance first: ALTER TABLE … NO INHERIT ….");
  }
  peculiarities(context);
}

}  // namespace crossfade::checks

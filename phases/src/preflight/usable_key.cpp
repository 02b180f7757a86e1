#include <fmt/format.h>

#include <algorithm>

#include "checks.hpp"

namespace crossfade::checks {

namespace {

void key_itself(const Context& context, const std::string& index) {
  context.refuse(
      "not_supported_yet", context.column_text(),
      fmt::format("Column {} is part of {}, the only order that the table has: its values may only become "
                  "wider integers.",
                  context.column_text(), index),
      "Add another unique index over NOT NULL columns, which the sweep can go by.");
}

}  // namespace

void usable_key(const Context& context) {
  const auto* column = context.migrated();
  if (context.key) {
    const bool reads =
        column != nullptr && std::ranges::find(context.key->columns, column->attnum, &KeyColumn::attnum) !=
                                 context.key->columns.end();
    if (reads && (context.column == nullptr || !widens_integer(*context.column)))
      key_itself(context, context.key->index_name);
    return;
  }
  if (const auto any = choose_key(context.session, context.table.oid, {}); any && column != nullptr) {
    return key_itself(context, any->index_name);
  }
  if (context.table.kind == "p") {
    return context.refuse(
        "no_usable_key", context.table_text(),
        fmt::format("Partitioned table {} has no primary key and no unique, valid, complete, immediate index "
                    "over NOT NULL columns of its own; those of its partitions do not order the whole.",
                    context.table_text()),
        "Add a primary key that contains the partition key: build the unique index of each partition "
        "CONCURRENTLY, CREATE UNIQUE INDEX ON ONLY the table, ALTER INDEX … ATTACH PARTITION.");
  }
  context.refuse(
      "no_usable_key", context.table_text(),
      fmt::format("Table {} has no primary key and no unique, valid, complete, immediate index over NOT NULL "
                  "columns, so that its rows have no order to sweep in.",
                  context.table_text()),
      "Add a primary key: CREATE UNIQUE INDEX CONCURRENTLY …, then ALTER TABLE … ADD PRIMARY KEY USING "
      "INDEX ….");
}

}  // namespace crossfade::checks

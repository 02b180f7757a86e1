#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void unlogged_table(const Context& context) {
  if (context.table.persistence == "p") return;
  const bool temporary = context.table.persistence == "t";
  context.refuse(
      "unlogged_table", context.table_text(),
      fmt::format("Table {} is {}: a crash or the end of a session empties it, and the state would not know.",
                  context.table_text(), temporary ? "temporary" : "unlogged"),
      temporary ? "Migrate a permanent table." : "ALTER TABLE … SET LOGGED first.");
}

}  // namespace crossfade::checks

#include <fmt/format.h>

#include "checks.hpp"
#include "plpgsql_readers.hpp"

namespace crossfade::checks {

// Those that the role may alter are compiled anew by the switch; the others it can only name.
void plpgsql_cached_types(const Context& context) {
  const auto* column = context.migrated();
  if (column == nullptr || context.column == nullptr || context.column->old_type == context.column->new_type)
    return;
  for (const auto& reader :
       plpgsql_readers(context.session, context.table.oid, context.table.name.name, column->name)) {
    if (!reader.alter_sql.empty()) {
      context.inform(
          "plpgsql_cached_types", reader.signature,
          fmt::format("Function {} names column {}; the switch makes every session compile it anew.",
                      reader.signature, context.column_text()),
          "Variables that are declared with the old type's name keep it: look at them.");
      continue;
    }
    context.warn(
        "plpgsql_cached_types", reader.signature,
        fmt::format("Function {} names column {} and may remember its old type in open sessions after the "
                    "switch; only its owner could make them forget it.",
                    reader.signature, context.column_text()),
        fmt::format("Let its owner run ALTER ROUTINE {} SECURITY INVOKER (or DEFINER, as it is) after the "
                    "switch, or let "
                    "the sessions that call it connect again if it fails with 42804.",
                    reader.signature));
  }
}

}  // namespace crossfade::checks

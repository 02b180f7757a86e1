#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void migrated_column(const Context& context) {
  const auto* column = context.migrated();
  if (column == nullptr) return;
  if (!column->generated.empty()) {
    context.refuse(
        "generated_input", context.column_text(),
        fmt::format("Column {} is generated from other columns and has no value of its own to migrate.",
                    context.column_text()),
        "Add a generated column with the new expression and drop this one.");
  }
}

}  // namespace crossfade::checks

#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void isolation_conflict(const Context& context) {
  context.inform(
      "isolation_conflict", context.table_text(),
      fmt::format("A transaction at REPEATABLE READ or SERIALIZABLE that writes a row of table {} which the "
                  "sweep wrote after its snapshot fails with 40001, as after any other writer.",
                  context.table_text()),
      "Let the application repeat a transaction that failed with 40001.");
}

}  // namespace crossfade::checks

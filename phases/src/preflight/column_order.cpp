#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void column_order(const Context& context) {
  context.inform(
      "column_order", context.table_text(),
      fmt::format(
          "The new column is the last one of table {}, and stays so after the switch: INSERT and COPY "
          "without a column list, and readers that count columns, see another order.",
          context.table_text()),
      "Name the columns in INSERT, COPY and SELECT.");
}

}  // namespace crossfade::checks

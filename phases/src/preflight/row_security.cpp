#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

// row_security_active answers for the current role: not for a superuser, a role with BYPASSRLS, or an owner
// without FORCE. Our sessions run with row_security = off, so that a hidden row would be an error and never a
// row left out.
void row_security(const Context& context) {
  if (!context.table.row_security && !context.table.force_row_security) return;
  const auto active = context.session.exec("SELECT row_security_active($1::oid)", {context.table_oid()});
  if (!bool_of(active.one("row security")[0])) return;
  context.refuse(
      "row_security", context.table_text(),
      fmt::format("Row-level security of table {} applies to role {}, which so cannot reach every row.",
                  context.table_text(), context.role()),
      context.table.may_alter
          ? "ALTER TABLE … NO FORCE ROW LEVEL SECURITY for the time of the migration, or use a role with "
            "BYPASSRLS."
          : "Run as the owner of the table, or as a role with BYPASSRLS.");
}

}  // namespace crossfade::checks

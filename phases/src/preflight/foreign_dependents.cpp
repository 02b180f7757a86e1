#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void foreign_dependents(const Context& context) {
  const auto found = context.session.exec(R"sql(
SELECT DISTINCT (pg_identify_object('pg_class'::regclass, v.oid, 0)).identity,
       pg_describe_object('pg_class'::regclass, v.oid, 0), quote_ident(pg_get_userbyid(v.relowner))
FROM pg_depend d JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
JOIN pg_class v ON v.oid = w.ev_class JOIN pg_class t ON t.oid = $1::oid
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND v.oid <> t.oid
  AND v.relowner <> t.relowner
ORDER BY 2)sql",
                                          {context.table_oid()});
  for (const auto& row : found.rows) {
    context.warn(
        "foreign_dependents", text_of(row[0]),
        fmt::format("{} of role {} reads table {}.", text_of(row[1]), text_of(row[2]), context.table_text()),
        "Tell its owner; a view follows a column by number, and cannot be changed by this role.");
  }
}

}  // namespace crossfade::checks

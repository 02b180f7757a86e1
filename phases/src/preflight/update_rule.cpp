#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void update_rule(const Context& context) {
  const auto found = context.session.exec(R"sql(
SELECT (pg_identify_object('pg_rewrite'::regclass, w.oid, 0)).identity, quote_ident(w.rulename),
       CASE w.ev_type WHEN '2' THEN 'UPDATE' ELSE 'INSERT' END
FROM pg_rewrite w WHERE w.ev_class = $1::oid AND w.ev_type IN ('2', '3') AND w.ev_enabled <> 'D'
ORDER BY w.rulename)sql",
                                          {context.table_oid()});
  for (const auto& row : found.rows) {
    context.refuse("update_rule", text_of(row[0]),
                   fmt::format("Rule {} rewrites each {} of table {}, those of the sweep included.",
                               text_of(row[1]), text_of(row[2]), context.table_text()),
                   "Replace the rule by a trigger, or disable it: ALTER TABLE … DISABLE RULE ….");
  }
}

}  // namespace crossfade::checks

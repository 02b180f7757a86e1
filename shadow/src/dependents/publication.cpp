// A publication that lists the column or filters by it: the table is taken out of it and put in again by the
// same words, in the transaction of the switch, so that no change falls between.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr const char* kPublication = R"sql(
SELECT p.pubname, pg_get_userbyid(p.pubowner),
  CASE WHEN r.prattrs IS NULL THEN '' ELSE
    (SELECT ' (' || string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')' FROM pg_attribute a
     WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[])) END,
  coalesce(' WHERE (' || pg_get_expr(r.prqual, r.prrelid) || ')', ''), coalesce(r.prqual::text ~
      ':varattno 0 ', false)
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.oid = $1::oid)sql";

}  // namespace

void take_publication(Reading& reading, const Reference& reference) {
  const auto found = reading.session.exec(kPublication, {std::to_string(reference.oid)});
  const auto& row = found.one("publication");
  const auto name = quote_identifier(text_of(row[0])), table = reading.table.name.sql();
  if (!reading.acts_as(text_of(row[1])))
    return reading.refuse(
        reference, fmt::format("the publication belongs to role {}", display_identifier(text_of(row[1]))));
  if (bool_of(row[4]))
    return reading.refuse(reference, "its filter reads the whole row, which has one more column then");
  if (!text_of(row[3]).empty()) {
    const auto objection = reading.clone().objection(
        fmt::format("CREATE INDEX ON {} ((1)){}", reading.clone().sql(), text_of(row[3])));
    if (objection) return reading.refuse(reference, *objection);
  }
  auto& entry = reading.carry(DependentKind::publication, text_of(row[0]));
  entry.remove_sql = fmt::format("ALTER PUBLICATION {} DROP TABLE {};\n", name, table);
  entry.create_sql =
      fmt::format("ALTER PUBLICATION {} ADD TABLE {}{}{};\n", name, table, text_of(row[2]), text_of(row[3]));
}

}  // namespace crossfade

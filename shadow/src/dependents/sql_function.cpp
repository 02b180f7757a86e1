// Functions with an SQL body (BEGIN ATOMIC or RETURN) hold the column by number: CREATE OR REPLACE by the
// same words binds them to whichever column bears the name, and keeps owner, privileges and whatever calls
// them.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr const char* kFunction = R"sql(
SELECT pg_get_functiondef(p.oid), pg_get_userbyid(p.proowner), p.prosqlbody::text ~ ':varattno 0 '
FROM pg_proc p WHERE p.oid = $1::oid AND p.prosqlbody IS NOT NULL)sql";

// Read where the table's own schema is searched, its name stands alone and means the clone instead.
std::string with_short_names(Reading& reading, const std::string& oid) {
  const Savepoint undone(reading.session);
  reading.session.exec(
      fmt::format("SET LOCAL search_path = {}", quote_identifier(reading.table.name.schema)));
  return text_of(reading.session.exec("SELECT pg_get_functiondef($1::oid)", {oid}).one("function")[0]);
}

}  // namespace

void take_function(Reading& reading, const Reference& reference) {
  const auto oid = std::to_string(reference.oid);
  const auto found = reading.session.exec(kFunction, {oid});
  if (found.empty()) return reading.refuse(reference, "it is not a plain function with an SQL body");
  const auto& row = found[0];
  if (!reading.acts_as(text_of(row[1])))
    return reading.refuse(reference,
                          fmt::format("it belongs to role {}", display_identifier(text_of(row[1]))));
  if (bool_of(row[2]))
    return reading.refuse(reference, "it reads the whole row, which has one more column then");
  // The names are read before the clone hides the table.
  const auto short_names = with_short_names(reading, oid);
  const auto objection = reading.clone().objection(fmt::format(
      "SET LOCAL search_path = {}; {}", quote_identifier(reading.table.name.schema), short_names));
  if (objection) return reading.refuse(reference, *objection);
  auto& entry = reading.carry(DependentKind::sql_function, reference.identity);
  entry.create_sql = text_of(row[0]) + ";\n";
}

}  // namespace crossfade

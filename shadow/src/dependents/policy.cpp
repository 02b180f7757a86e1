// Row security policies: ALTER POLICY by the same words binds them to whichever column bears the name, and
// keeps everything else of the policy.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

// $1 policy. It may belong to another table and read this one in a sub-select.
constexpr const char* kPolicy = R"sql(
SELECT p.polname, quote_ident(n.nspname) || '.' || quote_ident(c.relname), pg_get_userbyid(c.relowner),
  pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid), p.polrelid = $2::oid,
  coalesce(p.polqual::text ~ ':varattno 0 ', false) OR coalesce(p.polwithcheck::text ~ ':varattno 0 ', false),
  p.polcmd::text, p.polpermissive
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.oid = $1::oid)sql";

std::string clauses(const SqlResult::Row& row) {
  return (row[3] ? fmt::format(" USING ({})", *row[3]) : "") +
         (row[4] ? fmt::format(" WITH CHECK ({})", *row[4]) : "");
}

std::string command(const std::string& letter) {
  if (letter == "r") return "SELECT";
  if (letter == "a") return "INSERT";
  if (letter == "w") return "UPDATE";
  return letter == "d" ? "DELETE" : "ALL";
}

}  // namespace

void take_policy(Reading& reading, const Reference& reference) {
  const auto found =
      reading.session.exec(kPolicy, {std::to_string(reference.oid), std::to_string(reading.table.oid.value)});
  const auto& row = found.one("policy");
  const auto table = text_of(row[1]);
  const bool own = bool_of(row[5]);
  if (bool_of(row[6]))
    return reading.refuse(reference, "it reads the whole row, which has one more column then");
  if (!reading.acts_as(text_of(row[2])))
    return reading.refuse(reference,
                          fmt::format("its table belongs to role {}", display_identifier(text_of(row[2]))));
  if (own) {
    const auto& clone = reading.clone();
    if (const auto objection = clone.objection(fmt::format(
            "CREATE POLICY cf_policy ON {} FOR {}{}", clone.sql(), command(text_of(row[7])), clauses(row))))
      return reading.refuse(reference, *objection);
  } else if (!reading.keeps_values()) {
    return reading.refuse(
        reference, "it belongs to another table, and the conversion is not proved to keep every value");
  }
  auto& entry = reading.carry(DependentKind::policy, reference.identity);
  entry.create_sql =
      fmt::format("ALTER POLICY {} ON {}{};\n", quote_identifier(text_of(row[0])), table, clauses(row));
  if (!own) entry.locks = {table};
}

}  // namespace crossfade

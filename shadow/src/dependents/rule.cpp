// Rewrite rules other than those of views: CREATE OR REPLACE RULE by the same words.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr const char* kRule = R"sql(
SELECT r.rulename, quote_ident(n.nspname) || '.' || quote_ident(c.relname), pg_get_userbyid(c.relowner),
  pg_get_ruledef(r.oid), r.ev_class = $2::oid,
  r.ev_action::text ~ ':varattno 0 ' OR coalesce(r.ev_qual::text ~ ':varattno 0 ', false)
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.oid = $1::oid)sql";

}  // namespace

void take_rule(Reading& reading, const Reference& reference) {
  constexpr std::string_view kBeginning = "CREATE RULE ";
  const auto found =
      reading.session.exec(kRule, {std::to_string(reference.oid), std::to_string(reading.table.oid.value)});
  const auto& row = found.one("rule");
  const auto definition = text_of(row[3]);
  if (bool_of(row[5]))
    return reading.refuse(reference, "it reads the whole row, which has one more column then");
  if (!reading.acts_as(text_of(row[2])))
    return reading.refuse(
        reference, fmt::format("its relation belongs to role {}", display_identifier(text_of(row[2]))));
  // A rule's action cannot be tried on the clone: it names the table where it likes.
  if (!reading.keeps_values())
    return reading.refuse(reference, "the conversion is not proved to keep every value");
  if (!definition.starts_with(kBeginning))
    return reading.refuse(reference, "its definition cannot be taken apart");
  auto& entry = reading.carry(DependentKind::rule, reference.identity);
  entry.create_sql = "CREATE OR REPLACE RULE " + definition.substr(kBeginning.size()) +
                     (definition.ends_with(';') ? "\n" : ";\n");
  if (!bool_of(row[4])) entry.locks = {text_of(row[1])};
}

}  // namespace crossfade

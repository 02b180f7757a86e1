#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reading.hpp"

namespace crossfade {

std::vector<Grant> read_grants(SqlSession& session, const std::string& acl, const std::string& from,
                               const SqlParams& params) {
  const auto found = session.exec(
      fmt::format("SELECT x.privilege_type, CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE "
                  "quote_ident(pg_get_userbyid(x.grantee)) END, x.is_grantable, pg_get_userbyid(x.grantor)"
                  " FROM {}, LATERAL aclexplode({}) x ORDER BY 4, 2, 1",
                  from, acl),
      params);
  std::vector<Grant> grants;
  for (const auto& row : found.rows)
    grants.push_back({text_of(row[0]), text_of(row[1]), text_of(row[3]), bool_of(row[2])});
  return grants;
}

GrantStatements grant_statements(Reading& reading, std::vector<Grant> grants, const std::string& owner,
                                 const std::string& columns, const std::string& relation) {
  GrantStatements statements;
  std::set<std::string> may_grant{display_identifier(owner)};
  while (!grants.empty()) {
    const auto next = std::ranges::find_if(
        grants, [&](const Grant& grant) { return may_grant.contains(display_identifier(grant.grantor)); });
    // Nobody can grant what is left: a grantor's own right came from a membership.
    if (next == grants.end()) return {"", "", grants.front().grantor};
    const auto grant = *next;
    grants.erase(next);
    std::string before, after;
    if (grant.grantor != owner) {
      if (!reading.acts_as(grant.grantor)) return {"", "", grant.grantor};
      before = fmt::format("SET LOCAL ROLE {};\n", quote_identifier(grant.grantor));
      after = "RESET ROLE;\n";
    }
    const auto what = fmt::format("{}{} ON {}", grant.privilege, columns, relation);
    statements.grant += fmt::format("{}GRANT {} TO {}{};\n{}", before, what, grant.grantee,
                                    grant.grantable ? " WITH GRANT OPTION" : "", after);
    statements.revoke =
        fmt::format("{}REVOKE {} FROM {};\n{}", before, what, grant.grantee, after) + statements.revoke;
    if (grant.grantable) may_grant.insert(grant.grantee);
  }
  return statements;
}

void take_column_grants(Reading& reading) {
  const auto grants =
      read_grants(reading.session, "a.attacl",
                  "(SELECT attacl FROM pg_attribute WHERE attrelid = $1::oid AND attnum = $2::int2) a",
                  {std::to_string(reading.table.oid.value), std::to_string(reading.facts.attnum)});
  if (grants.empty()) return;
  const auto statements =
      grant_statements(reading, grants, reading.table.owner,
                       fmt::format(" ({})", quote_identifier(reading.facts.name)), reading.table.name.sql());
  if (!statements.missing_role.empty()) {
    reading.refuse(
        reading.object(),
        fmt::format("Privileges on column {} were granted by role {}, as which this role cannot act; "
                    "they are not carried to the new column.",
                    reading.object(), display_identifier(statements.missing_role)),
        fmt::format("Grant them as the owner of the table, or make this role a member of {}.",
                    display_identifier(statements.missing_role)));
    return;
  }
  auto& entry = reading.carry(DependentKind::column_grant, reading.facts.name);
  entry.remove_sql = statements.revoke;
  entry.create_sql = statements.grant;
}

}  // namespace crossfade

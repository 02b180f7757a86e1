#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

void missing_privilege(const Context& context) {
  const auto* column = context.migrated();
  // An owner may have revoked from himself. CREATE on the schema is asked for by CREATE INDEX and its renames
  // alone.
  const auto row = context.session
                       .exec(R"sql(
SELECT has_schema_privilege(c.relnamespace, 'USAGE'),
       has_schema_privilege(c.relnamespace, 'CREATE')
         OR NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND $2::int2 = ANY (i.indkey)),
       has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE'),
       has_database_privilege(current_database(), 'TEMP'), quote_ident(current_database()),
       (SELECT quote_ident(n.nspname) FROM pg_namespace n WHERE n.oid = c.relnamespace)
FROM pg_class c WHERE c.oid = $1::oid)sql",
                             {context.table_oid(), std::to_string(column == nullptr ? 0 : column->attnum)})
                       .one("privileges");
  const auto role = context.role(), table = context.table_text();
  const auto report = [&](const std::string& object, const std::string& what, const std::string& grant) {
    context.refuse("missing_privilege", object, fmt::format("Role {} {}.", role, what), grant);
  };
  if (!context.table.may_alter) {
    report(
        table,
        fmt::format("does not own table {}, which belongs to {}", table,
                    display_identifier(context.table.owner)),
        fmt::format("Run as the owner, or GRANT {} TO {};", display_identifier(context.table.owner), role));
  }
  const auto schema = text_of(row[5]), database = text_of(row[4]);
  if (!bool_of(row[0])) {
    report(schema, "may not use schema " + schema,
           fmt::format("GRANT USAGE ON SCHEMA {} TO {};", schema, role));
  }
  if (!bool_of(row[1])) {
    report(schema, fmt::format("may not create the new indexes of table {} in schema {}", table, schema),
           fmt::format("GRANT CREATE ON SCHEMA {} TO {};", schema, role));
  }
  if (!bool_of(row[2])) {
    report(table, "may not read and update table " + table,
           fmt::format("GRANT SELECT, UPDATE ON {} TO {};", table, role));
  }
  if (!bool_of(row[3])) {
    report(database,
           fmt::format("may not create temporary tables in database {}, which the check of expressions needs",
                       database),
           fmt::format("GRANT TEMPORARY ON DATABASE {} TO {};", database, role));
  }
}

}  // namespace crossfade::checks

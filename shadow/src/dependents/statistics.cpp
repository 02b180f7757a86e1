// Extended statistics: a twin is made in dual_write and takes the name at the switch.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

// $1 statistics object, $2 columns that move. A single expression has kind 'e' alone, which is not written.
constexpr const char* kStatistics = R"sql(
SELECT s.stxname, n.nspname, pg_get_userbyid(s.stxowner),
  coalesce((SELECT ' (' || string_agg(CASE k WHEN 'd' THEN 'ndistinct' WHEN 'f' THEN 'dependencies' ELSE
      'mcv' END, ', '
                                      ORDER BY k) || ')' FROM unnest(s.stxkind) k WHERE k <> 'e'), '')
    || ' ON ' || pg_get_statisticsobjdef_columns(s.oid),
  CASE WHEN coalesce(s.stxstattarget, -1) >= 0 THEN format('SET STATISTICS %s', s.stxstattarget) ELSE '' END,
  obj_description(s.oid, 'pg_statistic_ext'), coalesce(s.stxexprs::text ~ ':varattno 0 ', false),
  has_schema_privilege(n.oid, 'CREATE'), quote_ident(current_user), quote_ident(n.nspname),
  (SELECT coalesce(min(x), 0) FROM unnest($2::int2[]) x WHERE x = ANY (s.stxkeys) OR EXISTS (
     SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid
       AND d.refclassid = 'pg_class'::regclass AND d.refobjid = s.stxrelid AND d.refobjsubid = x))
FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE s.oid = $1::oid)sql";

}  // namespace

void take_statistics(Reading& reading, const Reference& reference) {
  const auto found =
      reading.session.exec(kStatistics, {std::to_string(reference.oid), reading.moving_attnums()});
  const auto& row = found.one("statistics");
  if (!reading.acts_as(text_of(row[2])))
    return reading.refuse(reference,
                          fmt::format("it belongs to role {}", display_identifier(text_of(row[2]))));
  if (text_of(row[2]) != reading.table.owner)
    return reading.refuse(reference, "it does not belong to the owner of the table");
  if (bool_of(row[6]))
    return reading.refuse(reference, "it reads the whole row, which has one more column then");
  if (!bool_of(row[7])) {
    reading.findings.push_back(
        {Severity::refuse, "missing_privilege", text_of(row[9]),
         fmt::format("Role {} may not create the twin of {} in schema {}.", text_of(row[8]),
                     reference.description, text_of(row[9])),
         fmt::format("GRANT CREATE ON SCHEMA {} TO {};", text_of(row[9]), text_of(row[8]))});
    return;
  }
  const auto definition = text_of(row[3]);
  const auto& clone = reading.clone();
  const auto statement = fmt::format("CREATE STATISTICS pg_temp.cf_twin{} FROM {}", definition, clone.sql());
  if (const auto objection = clone.objection(statement)) return reading.refuse(reference, *objection);
  const auto over = clone.over_shadow(
      statement,
      "(SELECT pg_get_statisticsobjdef_columns(oid) FROM pg_statistic_ext WHERE stxname = 'cf_twin'"
      " AND stxnamespace = pg_my_temp_schema())");
  auto& entry = reading.carry(DependentKind::statistics, text_of(row[0]));
  entry.schema = text_of(row[1]);
  entry.definition = definition;
  entry.twin_definition = definition.substr(0, definition.find(" ON ")) + " ON " + over;
  entry.settings = text_of(row[4]);
  entry.carried_by = reading.carried_by(int_of(row[10]));
  entry.old_sql = row[5];
}

}  // namespace crossfade

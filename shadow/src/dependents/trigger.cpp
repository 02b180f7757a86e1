// The user's triggers that name the column, in their column list or WHEN: dropped and made again by the same
// words once the names have moved. Triggers fire in the order of their names, so nothing else changes.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr const char* kTrigger = R"sql(
SELECT t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text, obj_description(t.oid, 'pg_trigger'),
  coalesce(t.tgqual::text ~ ':varattno 0 ', false), t.tgparentid <> 0,
  has_function_privilege(t.tgfoid, 'EXECUTE'), t.tgfoid::regprocedure::text, quote_ident(current_user)
FROM pg_trigger t WHERE t.oid = $1::oid)sql";

std::string enable_clause(const std::string& state) {
  if (state == "D") return "DISABLE TRIGGER";
  if (state == "R") return "ENABLE REPLICA TRIGGER";
  return state == "A" ? "ENABLE ALWAYS TRIGGER" : "";
}

}  // namespace

std::string recreate_trigger_sql(const QualifiedName& table, const std::string& name,
                                 const std::string& definition, const std::string& state,
                                 const SqlValue& comment) {
  const auto quoted = quote_identifier(name);
  auto sql = fmt::format("DROP TRIGGER {} ON {};\n{};\n", quoted, table.sql(), definition);
  if (const auto clause = enable_clause(state); !clause.empty())
    sql += fmt::format("ALTER TABLE {} {} {};\n", table.sql(), clause, quoted);
  return sql + comment_sql(fmt::format("TRIGGER {} ON {}", quoted, table.sql()), comment);
}

void take_trigger(Reading& reading, const Reference& reference) {
  const auto found = reading.session.exec(kTrigger, {std::to_string(reference.oid)});
  const auto& row = found.one("trigger");
  const auto definition = text_of(row[1]);
  if (bool_of(row[4]))
    return reading.refuse(reference, "its WHEN reads the whole row, which has one more column then");
  if (bool_of(row[5])) return reading.refuse(reference, "it belongs to a partitioned table");
  if (!bool_of(row[6])) {
    reading.findings.push_back(
        {Severity::refuse, "missing_privilege", text_of(row[7]),
         fmt::format("Role {} may not make {} again.", text_of(row[8]), reference.description),
         fmt::format("GRANT EXECUTE ON FUNCTION {} TO {};", text_of(row[7]), text_of(row[8]))});
    return;
  }
  const auto& clone = reading.clone();
  const auto on = fmt::format(" ON {} ", reading.table.name.display());
  if (const auto at = definition.find(on); at == std::string::npos) {
    return reading.refuse(reference, "its definition cannot be taken apart");
  } else if (const auto objection = clone.objection(definition.substr(0, at) + " ON " + clone.sql() + " " +
                                                    definition.substr(at + on.size()))) {
    return reading.refuse(reference, *objection);
  }
  auto& entry = reading.carry(DependentKind::trigger, text_of(row[0]));
  entry.create_sql =
      recreate_trigger_sql(reading.table.name, entry.name, definition, text_of(row[2]), row[3]);
}

}  // namespace crossfade

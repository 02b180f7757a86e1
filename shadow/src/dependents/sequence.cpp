// Serial and identity. A sequence that the column owns becomes the new column's, in its type; that of an
// identity goes with DROP IDENTITY and is made again where it stood. Both are locked before the table:
// whoever draws from a sequence holds its lock until the transaction ends, and would keep us waiting with the
// table locked.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

// $1 sequence, $2 table, $3 column.
constexpr const char* kSequence = R"sql(
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), a.attidentity::text, format_type(q.seqtypid,
    -1),
  format('START WITH %s INCREMENT BY %s %s %s CACHE %s %s', q.seqstart, q.seqincrement,
    CASE WHEN q.seqmin = CASE WHEN q.seqincrement > 0 THEN 1 ELSE -(2::numeric ^ (8 * t.typlen - 1)) END
      THEN 'NO MINVALUE' ELSE 'MINVALUE ' || q.seqmin END,
    CASE WHEN q.seqmax = CASE WHEN q.seqincrement > 0 THEN 2::numeric ^ (8 * t.typlen - 1) - 1 ELSE -1 END
      THEN 'NO MAXVALUE' ELSE 'MAXVALUE ' || q.seqmax END,
    q.seqcache, CASE WHEN q.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END),
  q.seqincrement, obj_description(c.oid, 'pg_class'), pg_get_userbyid(c.relowner), c.relacl IS NOT NULL,
  (SELECT string_agg(pg_describe_object(d.classid, d.objid, d.objsubid), ', ') FROM pg_depend d
   WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.deptype = 'n')
FROM pg_sequence q JOIN pg_class c ON c.oid = q.seqrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = q.seqtypid
JOIN pg_attribute a ON a.attrelid = $2::oid AND a.attnum = $3::int2 WHERE q.seqrelid = $1::oid)sql";

void take_identity(Reading& reading, const Reference& reference, const SqlResult::Row& row) {
  const auto name = text_of(row[0]);
  const auto& column = reading.column;
  if (!column.not_null || column.forward.totality != Totality::total || !column.forward.strict)
    return reading.refuse(reference, "the new column is not proved NOT NULL before the switch");
  if (row[8]) return reading.refuse(reference, *row[8] + " draws from it, too");
  const auto table = reading.table.name.sql(), quoted = quote_identifier(column.name);
  const auto place = fmt::format("crossfade.identity_{}_{}", reading.table.oid.value, reading.facts.attnum);
  const auto grants = grant_statements(
      reading,
      read_grants(reading.session, "c.relacl", "(SELECT relacl FROM pg_class WHERE oid = $1::oid) c",
                  {std::to_string(reference.oid)}),
      text_of(row[6]), "", "SEQUENCE " + name);
  if (!grants.missing_role.empty())
    return reading.refuse(reference,
                          "privileges on it were granted by role " + display_identifier(grants.missing_role));
  auto& entry = reading.carry(DependentKind::identity, name);
  // Changes nothing; nobody draws from it between here and the end of the transaction.
  entry.old_sql = entry.new_sql = fmt::format("ALTER SEQUENCE {} INCREMENT BY {};\n", name, text_of(row[4]));
  entry.remove_sql = fmt::format(
      "SELECT pg_catalog.set_config({0}, last_value::text || ' ' || is_called::text, true) FROM {1};\n"
      "ALTER TABLE {2} ALTER COLUMN {3} DROP IDENTITY;\n",
      quote_literal(place), name, table, quoted);
  entry.create_sql = fmt::format(
      "ALTER TABLE {0} ALTER COLUMN {1} ADD GENERATED {2} AS IDENTITY (SEQUENCE NAME {3} {4});\n"
      "SELECT pg_catalog.setval({5}::regclass, split_part(current_setting({6}), ' ', 1)::bigint,\n"
      "  split_part(current_setting({6}), ' ', 2)::boolean);\n",
      table, quoted, text_of(row[1]) == "a" ? "ALWAYS" : "BY DEFAULT", name, text_of(row[3]),
      quote_literal(name), quote_literal(place));
  entry.create_sql += comment_sql("SEQUENCE " + name, row[5]);
  if (bool_of(row[7])) {
    entry.create_sql +=
        fmt::format("REVOKE ALL ON SEQUENCE {} FROM {};\n", name, quote_identifier(text_of(row[6])));
    entry.create_sql += grants.grant;
  }
}

void take_serial(Reading& reading, const SqlResult::Row& row) {
  const auto name = text_of(row[0]), type = text_of(row[2]);
  const auto& column = reading.column;
  const auto becomes = [&](const std::string& new_type, const std::string& owner) {
    return fmt::format("ALTER SEQUENCE {}{} OWNED BY {}.{};\n", name,
                       new_type.empty() ? "" : " AS " + new_type, reading.table.name.sql(),
                       quote_identifier(owner));
  };
  // One that is wide enough already, as those of old serial columns are, stays so.
  const bool widens = type == column.old_type;
  auto& entry = reading.carry(DependentKind::sequence, name);
  entry.new_sql = becomes(widens ? column.new_type : "", column.shadow_name);
  entry.old_sql = becomes(widens ? type : "", column.retired_name);
}

}  // namespace

void take_sequence(Reading& reading, const Reference& reference) {
  const auto found =
      reading.session.exec(kSequence, {std::to_string(reference.oid), std::to_string(reading.table.oid.value),
                                       std::to_string(reading.facts.attnum)});
  const auto& row = found.one("sequence");
  if (!widens_integer(reading.column))
    return reading.refuse(reference, "only an integer that becomes a wider one keeps its sequence");
  if (text_of(row[1]).empty()) return take_serial(reading, row);
  take_identity(reading, reference, row);
}

}  // namespace crossfade

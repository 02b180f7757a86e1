// What ALTER TABLE … ALTER COLUMN sets for one column. The shadow gets it when it comes into being, so that
// its values are stored from the first one on as the old column's are.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

// $1 table, $2 column, $3 new type. A fixed-length type has neither storage nor compression.
constexpr const char* kSettings = R"sql(
SELECT what, action FROM (
  SELECT 1 AS number, 'statistics target' AS what, format('SET STATISTICS %s', a.attstattarget) AS action
    WHERE coalesce(a.attstattarget, -1) >= 0
  UNION ALL SELECT 2, 'options', format('SET (%s)', (SELECT string_agg(format('%I = %L', o.option_name,
      o.option_value), ', ')
      FROM pg_options_to_table(a.attoptions) o WHERE o.option_name <> 'pg_attver'))
    WHERE EXISTS (SELECT 1 FROM pg_options_to_table(a.attoptions) o WHERE o.option_name <> 'pg_attver')
  UNION ALL SELECT 3, 'storage', format('SET STORAGE %s', CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e'
      THEN 'EXTERNAL'
      WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END)
    WHERE a.attstorage <> t.typstorage AND n.typlen = -1
  UNION ALL SELECT 4, 'compression', format('SET COMPRESSION %s', CASE a.attcompression WHEN 'p' THEN 'pglz'
      ELSE 'lz4' END)
    WHERE a.attcompression <> '' AND n.typlen = -1) s ORDER BY number)sql";

}  // namespace

void take_settings(Reading& reading) {
  const auto found = reading.session.exec(
      std::string("SELECT s.what, s.action FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
                  " JOIN pg_type n ON n.oid = $3::regtype CROSS JOIN LATERAL (") +
          kSettings + ") s WHERE a.attrelid = $1::oid AND a.attnum = $2::int2",
      {std::to_string(reading.table.oid.value), std::to_string(reading.facts.attnum),
       reading.column.new_type});
  for (const auto& row : found.rows)
    reading.carry(DependentKind::column_setting, text_of(row[0])).create_sql = text_of(row[1]);
  if (reading.facts.default_collation || reading.collation().empty()) return;
  const bool deterministic =
      bool_of(reading.session
                  .exec("SELECT c.collisdeterministic FROM pg_attribute a JOIN pg_collation c ON c.oid = "
                        "a.attcollation WHERE a.attrelid = $1::oid AND a.attnum = $2::int2",
                        {std::to_string(reading.table.oid.value), std::to_string(reading.facts.attnum)})
                  .one("collation")[0]);
  if (!deterministic) {
    reading.refuse(
        reading.collation(),
        fmt::format("Column {} has the nondeterministic collation {}, which is not carried to the new one.",
                    reading.object(), reading.collation()),
        "Migrate to a type without collation, or choose the collation in a domain.");
    return;
  }
  reading.carry(DependentKind::column_setting, "collation").create_sql =
      fmt::format("SET DATA TYPE {} COLLATE {}", reading.column.new_type, reading.collation());
}

}  // namespace crossfade

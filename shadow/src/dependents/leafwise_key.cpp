// ADD CONSTRAINT on a partitioned table goes from partition to partition. Where it finds a valid foreign key
// with the same columns, actions and deferrability that is no part of another, it makes that one its part,
// takes its action triggers away and reads nothing. So it does with an equal UNIQUE or PRIMARY KEY. The names
// of the parts are the partitions' own: they are kept in a setting of the transaction between the two
// statements, since by then the old ones are gone.
#include "leafwise_key.hpp"

#include <fmt/format.h>

namespace crossfade {

namespace {

constexpr const char* kNames = "crossfade.key_names";

// What is on the partitions of the constraint, as parts (oid, conrelid, conname). conparentid leads from one
// level to the next.
std::string parts_sql(const LeafwiseKey& key) {
  return fmt::format(
      R"sql(parts AS (
  SELECT k.oid, k.conrelid, k.conname FROM pg_catalog.pg_constraint k WHERE k.conrelid = {}::oid
    AND k.conname = {}
  UNION ALL SELECT k.oid, k.conrelid, k.conname FROM parts JOIN pg_catalog.pg_constraint k
    ON k.conparentid = parts.oid))sql",
      key.oid.value, quote_literal(key.constraint));
}

// Several constraints of one table have parts on the same partitions.
std::string place_of(const LeafwiseKey& key) {
  return fmt::format("pg_catalog.concat_ws(' ', conrelid, {})", quote_literal(key.constraint));
}

std::string rename_parts_sql(const LeafwiseKey& key) {
  const auto body = fmt::format(
      R"sql(DECLARE
  part record;
BEGIN
  FOR part IN WITH RECURSIVE {}
    SELECT n.nspname, c.relname, parts.conname AS now, k.value ->> 0 AS name, k.value ->> 1 AS comment
    FROM parts JOIN pg_catalog.jsonb_each(pg_catalog.current_setting('{}')::jsonb) k ON k.key = {}
    JOIN pg_catalog.pg_class c ON c.oid = parts.conrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LOOP
    IF part.now <> part.name THEN
      EXECUTE pg_catalog.format('ALTER TABLE %I.%I RENAME CONSTRAINT %I TO %I', part.nspname, part.relname,
        part.now, part.name);
    END IF;
    IF part.comment IS NOT NULL THEN
      EXECUTE pg_catalog.format('COMMENT ON CONSTRAINT %I ON %I.%I IS %L', part.name, part.nspname,
        part.relname, part.comment);
    END IF;
  END LOOP;
END)sql",
      parts_sql(key), kNames, place_of(key));
  return fmt::format("DO {};\n", quote_literal(body));
}

}  // namespace

std::string remove_leafwise_sql(const LeafwiseKey& key) {
  return fmt::format(
      R"sql(WITH RECURSIVE {0}
SELECT pg_catalog.set_config('{1}',
  (coalesce(nullif(pg_catalog.current_setting('{1}', true), ''), '{{}}')::jsonb || coalesce(
    pg_catalog.jsonb_object_agg({2}, pg_catalog.jsonb_build_array(conname,
      pg_catalog.obj_description(oid, 'pg_constraint'))), '{{}}'))::text, true)
FROM parts WHERE conrelid <> {3}::oid;
ALTER TABLE {4} DROP CONSTRAINT {5};
)sql",
      parts_sql(key), kNames, place_of(key), key.oid.value, key.table.sql(),
      quote_identifier(key.constraint));
}

std::string create_leafwise_sql(const LeafwiseKey& key) {
  auto sql = fmt::format("ALTER TABLE {} ADD CONSTRAINT {} {};\n", key.table.sql(),
                         quote_identifier(key.constraint), key.definition);
  sql += rename_parts_sql(key);
  if (key.comment) {
    sql += fmt::format("COMMENT ON CONSTRAINT {} ON {} IS {};\n", quote_identifier(key.constraint),
                       key.table.sql(), quote_literal(*key.comment));
  }
  return sql;
}

}  // namespace crossfade

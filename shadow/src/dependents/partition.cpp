// What a partition has of its own. The table's statements reach every partition, and leave there what the
// partition has beside what it inherits: a column of it keeps its number under the name that moves. So all of
// that is refused by name.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr const char* kHint =
    "Drop it before the migration and make it again after it, or detach the partition.";

bool yes(SqlSession& session, const char* sql, std::uint32_t oid) {
  const auto found = session.exec(sql, {std::to_string(oid)});
  return !found.empty() && bool_of(found[0][0]);
}

// It is there because the table has it.
bool is_inherited(SqlSession& session, const Reference& reference) {
  switch (reference.kind) {
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
      return true;  // compared as properties of the column
    case ReferenceKind::index:
      return yes(session, "SELECT relispartition FROM pg_class WHERE oid = $1::oid", reference.oid);
    case ReferenceKind::constraint:
      return yes(session,
                 "SELECT conparentid <> 0 OR (coninhcount > 0 AND NOT conislocal) FROM pg_constraint"
                 " WHERE oid = $1::oid",
                 reference.oid);
    case ReferenceKind::trigger:
      return yes(session, "SELECT tgparentid <> 0 FROM pg_trigger WHERE oid = $1::oid", reference.oid);
    case ReferenceKind::view:
    case ReferenceKind::materialised_view:
    case ReferenceKind::rule:
    case ReferenceKind::policy:
    case ReferenceKind::statistics:
    case ReferenceKind::function:
    case ReferenceKind::generated_column:
    case ReferenceKind::own_generation:
    case ReferenceKind::sequence:
    case ReferenceKind::publication:
    case ReferenceKind::partition_key:
    case ReferenceKind::unknown:
      break;
  }
  return false;
}

// $1 table, $2 column's name. What the column of a partition has beyond or instead of the table's: ALTER on
// the table would take it away, or leave it on the side that goes.
constexpr const char* kOwnProperties = R"sql(
SELECT c.oid::regclass::text, concat_ws(', ',
  CASE WHEN a.attnotnull <> r.attnotnull THEN 'NOT NULL' END,
  CASE WHEN pg_get_expr(d.adbin, d.adrelid) IS DISTINCT FROM pg_get_expr(e.adbin, e.adrelid)
    THEN 'a default' END,
  CASE WHEN a.attcollation <> r.attcollation THEN 'a collation' END,
  CASE WHEN col_description(a.attrelid, a.attnum) IS NOT NULL THEN 'a comment' END,
  CASE WHEN coalesce(a.attstattarget, -1) <> coalesce(r.attstattarget, -1) THEN 'a statistics target' END,
  CASE WHEN a.attstorage <> r.attstorage THEN 'a storage' END,
  CASE WHEN a.attcompression <> '' THEN 'a compression' END,
  CASE WHEN EXISTS (SELECT 1 FROM pg_options_to_table(a.attoptions) o WHERE o.option_name <> 'pg_attver')
    THEN 'options' END,
  CASE WHEN a.attacl IS NOT NULL THEN 'privileges' END)
FROM {} p JOIN pg_class c ON c.oid = p.relid
JOIN pg_attribute a ON a.attrelid = p.relid AND a.attname = $2 AND NOT a.attisdropped
JOIN pg_attribute r ON r.attrelid = $1::oid AND r.attname = $2 AND NOT r.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_attrdef e ON e.adrelid = r.attrelid AND e.adnum = r.attnum ORDER BY 1)sql";

void refuse_own_properties(Reading& reading) {
  const auto found = reading.session.exec(fmt::format(kOwnProperties, partition_tree_sql("$1::oid")),
                                          {std::to_string(reading.table.oid.value), reading.facts.name});
  for (const auto& row : found.rows) {
    if (text_of(row[1]).empty()) continue;
    const auto column = text_of(row[0]) + "." + display_identifier(reading.facts.name);
    reading.refuse(
        column,
        fmt::format("Column {} of a partition has {} of its own, which the new column would not have.",
                    column, text_of(row[1])),
        "Set it on the table and not on the partition, or take it off for the time of the migration.");
  }
}

// Made again with the table's trigger, a clone has the table's firing state and no comment.
void refuse_own_triggers(Reading& reading) {
  const auto found = reading.session.exec(
      "SELECT c.oid::regclass::text, quote_ident(t.tgname) FROM " + partition_tree_sql("$1::oid") +
          " p JOIN pg_class c ON c.oid = p.relid JOIN pg_trigger t ON t.tgrelid = p.relid"
          " JOIN pg_trigger o ON o.oid = t.tgparentid WHERE NOT t.tgisinternal AND (t.tgenabled <> "
          "o.tgenabled"
          " OR obj_description(t.oid, 'pg_trigger') IS NOT NULL) ORDER BY 1, 2",
      {std::to_string(reading.table.oid.value)});
  for (const auto& row : found.rows) {
    const auto trigger = text_of(row[1]) + " on " + text_of(row[0]);
    reading.refuse(
        trigger,
        fmt::format("Trigger {} differs from the table's in its firing state, or has a comment; made "
                    "again at the switch it would not.",
                    trigger),
        "Give it the state of the table's trigger, without a comment.");
  }
}

}  // namespace

std::vector<Reference> partition_references(SqlSession& session, Oid table, const std::string& column,
                                            const std::vector<std::string>& suffixes) {
  std::vector<Reference> own;
  for (const auto& partition : read_partitions(session, table)) {
    const auto attnum = session.exec(
        "SELECT attnum FROM pg_attribute WHERE attrelid = $1::oid AND attname = $2 AND NOT attisdropped",
        {std::to_string(partition.oid.value), column});
    if (attnum.empty()) continue;
    for (auto& reference :
         read_references(session, partition.oid, static_cast<int>(int_of(attnum[0][0])), suffixes)) {
      if (!is_inherited(session, reference)) own.push_back(std::move(reference));
    }
  }
  return own;
}

void take_partitions(Reading& reading) {
  for (const auto& reference : partition_references(reading.session, reading.table.oid, reading.facts.name,
                                                    own_suffixes(reading.column))) {
    reading.refuse(
        reference.identity,
        fmt::format("{} hangs on column {} of a partition alone and is not carried.", reference.description,
                    display_identifier(reading.facts.name)),
        reference.kind == ReferenceKind::partition_key ? "A partition key cannot be migrated." : kHint);
  }
  refuse_own_properties(reading);
  refuse_own_triggers(reading);
}

std::optional<std::string> own_index_parts(SqlSession& session, std::uint32_t index) {
  const auto found = session.exec(R"sql(
WITH RECURSIVE parts AS (
  SELECT i.inhrelid AS oid FROM pg_inherits i WHERE i.inhparent = $1::oid
  UNION ALL SELECT i.inhrelid FROM parts JOIN pg_inherits i ON i.inhparent = parts.oid)
SELECT string_agg(c.oid::regclass::text, ', ' ORDER BY c.oid::regclass::text)
FROM parts JOIN pg_class c USING (oid)
JOIN pg_index x ON x.indexrelid = c.oid JOIN pg_class r ON r.oid = $1::oid
JOIN pg_index y ON y.indexrelid = r.oid
-- An index that was there before was attached whatever its direction.
WHERE x.indoption::text <> y.indoption::text
  OR c.reloptions IS DISTINCT FROM r.reloptions OR c.reltablespace <> r.reltablespace OR x.indisclustered
  OR x.indisreplident OR obj_description(c.oid, 'pg_class') IS NOT NULL
  OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND coalesce(a.attstattarget, -1) >= 0)
)sql",
                                  {std::to_string(index)});
  return found.one("parts")[0];
}

}  // namespace crossfade

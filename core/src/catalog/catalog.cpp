#include "crossfade/core/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {

// What a column carries beyond its type (pg_attver is the server's own mark, not a setting): each differs
// from what ADD COLUMN of the same type would make.
constexpr const char* kColumns = R"sql(
SELECT a.attnum, a.attname, a.atttypid, format_type(a.atttypid, a.atttypmod), a.atttypmod, a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated, a.attcollation = t.typcollation,
       col_description(a.attrelid, a.attnum),
       concat_ws(chr(31),
         CASE WHEN coalesce(a.attstattarget::int, -1) <> -1 THEN 'statistics target' END,
         CASE WHEN a.attstorage <> t.typstorage THEN 'storage' END,
         CASE WHEN a.attcompression <> '' THEN 'compression' END,
         CASE WHEN EXISTS (SELECT FROM unnest(a.attoptions) o WHERE o NOT LIKE 'pg\_attver=%')
              THEN 'column options' END,
         CASE WHEN a.attfdwoptions IS NOT NULL THEN 'foreign data wrapper options' END,
         CASE WHEN a.attacl IS NOT NULL THEN 'column privileges' END,
         CASE WHEN EXISTS (SELECT 1 FROM pg_seclabel s WHERE s.classoid = 'pg_class'::regclass
                           AND s.objoid = a.attrelid AND s.objsubid = a.attnum) THEN 'security label' END)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)sql";

constexpr const char* kTable = R"sql(
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, coalesce(pg_relation_filenode(c.oid), 0),
       pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'USAGE'), c.relrowsecurity, c.relforcerowsecurity,
       c.relispartition, EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = c.oid),
       EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhrelid = c.oid), c.reltuples, pg_table_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE )sql";

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from < text.size();) {
    const auto to = std::min(text.find(separator, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

ColumnFacts column_of(const SqlResult::Row& row) {
  ColumnFacts column;
  column.attnum = static_cast<int>(int_of(row[0]));
  column.name = text_of(row[1]);
  column.type.value = static_cast<std::uint32_t>(int_of(row[2]));
  column.type_text = text_of(row[3]);
  column.typmod = static_cast<int>(int_of(row[4]));
  column.not_null = bool_of(row[5]);
  column.default_text = row[6];
  column.identity = text_of(row[7]);
  column.generated = text_of(row[8]);
  column.default_collation = bool_of(row[9]);
  column.comment = row[10];
  column.settings = split(text_of(row[11]), '\x1f');
  return column;
}

std::optional<TableFacts> table_of(SqlSession& session, const SqlResult& found) {
  if (found.empty()) return std::nullopt;
  const auto& row = found[0];
  TableFacts table;
  table.oid.value = static_cast<std::uint32_t>(int_of(row[0]));
  table.name = {text_of(row[1]), text_of(row[2])};
  table.kind = text_of(row[3]);
  table.persistence = text_of(row[4]);
  table.relfilenode = static_cast<std::uint32_t>(int_of(row[5]));
  table.owner = text_of(row[6]);
  table.may_alter = bool_of(row[7]);
  table.row_security = bool_of(row[8]);
  table.force_row_security = bool_of(row[9]);
  table.is_partition = bool_of(row[10]);
  table.has_children = bool_of(row[11]);
  table.has_parents = bool_of(row[12]);
  table.estimated_rows = double_of(row[13]);
  table.bytes = int_of(row[14]);
  for (const auto& column : session.exec(kColumns, {std::to_string(table.oid.value)}).rows) {
    table.columns.push_back(column_of(column));
  }
  return table;
}

}  // namespace

const ColumnFacts* TableFacts::column(std::string_view wanted) const {
  for (const auto& column : columns) {
    if (column.name == wanted) return &column;
  }
  return nullptr;
}

std::optional<TableFacts> read_table(SqlSession& session, const QualifiedName& name) {
  return table_of(session,
                  session.exec(std::string(kTable) + "n.nspname = $1 AND c.relname = $2"
                                                     " AND c.relkind NOT IN ('i', 'I', 'S', 'c', 't')",
                               {name.schema, name.name}));
}

std::optional<TableFacts> read_table(SqlSession& session, Oid oid) {
  return table_of(session,
                  session.exec(std::string(kTable) + "c.oid = $1::oid", {std::to_string(oid.value)}));
}

std::optional<KeyFacts> choose_key(SqlSession& session, Oid table, const std::vector<int>& excluded) {
  std::string skip = "{";
  for (const int attnum : excluded) skip += (skip.size() > 1 ? "," : "") + std::to_string(attnum);
  skip += "}";
  // indoption bits: 1 DESC, 2 NULLS FIRST. All ASC or all DESC serves row-wise comparison, which is cheaper,
  // and comes first. There are no NULLs, but ORDER BY must say where they would be, or the index does not
  // serve it.
  const auto found = session.exec(R"sql(
WITH k AS (
  SELECT i.indexrelid, i.indisprimary, i.indnkeyatts, i.indkey, i.indcollation, i.indclass, i.indoption
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_am m ON m.oid = c.relam AND m.amname = 'btree'
  WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indisready AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND NOT EXISTS (
      SELECT 1 FROM generate_series(0, i.indnkeyatts - 1) s
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[s]
      JOIN pg_opclass o ON o.oid = i.indclass[s]
      WHERE NOT a.attnotnull OR NOT o.opcdefault OR a.attnum = ANY ($2::int2[]))
  ORDER BY i.indisprimary DESC, EXISTS (SELECT 1 FROM generate_series(0, i.indnkeyatts - 1) s
                                        WHERE (i.indoption[s] & 1) <> (i.indoption[0] & 1)),
           i.indnkeyatts, i.indexrelid LIMIT 1)
SELECT k.indexrelid, k.indexrelid::regclass::text, k.indisprimary, a.attnum, a.attname,
       format_type(a.atttypid, a.atttypmod),
       coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
                 JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = k.indcollation[s]), ''),
       (k.indoption[s] & 1) <> (k.indoption[0] & 1),
       ((k.indoption[s] & 2) <> 0) <> ((k.indoption[0] & 1) <> 0),
       (SELECT c.relkind = 'p' FROM pg_class c WHERE c.oid = $1::oid)
FROM k, generate_series(0, k.indnkeyatts - 1) s
JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attnum = (SELECT indkey[s] FROM k)
ORDER BY s)sql",
                                  {std::to_string(table.value), skip});
  if (found.empty()) return std::nullopt;
  KeyFacts key;
  key.index.value = static_cast<std::uint32_t>(int_of(found[0][0]));
  key.index_name = text_of(found[0][1]);
  key.primary = bool_of(found[0][2]);
  key.partitioned = bool_of(found[0][9]);
  for (const auto& row : found.rows) {
    key.columns.push_back({static_cast<int>(int_of(row[3])), text_of(row[4]), text_of(row[5]),
                           text_of(row[6]), bool_of(row[7]), bool_of(row[8])});
  }
  return key;
}

TypeFacts resolve_type(SqlSession& session, const std::string& text) {
  SqlResult::Row row;
  try {
    // A modifier survives only through a cast; pg_typeof loses it. The parameter list of a prepared cast
    // would too, so the type is read back from a temporary view's column inside a transaction that the caller
    // rolls back.
    session.exec("CREATE TEMP TABLE cf_type_probe (v " + text + ") ON COMMIT DROP");
    row = session
              .exec(R"sql(
WITH RECURSIVE probe AS (SELECT a.atttypid, a.atttypmod FROM pg_attribute a
                         WHERE a.attrelid = 'pg_temp.cf_type_probe'::regclass AND a.attnum = 1),
down AS (SELECT atttypid AS t, atttypmod AS m FROM probe
         UNION ALL SELECT y.typbasetype, CASE WHEN y.typtypmod <> -1 THEN y.typtypmod ELSE d.m END
         FROM down d JOIN pg_type y ON y.oid = d.t AND y.typtype = 'd')
SELECT p.atttypid, b.oid, format_type(p.atttypid, p.atttypmod), format_type(b.oid, -1),
       (SELECT m FROM down WHERE t = b.oid), t.typtype = 'd', b.typcategory = 'A', t.typcollation <> 0,
       b.typtype NOT IN ('b', 'e', 'r', 'm'),
       (SELECT count(*) FROM pg_attribute a
        WHERE a.attrelid = 'pg_temp.cf_type_probe'::regclass AND a.attnum > 0)
FROM probe p JOIN pg_type t ON t.oid = p.atttypid
JOIN pg_type b ON b.oid = (SELECT t FROM down JOIN pg_type y ON y.oid = t WHERE y.typtype <> 'd'))sql")
              .one("type");
    session.exec("DROP TABLE pg_temp.cf_type_probe");
  } catch (const Error& error) {
    if (error.sqlstate().empty() || error.is_transient() || error.sqlstate() == "42501") throw;
    throw Error(ErrorCode::spec_bad_value, "'" + text + "' is not a type: " + error.message(),
                "write the type as in CREATE TABLE, with its schema unless it is built in", text)
        .with_sqlstate(error.sqlstate());
  }
  if (int_of(row[9]) != 1) {
    throw Error(ErrorCode::spec_bad_value, "'" + text + "' is not one type", "write a single type name",
                text);
  }
  TypeFacts type;
  type.oid.value = static_cast<std::uint32_t>(int_of(row[0]));
  type.base.value = static_cast<std::uint32_t>(int_of(row[1]));
  type.text = text_of(row[2]);
  type.base_text = text_of(row[3]);
  type.typmod = static_cast<int>(int_of(row[4]));
  type.is_domain = bool_of(row[5]);
  type.is_array = bool_of(row[6]);
  type.collatable = bool_of(row[7]);
  type.is_composite_or_pseudo = bool_of(row[8]);
  return type;
}

// PostgreSQL 13 has no column inhdetachpending.
std::string partition_tree_sql(const std::string& table) {
  return fmt::format(R"sql((WITH RECURSIVE tree (relid, parentid, level) AS (
  SELECT i.inhrelid, i.inhparent, 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = {0}
    AND coalesce(pg_catalog.to_jsonb(i) ->> 'inhdetachpending', 'false') = 'false'
  UNION ALL SELECT i.inhrelid, i.inhparent, t.level + 1 FROM tree t
    JOIN pg_catalog.pg_inherits i ON i.inhparent = t.relid
      AND coalesce(pg_catalog.to_jsonb(i) ->> 'inhdetachpending', 'false') = 'false')
SELECT t.relid, t.parentid, t.level, c.relkind <> 'p' AS leaf FROM tree t
  JOIN pg_catalog.pg_class c ON c.oid = t.relid WHERE c.relispartition))sql",
                     table);
}

std::vector<PartitionFacts> read_partitions(SqlSession& session, Oid table) {
  std::vector<PartitionFacts> partitions;
  for (const auto& row :
       session
           .exec("SELECT c.oid, p.parentid, n.nspname, c.relname, p.leaf FROM " +
                     partition_tree_sql("$1::oid") +
                     " p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace"
                     " ORDER BY c.oid",
                 {std::to_string(table.value)})
           .rows) {
    const auto oid = [&](int column) {
      return Oid{static_cast<std::uint32_t>(int_of(row[static_cast<std::size_t>(column)]))};
    };
    partitions.push_back({oid(0), oid(1), {text_of(row[2]), text_of(row[3])}, bool_of(row[4])});
  }
  return partitions;
}

std::vector<Oid> tree_of(SqlSession& session, Oid table) {
  std::vector<Oid> tree{table};
  for (const auto& partition : read_partitions(session, table)) tree.push_back(partition.oid);
  std::ranges::sort(tree);
  return tree;
}

std::optional<QualifiedName> relation_name(SqlSession& session, Oid oid) {
  const auto found = session.exec(
      "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n"
      " ON n.oid = c.relnamespace WHERE c.oid = $1::oid",
      {std::to_string(oid.value)});
  if (found.empty()) return std::nullopt;
  return QualifiedName{text_of(found[0][0]), text_of(found[0][1])};
}

}  // namespace crossfade

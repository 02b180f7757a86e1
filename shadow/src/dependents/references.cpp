#include "references.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>

namespace crossfade {

namespace {

constexpr int kColumnListsInPublications = 150000;

// $1 table, $2 column, $3 suffixes of our own names. pg_depend is the whole truth for objects; the other
// catalogs are read too because whatever holds a column number of its own must be found even if a dependency
// was never recorded (a whole-row variable records none: CHECK, and indexes on expressions, change their
// meaning with a new column). {publications} stands in only where column lists exist.
constexpr const char* kReferences = R"sql(
WITH refs AS (
  SELECT d.classid, d.objid, d.objsubid FROM pg_depend d
  WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::oid AND d.refobjsubid = $2::int
  UNION SELECT 'pg_class'::regclass, i.indexrelid, 0 FROM pg_index i
    WHERE i.indrelid = $1::oid AND ($2::int2 = ANY (i.indkey) OR i.indexprs::text ~ ':varattno 0 '
                                    OR i.indpred::text ~ ':varattno 0 ')
  UNION SELECT 'pg_constraint'::regclass, c.oid, 0 FROM pg_constraint c
    WHERE (c.conrelid = $1::oid AND ($2::int2 = ANY (c.conkey) OR c.conbin::text ~ ':varattno 0 '))
       OR (c.confrelid = $1::oid AND $2::int2 = ANY (c.confkey))
  -- What an expression of a constraint's index reads is a dependency of the index alone.
  UNION SELECT 'pg_constraint'::regclass, k.oid, 0 FROM pg_depend d
    JOIN pg_constraint k ON k.conindid = d.objid AND k.contype IN ('p', 'u', 'x')
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::oid
      AND d.refobjsubid = $2::int AND k.conrelid = $1::oid
  UNION SELECT 'pg_trigger'::regclass, t.oid, 0 FROM pg_trigger t
    WHERE t.tgrelid = $1::oid AND $2::int2 = ANY (t.tgattr)
  UNION SELECT 'pg_statistic_ext'::regclass, s.oid, 0 FROM pg_statistic_ext s
    WHERE s.stxrelid = $1::oid AND $2::int2 = ANY (s.stxkeys)
  UNION SELECT 'pg_class'::regclass, p.partrelid, 0 FROM pg_partitioned_table p
    WHERE p.partrelid = $1::oid AND $2::int2 = ANY (p.partattrs){publications}),
named AS (
  SELECT r.*, coalesce(c.relname, k.conname, t.tgname, s.stxname, b.pubname)::text AS name,
         c.relkind::text AS relkind, k.contype,
         t.tgisinternal, w.ev_class, w.rulename = '_RETURN' AS is_view, a.adnum, a.adrelid, k.conindid
  FROM refs r
  LEFT JOIN pg_class c ON r.classid = 'pg_class'::regclass AND c.oid = r.objid AND r.objsubid = 0
  LEFT JOIN pg_constraint k ON r.classid = 'pg_constraint'::regclass AND k.oid = r.objid
  LEFT JOIN pg_trigger t ON r.classid = 'pg_trigger'::regclass AND t.oid = r.objid
  LEFT JOIN pg_rewrite w ON r.classid = 'pg_rewrite'::regclass AND w.oid = r.objid
  LEFT JOIN pg_statistic_ext s ON r.classid = 'pg_statistic_ext'::regclass AND s.oid = r.objid
  LEFT JOIN pg_publication_rel l ON r.classid = 'pg_publication_rel'::regclass AND l.oid = r.objid
  LEFT JOIN pg_publication b ON b.oid = l.prpubid
  LEFT JOIN pg_attrdef a ON r.classid = 'pg_attrdef'::regclass AND a.oid = r.objid),
kinds AS (
  SELECT n.*, CASE n.classid
    WHEN 'pg_attrdef'::regclass THEN
      CASE WHEN n.adnum <> $2::int2 OR n.adrelid <> $1::oid THEN 'generated_column'
           WHEN EXISTS (SELECT 1 FROM pg_attribute b WHERE b.attrelid = n.adrelid AND b.attnum = n.adnum
                        AND b.attgenerated <> '') THEN 'own_generation'
           ELSE 'own_default' END
    WHEN 'pg_constraint'::regclass THEN CASE WHEN n.contype = 'n' THEN 'not_null' ELSE 'constraint' END
    WHEN 'pg_trigger'::regclass THEN 'trigger'
    WHEN 'pg_rewrite'::regclass THEN CASE WHEN NOT n.is_view THEN 'rule'
      WHEN EXISTS (SELECT 1 FROM pg_class v WHERE v.oid = n.ev_class AND v.relkind = 'm') THEN
          'materialised_view'
      ELSE 'view' END
    WHEN 'pg_policy'::regclass THEN 'policy'
    WHEN 'pg_statistic_ext'::regclass THEN 'statistics'
    WHEN 'pg_proc'::regclass THEN 'function'
    WHEN 'pg_publication_rel'::regclass THEN 'publication'
    WHEN 'pg_class'::regclass THEN
      CASE WHEN n.objid = $1::oid AND n.objsubid <> 0 THEN 'generated_column'
           WHEN n.objid = $1::oid THEN 'partition_key'
           WHEN n.relkind IN ('i', 'I') THEN 'index'
           WHEN n.relkind = 'S' THEN 'sequence'
           ELSE 'unknown' END
    ELSE 'unknown' END AS kind
  FROM named n
  WHERE NOT coalesce(n.tgisinternal, false)
    AND NOT EXISTS (SELECT 1 FROM unnest($3::text[]) s WHERE right(n.name, length(s)) = s)
    -- Of another migration of the group (forerunners.hpp).
    AND NOT coalesce(n.contype = 'f' AND n.name ~ '_cftwin_[0-9a-f]{12}$', false)
    AND NOT (n.classid = 'pg_class'::regclass AND n.objsubid = 0 AND EXISTS (
      SELECT 1 FROM pg_constraint k WHERE k.conindid = n.objid AND k.contype IN ('p', 'u', 'x'))))
SELECT DISTINCT k.kind, k.objid,
  CASE WHEN k.kind IN ('view', 'materialised_view') THEN (pg_identify_object('pg_class'::regclass,
      k.ev_class, 0)).identity
    WHEN k.kind = 'generated_column' THEN (pg_identify_object('pg_class'::regclass, $1::oid,
                                                     coalesce(nullif(k.objsubid, 0), k.adnum))).identity
    ELSE (pg_identify_object(k.classid, k.objid, k.objsubid)).identity END,
  CASE WHEN k.kind IN ('view', 'materialised_view') THEN pg_describe_object('pg_class'::regclass,
      k.ev_class, 0)
    WHEN k.kind = 'generated_column' THEN 'generated ' || pg_describe_object('pg_class'::regclass, $1::oid,
                                                                    coalesce(nullif(k.objsubid, 0), k.adnum))
    WHEN k.kind = 'partition_key' THEN 'the partition key of ' || pg_describe_object(k.classid, k.objid, 0)
    ELSE pg_describe_object(k.classid, k.objid, k.objsubid) END,
  k.classid = 'pg_constraint'::regclass AND EXISTS (SELECT 1 FROM pg_constraint f WHERE f.oid = k.objid
    AND f.confrelid = $1::oid AND $2::int2 = ANY (f.confkey)),
  CASE WHEN k.kind IN ('view', 'materialised_view') THEN k.ev_class ELSE k.objid END, k.name
FROM kinds k ORDER BY 1, 4)sql";

constexpr const char* kPublications = R"sql(
  UNION SELECT 'pg_publication_rel'::regclass, p.oid, 0 FROM pg_publication_rel p
    WHERE p.prrelid = $1::oid AND $2::int2 = ANY (p.prattrs))sql";

ReferenceKind kind_of(const std::string& word) {
  static const std::map<std::string, ReferenceKind> kinds{
      {"own_default", ReferenceKind::own_default},
      {"not_null", ReferenceKind::not_null},
      {"index", ReferenceKind::index},
      {"constraint", ReferenceKind::constraint},
      {"trigger", ReferenceKind::trigger},
      {"view", ReferenceKind::view},
      {"materialised_view", ReferenceKind::materialised_view},
      {"rule", ReferenceKind::rule},
      {"policy", ReferenceKind::policy},
      {"statistics", ReferenceKind::statistics},
      {"function", ReferenceKind::function},
      {"generated_column", ReferenceKind::generated_column},
      {"own_generation", ReferenceKind::own_generation},
      {"sequence", ReferenceKind::sequence},
      {"publication", ReferenceKind::publication},
      {"partition_key", ReferenceKind::partition_key}};
  const auto found = kinds.find(word);
  return found == kinds.end() ? ReferenceKind::unknown : found->second;
}

std::string replaced(std::string text, std::string_view mark, std::string_view with) {
  const auto at = text.find(mark);
  return text.replace(at, mark.size(), with);
}

}  // namespace

std::vector<Reference> read_references(SqlSession& session, Oid table, int attnum,
                                       const std::vector<std::string>& suffixes) {
  const bool lists = session.identity().version_num >= kColumnListsInPublications;
  const std::vector<std::optional<std::string>> own(suffixes.begin(), suffixes.end());
  const auto found = session.exec(replaced(kReferences, "{publications}", lists ? kPublications : ""),
                                  {std::to_string(table.value), std::to_string(attnum), array_literal(own)});
  std::vector<Reference> references;
  for (const auto& row : found.rows) {
    references.push_back({kind_of(text_of(row[0])), static_cast<std::uint32_t>(int_of(row[5])),
                          row[2].value_or(row[3].value_or("")), row[3].value_or(row[2].value_or("an object")),
                          bool_of(row[4]), row[6].value_or("")});
  }
  return references;
}

std::vector<std::string> own_suffixes(const ColumnBinding& column) {
  std::vector<std::string> suffixes;
  for (const auto* moving : moving_together(column))
    suffixes.push_back(moving->shadow_name.substr(moving->shadow_name.rfind('_')));
  return suffixes;
}

}  // namespace crossfade

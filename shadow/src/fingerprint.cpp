#include "crossfade/shadow/fingerprint.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

namespace crossfade {

namespace {

// Of trigger t: it is not of a foreign key that runs ahead of the switch (forerunners.hpp), which comes while
// the comparison holds. Such a one checks, or writes through the capture like everybody.
constexpr const char* kNotOfForerunner = R"sql(NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k
        WHERE k.oid = t.tgconstraint AND k.contype = 'f' AND k.conparentid = 0
        AND k.conname::text ~ '_cftwin_[0-9a-f]{12}$'))sql";

// Of each partition, at any depth: that it is one, and what of its own the capture rests on. A trigger of the
// table has a clone on each. `partition` facts come first in the name, so that a partition that came or went
// can be told from one that was changed (partition_set.cpp).
std::string partition_facts_sql(const Migration& m) {
  if (!m.binding.key.partitioned) {
    return fmt::format(
        "SELECT 'inheritance ' || i.inhrelid::regclass::text, i.inhparent::text || ':' || i.xmin::text"
        " FROM pg_catalog.pg_inherits i WHERE {}::oid IN (i.inhrelid, i.inhparent)",
        m.row.table_oid.value);
  }
  return fmt::format(R"sql(
  SELECT 'partition ' || p.relid::regclass::text, concat_ws(':', p.relid, p.parentid, i.xmin)
    FROM {tree} p JOIN pg_catalog.pg_inherits i ON i.inhrelid = p.relid AND i.inhparent = p.parentid
  UNION ALL SELECT 'storage of partition ' || p.relid::regclass::text, concat_ws(':', c.relfilenode,
      c.relkind,
      c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
      EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid))
    FROM {tree} p JOIN pg_catalog.pg_class c ON c.oid = p.relid
  UNION ALL SELECT 'trigger ' || t.tgname || ' of partition ' || p.relid::regclass::text,
      t.oid::text || ':' || t.xmin::text
    FROM {tree} p JOIN pg_catalog.pg_trigger t ON t.tgrelid = p.relid AND (t.tgtype & 1) = 1 AND {not_ahead}
  UNION ALL SELECT 'rule ' || w.rulename || ' of partition ' || p.relid::regclass::text,
      w.oid::text || ':' || w.xmin::text
    FROM {tree} p JOIN pg_catalog.pg_rewrite w ON w.ev_class = p.relid)sql",
                     fmt::arg("tree", partition_tree_sql(fmt::format("{}::oid", m.row.table_oid.value))),
                     fmt::arg("not_ahead", kNotOfForerunner));
}

}  // namespace

// Columns by value, not by xmin: SET NOT NULL of our own must not count, a change of type rewrites the table
// and shows in its storage, and a column that was dropped and added again has another number.
std::string fingerprint_sql(const Migration& m) {
  // Columns that the expressions, the key and the two sides use, by number where known and by name for the
  // new one.
  std::set<int> attnums{m.binding.column.old_attnum};
  const auto add = [&](const Expression& expression) {
    for (const auto& input : expression.inputs) {
      if (input.attnum != 0) attnums.insert(input.attnum);
    }
  };
  add(m.binding.column.forward);
  if (m.binding.column.backward) add(*m.binding.column.backward);
  for (const auto& column : m.binding.key.columns) attnums.insert(column.attnum);
  std::string numbers;
  for (const int attnum : attnums) numbers += (numbers.empty() ? "" : ", ") + std::to_string(attnum);
  const auto ours = quote_literal("%\\_" + m.row.id.short_hex());
  return fmt::format(R"sql((
WITH RECURSIVE ours AS (
  SELECT p.oid FROM pg_catalog.pg_proc p
  WHERE p.pronamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'crossfade')
    AND p.proname LIKE {ours}),
reached AS (
  SELECT oid FROM ours
  UNION SELECT d.refobjid FROM reached r JOIN pg_catalog.pg_depend d
    ON d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = r.oid
      AND d.refclassid = 'pg_catalog.pg_proc'::regclass),
facts AS (
  SELECT 'trigger ' || t.tgname AS what, t.oid::text || ':' || t.xmin::text AS mark
    FROM pg_catalog.pg_trigger t WHERE t.tgrelid = {table} AND (t.tgtype & 1) = 1 AND {not_ahead}
      -- Not what archives another column of the table: it writes nothing into it, and comes while this one is
      -- compared.
      AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_proc p
        WHERE p.oid = t.tgfoid AND p.proname LIKE 'archive\_%'
        AND p.pronamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'crossfade')
        AND p.oid NOT IN (SELECT oid FROM ours))
  UNION ALL SELECT 'function ' || p.oid::regprocedure::text, p.oid::text || ':' || p.xmin::text
    FROM pg_catalog.pg_proc p JOIN reached USING (oid)
  UNION ALL SELECT 'column number ' || a.attnum, 
      concat_ws(':', a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attgenerated, a.attidentity)
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = {table} AND NOT a.attisdropped
      AND (a.attnum IN ({numbers}) OR a.attname IN ({shadow}, {retired}, {name}))
  UNION ALL SELECT 'table storage', c.relfilenode::text || ':' || c.relkind::text || c.relpersistence::text
      || c.relrowsecurity::text || c.relforcerowsecurity::text
      -- Not relhasrules, which a vacuum turns off some time after the last rule has gone.
      || EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite w WHERE w.ev_class = c.oid)::text
    FROM pg_catalog.pg_class c WHERE c.oid = {table}
  UNION ALL SELECT 'rule ' || w.rulename, w.oid::text || ':' || w.xmin::text
    FROM pg_catalog.pg_rewrite w WHERE w.ev_class = {table}
  UNION ALL {partitions})
SELECT coalesce(jsonb_object_agg(what, mark), '{{}}') FROM facts))sql",
                     fmt::arg("ours", ours), fmt::arg("table", fmt::format("{}::oid", m.row.table_oid.value)),
                     fmt::arg("numbers", numbers), fmt::arg("not_ahead", kNotOfForerunner),
                     fmt::arg("partitions", partition_facts_sql(m)),
                     fmt::arg("shadow", quote_literal(m.binding.column.shadow_name)),
                     fmt::arg("retired", quote_literal(m.binding.column.retired_name)),
                     fmt::arg("name", quote_literal(m.binding.column.name)));
}

std::string read_fingerprint(SqlSession& session, const Migration& migration) {
  return text_of(session.exec("SELECT " + fingerprint_sql(migration)).one("fingerprint")[0]);
}

std::vector<std::string> fingerprint_changes(const std::string& before, const std::string& after) {
  std::vector<std::string> changes;
  if (before == after) return changes;
  const auto old_facts = before.empty() ? nlohmann::json::object() : nlohmann::json::parse(before);
  const auto new_facts = after.empty() ? nlohmann::json::object() : nlohmann::json::parse(after);
  for (const auto& [what, mark] : old_facts.items()) {
    if (!new_facts.contains(what)) {
      changes.push_back(what + " is gone");
    } else if (new_facts.at(what) != mark) {
      changes.push_back(what + " was changed");
    }
  }
  for (const auto& [what, mark] : new_facts.items()) {
    if (!old_facts.contains(what)) changes.push_back(what + " was added");
  }
  return changes;
}

}  // namespace crossfade

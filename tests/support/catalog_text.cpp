#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/identifier.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {

std::vector<std::string> describe_catalog(ApplicationSession& session, const std::string& table) {
  const auto query = fmt::format(R"sql(
WITH t AS (SELECT c.* FROM pg_class c WHERE c.oid = {}::regclass),
ours AS (SELECT n.oid FROM pg_namespace n
  WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname NOT IN ('information_schema', 'crossfade'))
SELECT concat_ws(' ', 'column', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod), 'not null',
    a.attnotnull, 'default', coalesce(pg_get_expr(d.adbin, d.adrelid), 'none'), 'collation',
    a.attcollation::regcollation,
    'identity', a.attidentity, 'generated', a.attgenerated, 'acl',
    (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(a.attacl) x), 'statistics', a.attstattarget,
    'storage', a.attstorage, 'compression', a.attcompression, 'options',
    (SELECT array_agg(o) FROM unnest(a.attoptions) o WHERE o NOT LIKE 'pg\_attver=%'), 'comment',
      col_description(a.attrelid, a.attnum))
  FROM t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisunique,
    i.indisprimary, i.indisclustered, i.indisreplident, obj_description(i.indexrelid, 'pg_class'))
  FROM t JOIN pg_index i ON i.indrelid = t.oid
UNION ALL SELECT concat_ws(' ', 'constraint', quote_ident(k.conname), pg_get_constraintdef(k.oid),
    k.convalidated,
    obj_description(k.oid, 'pg_constraint'))
  FROM t JOIN pg_constraint k ON t.oid IN (k.conrelid, k.confrelid)
    AND k.contype <> 'n'  -- PostgreSQL 18: the column's line says it; the name depends on who else has it
UNION ALL SELECT concat_ws(' ', 'trigger', pg_get_triggerdef(g.oid), g.tgenabled,
    obj_description(g.oid, 'pg_trigger'))
  FROM t JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal
UNION ALL SELECT concat_ws(' ', 'rule', pg_get_ruledef(w.oid), w.ev_enabled,
    obj_description(w.oid, 'pg_rewrite')) FROM t JOIN pg_rewrite w ON w.ev_class = t.oid
UNION ALL SELECT concat_ws(' ', 'policy', p.polname, p.polcmd, p.polroles::regrole[]::text,
    p.polpermissive, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid),
    obj_description(p.oid, 'pg_policy'))
  FROM t JOIN pg_policy p ON p.polrelid = t.oid
UNION ALL SELECT concat_ws(' ', 'table', t.relowner::regrole, t.relacl, t.reloptions, t.relrowsecurity,
    t.relforcerowsecurity, t.relreplident, obj_description(t.oid, 'pg_class')) FROM t
UNION ALL SELECT concat_ws(' ', 'relation', c.oid::regclass, c.relkind, c.relowner::regrole)
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours))
UNION ALL SELECT concat_ws(' ', 'function', p.oid::regprocedure, p.proowner::regrole, p.proacl,
    obj_description(p.oid, 'pg_proc'), pg_get_functiondef(p.oid))
  FROM t JOIN pg_proc p ON p.pronamespace = ANY (ARRAY(SELECT oid FROM ours)) AND p.prokind IN ('f', 'p')
UNION ALL SELECT concat_ws(' ', 'view', c.oid::regclass, c.relkind, c.relowner::regrole,
    coalesce((SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(c.relacl) x), 'none'),
        c.reloptions,
    pg_get_viewdef(c.oid), obj_description(c.oid, 'pg_class'))
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours)) AND c.relkind IN ('v', 'm')
UNION ALL SELECT concat_ws(' ', 'view column', c.oid::regclass || '.' || a.attname,
    format_type(a.atttypid, a.atttypmod), coalesce(pg_get_expr(d.adbin, d.adrelid), 'none'),
    (SELECT array_agg(x::text ORDER BY x::text) FROM unnest(a.attacl) x), col_description(a.attrelid,
      a.attnum))
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours)) AND c.relkind IN ('v', 'm')
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL SELECT concat_ws(' ', 'trigger of', c.oid::regclass, pg_get_triggerdef(g.oid), g.tgenabled,
    obj_description(g.oid, 'pg_trigger'))
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours)) AND c.relkind = 'v'
  JOIN pg_trigger g ON g.tgrelid = c.oid
UNION ALL SELECT concat_ws(' ', 'rule of', c.oid::regclass, pg_get_ruledef(w.oid), w.ev_enabled,
    obj_description(w.oid, 'pg_rewrite'))
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours)) AND c.relkind IN ('v',
      'r') AND c.oid <> t.oid
  JOIN pg_rewrite w ON w.ev_class = c.oid AND w.rulename <> '_RETURN'
UNION ALL SELECT concat_ws(' ', 'policy of', c.oid::regclass, p.polname, pg_get_expr(p.polqual, p.polrelid))
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours)) AND c.oid <> t.oid
  JOIN pg_policy p ON p.polrelid = c.oid
UNION ALL SELECT concat_ws(' ', 'statistics', pg_get_statisticsobjdef(s.oid), s.stxowner::regrole,
    s.stxstattarget, obj_description(s.oid, 'pg_statistic_ext'))
  FROM t JOIN pg_statistic_ext s ON s.stxrelid = t.oid
UNION ALL SELECT concat_ws(' ', 'publication', p.pubname, (SELECT string_agg(a.attname, ',' ORDER BY
    a.attname)
    FROM pg_attribute a WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[])),
    pg_get_expr(r.prqual, r.prrelid), p.pubinsert, p.pubupdate, p.pubowner::regrole,
    obj_description(p.oid, 'pg_publication'))
  FROM t JOIN pg_publication_rel r ON r.prrelid = t.oid JOIN pg_publication p ON p.oid = r.prpubid
UNION ALL SELECT concat_ws(' ', 'sequence', c.oid::regclass, format_type(q.seqtypid, -1), q.seqstart,
    q.seqincrement, q.seqmin, q.seqmax, q.seqcache, q.seqcycle, c.relowner::regrole,
    (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(c.relacl) x),
    obj_description(c.oid, 'pg_class'), 'owned by', (SELECT a.attname FROM pg_depend d
      JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
        AND d.refclassid = 'pg_class'::regclass))
  FROM t JOIN pg_class c ON c.relnamespace = ANY (ARRAY(SELECT oid FROM ours)) JOIN pg_sequence q ON
      q.seqrelid = c.oid)sql",
                                 quote_literal(table));
  std::vector<std::string> lines;
  for (auto& row : session.rows(query)) lines.push_back(std::move(row[0]));
  std::ranges::sort(lines);
  return lines;
}

}  // namespace crossfade::test

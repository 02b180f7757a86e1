// By the text of what they reach. It errs on the safe side: every word of a text counts as a function or a
// table of that name in any schema, so that comments and variables make it reach more, never less. What it
// cannot read (another language, dynamic SQL, a name in quotes that is no word) is not harmless.
#include "trigger_reach.hpp"

#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/lock_attempts.hpp"

namespace crossfade {

namespace {

// $1 the table and its partitions. pg_notify and nextval are left out: a NOTIFY is not sent by what is
// undone, and a gap in a sequence is what any failed INSERT leaves.
constexpr const char* kReach = R"sql(
WITH RECURSIVE ours (oid) AS (
  SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'crossfade'),
fired (oid) AS (
  SELECT t.tgfoid FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
  WHERE t.tgrelid = ANY ($1::oid[]) AND NOT t.tgisinternal AND (t.tgtype & 12) <> 0
    AND t.tgenabled IN ('O', 'A') AND p.pronamespace NOT IN (SELECT oid FROM ours)),
texts AS MATERIALIZED (
  SELECT p.oid, pg_catalog.lower(p.proname) AS name, l.lanname AS language,
    coalesce(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc) AS source
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
  JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'crossfade')),
words AS MATERIALIZED (
  SELECT DISTINCT x.oid, w.word FROM texts x CROSS JOIN LATERAL
    pg_catalog.regexp_split_to_table(pg_catalog.lower(x.source), '[^[:alnum:]_$]+') AS w (word)
  WHERE x.language IN ('plpgsql', 'sql')),
-- What a statement on a relation of the name may call.
of_relations AS MATERIALIZED (
  SELECT pg_catalog.lower(c.relname) AS name, t.tgfoid AS oid FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND p.pronamespace NOT IN (SELECT oid FROM ours)
  UNION ALL SELECT pg_catalog.lower(c.relname), d.refobjid FROM pg_catalog.pg_depend d
    LEFT JOIN pg_catalog.pg_rewrite w ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND w.oid = d.objid
    LEFT JOIN pg_catalog.pg_attrdef f ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND f.oid = d.objid
    LEFT JOIN pg_catalog.pg_constraint k ON d.classid = 'pg_catalog.pg_constraint'::regclass
      AND k.oid = d.objid
    JOIN pg_catalog.pg_class c ON c.oid IN (w.ev_class, f.adrelid, k.conrelid)
    WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass),
reached (oid) AS (
  SELECT oid FROM fired
  UNION SELECT f.oid FROM reached r JOIN words w ON w.oid = r.oid CROSS JOIN LATERAL (
    SELECT x.oid FROM texts x WHERE x.name = w.word
    UNION ALL SELECT o.oid FROM of_relations o WHERE o.name = w.word) f)
SELECT EXISTS (SELECT FROM fired),
  NOT EXISTS (SELECT FROM reached r JOIN texts x ON x.oid = r.oid
    WHERE x.language NOT IN ('plpgsql', 'sql') OR x.source ~ '"[^"]*[^[:alnum:]_$"][^"]*"'
      OR EXISTS (SELECT FROM words w WHERE w.oid = x.oid AND (
        w.word IN ('execute', 'copy', 'program', 'call', 'setval', 'pg_sleep', 'pg_sleep_for',
          'pg_sleep_until', 'pg_logical_emit_message', 'pg_reload_conf', 'pg_terminate_backend',
          'pg_cancel_backend', 'pg_rotate_logfile', 'pg_switch_wal')
        OR w.word ~ ('^(dblink|http|pg_advisory|pg_try_advisory|lo_|pg_file|pg_read|pg_ls|pg_create|'
          'pg_drop)')))),
  EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.confrelid = ANY ($1::oid[])
    AND k.confdeltype <> 'a'))sql";

}  // namespace

TriggerReach trigger_reach(SqlSession& session, const Migration& m) {
  const auto row = session.exec(kReach, {oid_array(tree_of(session, m.row.table_oid))}).one("reach");
  return {bool_of(row[0]), bool_of(row[1]), bool_of(row[2])};
}

}  // namespace crossfade

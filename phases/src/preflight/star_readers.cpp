#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

namespace {

// A whole-row variable records no dependency on columns; it is number 0 in the stored tree. Functions and
// columns of the row type depend on the type. Bodies that are strings can only be read as text.
constexpr const char* kReaders = R"sql(
WITH t AS (SELECT c.oid, c.reltype, c.relname FROM pg_class c WHERE c.oid = $1::oid),
readers AS (
  SELECT 'pg_class'::regclass::oid AS classid, w.ev_class AS objid, 0 AS objsubid
    FROM t JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
      AND d.refobjid = t.oid
    JOIN pg_rewrite w ON w.oid = d.objid WHERE w.ev_action::text ~ ':varattno 0 '
  UNION SELECT 'pg_policy'::regclass, p.oid, 0 FROM t JOIN pg_policy p ON p.polrelid = t.oid
    WHERE p.polqual::text ~ ':varattno 0 ' OR p.polwithcheck::text ~ ':varattno 0 '
  UNION SELECT 'pg_trigger'::regclass, g.oid, 0 FROM t JOIN pg_trigger g ON g.tgrelid = t.oid
    WHERE g.tgqual::text ~ ':varattno 0 ' AND right(g.tgname::text, length($2)) <> $2
  UNION SELECT d.classid, d.objid, d.objsubid FROM t JOIN pg_type y ON y.oid = t.reltype
    JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid IN (y.oid, y.typarray)
      AND d.deptype <> 'p'  -- before 15: pins a system object, and names none
      AND NOT (d.classid = 'pg_type'::regclass AND d.objid = y.typarray)
  UNION SELECT 'pg_proc'::regclass, p.oid, 0 FROM t
    CROSS JOIN LATERAL (SELECT regexp_replace(t.relname, '(\W)', '\\\1', 'g') AS word) w
    JOIN pg_proc p ON p.prosrc ~* ('[^(]\*[^;]*\m' || w.word || '\M|\m' || w.word || '%rowtype')
    JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('c', 'internal')
    JOIN pg_namespace n ON n.oid = p.pronamespace
      AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'crossfade'))
SELECT DISTINCT (pg_identify_object(classid, objid, objsubid)).identity,
       pg_describe_object(classid, objid, objsubid)
FROM readers ORDER BY 2)sql";

}  // namespace

void star_readers(const Context& context) {
  context.warn(
      "star_readers", context.table_text(),
      fmt::format(
          "A prepared SELECT * of table {} fails once with 0A000 when the column is added, and one that "
          "returns the column again at the switch, until it is prepared anew.",
          context.table_text()),
      "Name the columns, or let the application prepare again after 0A000, as most drivers do.");
  for (const auto& row : context.session.exec(kReaders, {context.table_oid(), context.own_suffix()}).rows) {
    context.warn("star_readers", row[0].value_or(text_of(row[1])),
                 fmt::format("{} reads whole rows of table {} and sees the new column too.", text_of(row[1]),
                             context.table_text()),
                 "Check that it does not count columns or hand them on by position.");
  }
}

}  // namespace crossfade::checks

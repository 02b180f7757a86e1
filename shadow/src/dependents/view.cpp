// Views hold the column by number and would go on showing the old one. Those that show it, and those that
// show them, are dropped and made again by the same words in the transaction of the switch: they then mean
// whichever column bears the name, in its type. Everything on a view is made again with it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "crossfade/core/error.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

// $1 views on the column. Those nearest to the table first; a view is as deep as its longest way.
constexpr const char* kClosure = R"sql(
WITH RECURSIVE views AS (
  SELECT v AS oid, 1 AS depth FROM unnest($1::oid[]) v
  UNION SELECT w.ev_class, v.depth + 1 FROM views v
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = v.oid AND d.deptype = 'n'
      AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite w ON w.oid = d.objid AND w.rulename = '_RETURN' AND w.ev_class <> v.oid
  WHERE v.depth < 100)
SELECT c.oid, c.relkind::text, n.nspname, c.relname, pg_get_userbyid(c.relowner), pg_get_viewdef(c.oid),
  coalesce((SELECT ' WITH (' || string_agg(format('%I = %L', o.option_name, o.option_value), ', ') || ')'
            FROM pg_options_to_table(c.reloptions) o), ''),
  obj_description(c.oid, 'pg_class'), c.relacl IS NOT NULL,
  pg_get_userbyid(c.relowner) <> current_user, has_schema_privilege(n.oid, 'CREATE'),
  has_schema_privilege(c.relowner, n.oid, 'CREATE'), quote_ident(current_user),
  EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype
      = 'e'),
  EXISTS (SELECT 1 FROM pg_seclabel s WHERE s.classoid = 'pg_class'::regclass AND s.objoid = c.oid),
  c.oid = ANY ($1::oid[])
FROM (SELECT oid, max(depth) AS depth FROM views GROUP BY oid) v JOIN pg_class c ON c.oid = v.oid
JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY v.depth, n.nspname, c.relname)sql";

// $1 view, $2 all views of the closure, $3 this one and those made after it: what else hangs on it and would
// be lost with it. A rule may use only views that are there when it is made again.
constexpr const char* kStrays = R"sql(
SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend d
WHERE d.deptype IN ('n', 'a')
  AND ((d.refclassid = 'pg_class'::regclass AND d.refobjid = $1::oid)
    OR (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
      SELECT t.oid FROM pg_type t WHERE t.typrelid = $1::oid
      UNION SELECT t.typarray FROM pg_type t WHERE t.typrelid = $1::oid)))
  AND NOT (d.classid = 'pg_rewrite'::regclass AND EXISTS (
    SELECT 1 FROM pg_rewrite w WHERE w.oid = d.objid
      AND w.ev_class = ANY (CASE WHEN w.rulename = '_RETURN' THEN $2 ELSE $3 END::oid[])))
  AND NOT (d.classid = 'pg_trigger'::regclass AND EXISTS (
    SELECT 1 FROM pg_trigger t WHERE t.oid = d.objid AND t.tgrelid = $1::oid))
  AND NOT (d.classid = 'pg_attrdef'::regclass AND EXISTS (
    SELECT 1 FROM pg_attrdef a WHERE a.oid = d.objid AND a.adrelid = $1::oid)) ORDER BY 1)sql";

// $1 view, $2 its name in SQL: statements that put back what it has beyond its definition.
constexpr const char* kAttachments = R"sql(
WITH v AS (SELECT $2::text AS name)
SELECT statement FROM (
  SELECT 1 AS number, a.attnum::text AS within,
         format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s;', v.name, a.attname, pg_get_expr(d.adbin,
             d.adrelid)) AS statement
    FROM v, pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum WHERE
        d.adrelid = $1::oid
  UNION ALL SELECT 2, a.attnum::text, format('COMMENT ON COLUMN %s.%I IS %L;', v.name, a.attname,
                                             col_description(a.attrelid, a.attnum))
    FROM v, pg_attribute a WHERE a.attrelid = $1::oid AND a.attnum > 0 AND col_description(a.attrelid,
        a.attnum) IS NOT NULL
  UNION ALL SELECT 3, w.rulename, rtrim(pg_get_ruledef(w.oid), ';') || ';'
      || CASE w.ev_enabled WHEN 'D' THEN format(E'\nALTER TABLE %s DISABLE RULE %I;', v.name, w.rulename)
                           WHEN 'R' THEN format(E'\nALTER TABLE %s ENABLE REPLICA RULE %I;', v.name,
                               w.rulename)
                           WHEN 'A' THEN format(E'\nALTER TABLE %s ENABLE ALWAYS RULE %I;', v.name,
                               w.rulename) ELSE '' END
      || coalesce(format(E'\nCOMMENT ON RULE %I ON %s IS %L;', w.rulename, v.name, obj_description(w.oid,
          'pg_rewrite')), '')
    FROM v, pg_rewrite w WHERE w.ev_class = $1::oid AND w.rulename <> '_RETURN'
  UNION ALL SELECT 4, t.tgname, pg_get_triggerdef(t.oid) || ';'
      || CASE t.tgenabled WHEN 'D' THEN format(E'\nALTER TABLE %s DISABLE TRIGGER %I;', v.name, t.tgname)
                          WHEN 'R' THEN format(E'\nALTER TABLE %s ENABLE REPLICA TRIGGER %I;', v.name,
                              t.tgname)
                          WHEN 'A' THEN format(E'\nALTER TABLE %s ENABLE ALWAYS TRIGGER %I;', v.name,
                              t.tgname) ELSE '' END
      || coalesce(format(E'\nCOMMENT ON TRIGGER %I ON %s IS %L;', t.tgname, v.name, obj_description(t.oid,
          'pg_trigger')), '')
    FROM v, pg_trigger t WHERE t.tgrelid = $1::oid AND NOT t.tgisinternal) s ORDER BY number, within)sql";

// $1 view: what of that depends on the types of columns, in the words of the search path.
constexpr const char* kTyped = R"sql(
SELECT statement FROM (
  SELECT 1 AS number, a.attnum::text AS within,
      format('ALTER VIEW %I ALTER COLUMN %I SET DEFAULT %s', c.relname, a.attname,
             pg_get_expr(d.adbin, d.adrelid)) AS statement
    FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    JOIN pg_class c ON c.oid = d.adrelid WHERE d.adrelid = $1::oid
  UNION ALL SELECT 2, w.rulename, pg_get_ruledef(w.oid, true)
    FROM pg_rewrite w WHERE w.ev_class = $1::oid AND w.rulename <> '_RETURN') s ORDER BY number, within)sql";

// $1 view. Whom default privileges would let in when it is made again.
constexpr const char* kDefaultGrantees = R"sql(
SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END
FROM pg_default_acl d, aclexplode(d.defaclacl) x, pg_class c
WHERE c.oid = $1::oid AND d.defaclobjtype = 'r' AND d.defaclnamespace IN (0, c.relnamespace)
  AND d.defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user) ORDER BY 1)sql";

struct View {
  std::string oid, kind, schema, name, owner, definition, options;
  SqlValue comment;
  bool has_grants = false, other_owner = false;
  std::string display() const { return QualifiedName{schema, name}.display(); }
  std::string sql() const { return QualifiedName{schema, name}.sql(); }
};

class ViewReader {
 public:
  explicit ViewReader(Reading& reading) : reading_(reading) {}

  void take(const std::vector<std::string>& direct) {
    const auto found =
        reading_.session.exec(kClosure, {"{" + fmt::format("{}", fmt::join(direct, ",")) + "}"});
    const auto from = [&](std::size_t first) {
      std::string list;
      for (auto i = first; i < found.rows.size(); ++i)
        list += (list.empty() ? "" : ",") + text_of(found.rows[i][0]);
      return "{" + list + "}";
    };
    for (std::size_t i = 0; i < found.rows.size(); ++i) {
      const auto& row = found.rows[i];
      View view{text_of(row[0]), text_of(row[1]), text_of(row[2]), text_of(row[3]), text_of(row[4]),
                text_of(row[5]), text_of(row[6]), row[7],          bool_of(row[8]), bool_of(row[9])};
      if (!is_carried(view, row, from(0), from(i))) return;
      views_.push_back(std::move(view));
    }
    if (!names_are_apart() || !definitions_hold()) return;
    std::vector<Dependent> entries;
    for (const auto& view : views_) {
      auto entry = entry_of(view);
      if (!entry) return;
      entries.push_back(std::move(*entry));
    }
    // Their own rules are made again with them.
    std::erase_if(reading_.ledger.carried, [&](const Dependent& entry) {
      return entry.kind == DependentKind::rule && std::ranges::any_of(views_, [&](const View& view) {
               return std::ranges::find(entry.locks, view.display()) != entry.locks.end();
             });
    });
    for (auto& entry : entries) reading_.ledger.carried.push_back(std::move(entry));
  }

 private:
  // One view that cannot follow holds back all: they are made again together or not at all.
  bool refuse(const View& view, const std::string& why) {
    reading_.refuse(
        view.display(),
        fmt::format("{} {} shows column {} and cannot follow it to the new one: {}.",
                    view.kind == "m" ? "Materialized view" : "View", view.display(), reading_.object(), why),
        "Drop it before the migration and create it again after it.");
    return false;
  }

  bool is_carried(const View& view, const SqlResult::Row& row, const std::string& closure,
                  const std::string& later) {
    if (view.kind == "m") return refuse(view, "its rows would be made anew under the lock");
    if (!reading_.acts_as(view.owner))
      return refuse(view, "it belongs to role " + display_identifier(view.owner));
    if (!bool_of(row[10]) || !bool_of(row[11])) {
      const auto who = bool_of(row[10]) ? display_identifier(view.owner) : text_of(row[12]);
      reading_.findings.push_back(
          {Severity::refuse, "missing_privilege", display_identifier(view.schema),
           fmt::format("Role {} may not create view {} again.", who, view.display()),
           fmt::format("GRANT CREATE ON SCHEMA {} TO {};", display_identifier(view.schema), who)});
      return false;
    }
    if (bool_of(row[13])) return refuse(view, "it belongs to an extension");
    const auto in_tree = bool_of(row[15]) ? InTree::by_number : InTree::by_type;
    const auto oid = static_cast<std::uint32_t>(int_of(view.oid));
    if (const auto why = hidden_narrowing(reading_, ReferenceKind::view, oid, in_tree))
      return refuse(view, *why);
    if (bool_of(row[14])) return refuse(view, "it has a security label");
    const auto strays = reading_.session.exec(kStrays, {view.oid, closure, later});
    if (!strays.empty()) return refuse(view, text_of(strays[0][0]) + " hangs on it");
    return true;
  }

  // The trial below tells relations by their bare names.
  bool names_are_apart() {
    std::set<std::string> names{reading_.table.name.name};
    for (const auto& view : views_)
      if (!names.insert(view.name).second)
        return refuse(view, "another relation in question bears the same name");
    return true;
  }

  std::string schemas() const {
    std::string list = quote_identifier(reading_.table.name.schema);
    std::set<std::string> seen{reading_.table.name.schema};
    for (const auto& view : views_)
      if (seen.insert(view.schema).second) list += ", " + quote_identifier(view.schema);
    return list;
  }

  // Made as temporary views over the clone, in their order: PostgreSQL says whether they hold with the new
  // type.
  bool definitions_hold() {
    std::vector<std::vector<std::string>> statements;  // for each view
    {
      const Savepoint undone(reading_.session);
      // The temporary schema is searched last, so that the clone hides nothing here.
      reading_.session.exec(fmt::format("SET LOCAL search_path = {}, pg_temp", schemas()));
      for (const auto& view : views_) {
        const auto row = reading_.session
                             .exec(
                                 "SELECT pg_get_viewdef($1::oid), pg_table_is_visible($1::oid), "
                                 "pg_table_is_visible($2::oid)",
                                 {view.oid, std::to_string(reading_.table.oid.value)})
                             .one("view");
        if (!bool_of(row[1]) || !bool_of(row[2]))
          return refuse(view, "a relation of the same name in another schema hides it or the table");
        statements.push_back(
            {fmt::format("CREATE TEMP VIEW {} AS {}", quote_identifier(view.name), text_of(row[0]))});
        for (const auto& typed : reading_.session.exec(kTyped, {view.oid}).rows)
          statements.back().push_back(text_of(typed[0]) + ";");
      }
    }
    auto script = fmt::format("SET LOCAL search_path = pg_temp, {};\n", schemas());
    for (std::size_t i = 0; i < views_.size(); ++i) {
      for (const auto& statement : statements[i]) {
        script += statement + "\n";
        if (const auto objection = reading_.clone().objection(script)) return refuse(views_[i], *objection);
      }
    }
    return true;
  }

  std::optional<Dependent> entry_of(const View& view) {
    Dependent entry;
    entry.kind = DependentKind::view;
    entry.name = view.display();
    entry.remove_sql = fmt::format("DROP VIEW {};\n", view.sql());
    entry.create_sql = fmt::format("CREATE VIEW {}{} AS {}\n", view.sql(), view.options, view.definition);
    for (const auto& row : reading_.session.exec(kAttachments, {view.oid, view.sql()}).rows)
      entry.create_sql += text_of(row[0]) + "\n";
    entry.create_sql += comment_sql("VIEW " + view.sql(), view.comment);
    if (view.other_owner)
      entry.create_sql +=
          fmt::format("ALTER VIEW {} OWNER TO {};\n", view.sql(), quote_identifier(view.owner));
    const auto privileges = privileges_of(view);
    if (!privileges) return std::nullopt;
    entry.create_sql += *privileges;
    return entry;
  }

  std::optional<std::string> privileges_of(const View& view) {
    std::string sql;
    for (const auto& row : reading_.session.exec(kDefaultGrantees, {view.oid}).rows)
      sql += fmt::format("REVOKE ALL ON {} FROM {};\n", view.sql(), text_of(row[0]));
    const auto add = [&](const std::vector<Grant>& grants, const std::string& columns) {
      const auto statements = grant_statements(reading_, grants, view.owner, columns, view.sql());
      if (statements.missing_role.empty()) return sql += statements.grant, true;
      return refuse(view, "privileges on it were granted by role " +
                              display_identifier(statements.missing_role) +
                              ", as which this role cannot act");
    };
    if (view.has_grants) {
      sql += fmt::format("REVOKE ALL ON {} FROM {};\n", view.sql(), quote_identifier(view.owner));
      if (!add(read_grants(reading_.session, "c.relacl",
                           "(SELECT relacl FROM pg_class WHERE oid = $1::oid) c", {view.oid}),
               ""))
        return std::nullopt;
    }
    const auto columns = reading_.session.exec(
        "SELECT attnum, attname FROM pg_attribute WHERE attrelid = $1::oid AND attacl IS NOT NULL ORDER BY "
        "attnum",
        {view.oid});
    for (const auto& row : columns.rows) {
      if (!add(read_grants(
                   reading_.session, "a.attacl",
                   "(SELECT attacl FROM pg_attribute WHERE attrelid = $1::oid AND attnum = $2::int2) a",
                   {view.oid, row[0]}),
               fmt::format(" ({})", quote_identifier(text_of(row[1])))))
        return std::nullopt;
    }
    return sql;
  }

  Reading& reading_;
  std::vector<View> views_;
};

}  // namespace

void take_views(Reading& reading, const std::vector<Reference>& references) {
  std::vector<std::string> direct;
  for (const auto& reference : references) {
    if (reference.kind == ReferenceKind::view || reference.kind == ReferenceKind::materialised_view)
      direct.push_back(std::to_string(reference.oid));
  }
  if (!direct.empty()) ViewReader(reading).take(direct);
}

}  // namespace crossfade

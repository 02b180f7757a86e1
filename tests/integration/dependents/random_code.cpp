// What acts on the column: triggers, functions, rules, policies; what else the catalog says of it; and what
// the ledger never carries.
#include <fmt/format.h>

#include "crossfade/core/identifier.hpp"
#include "random_schema.hpp"

namespace crossfade::test {

void RandomSchema::choose_triggers() {
  const auto c = column(), t = table();
  const auto trigger = [&](const std::string& what, const std::string& when, const std::string& rest,
                           const std::string& state) {
    const auto name = new_name();
    const auto after = state.empty() ? "" : fmt::format("; ALTER TABLE {} {} TRIGGER {}", t, state, q(name));
    add({what, q(name),
         fmt::format("CREATE {} ON {} {}EXECUTE FUNCTION {}()", replaced(when, "{}", q(name)), t, rest,
                     function()) +
             after + maybe_comment(fmt::format("TRIGGER {} ON {}", q(name), t)),
         fmt::format("DROP TRIGGER {} ON {}", q(name), t)});
  };
  const std::string each_row = "FOR EACH ROW ", each_statement = "FOR EACH STATEMENT ";
  trigger("trigger", "TRIGGER {} AFTER UPDATE OF " + c, each_row, "ENABLE ALWAYS");
  trigger("trigger", "TRIGGER {} AFTER INSERT", each_row + "WHEN (" + row_condition("NEW.") + ") ",
          "DISABLE");
  trigger("trigger", "CONSTRAINT TRIGGER {} AFTER UPDATE OF " + c,
          "DEFERRABLE INITIALLY DEFERRED " + each_row, "ENABLE REPLICA");
  trigger("trigger", "TRIGGER {} BEFORE UPDATE OF e, " + c, each_statement, "");
  trigger("trigger", "TRIGGER {} BEFORE DELETE", each_row + "WHEN (" + row_condition("OLD.") + ") ",
          "DISABLE");
  // It exempts the sweep, as the finding asks.
  trigger("trigger", "TRIGGER {} AFTER UPDATE",
          each_row + "WHEN (coalesce(current_setting('crossfade.sweep', true), '') = '' AND OLD." + c +
              " IS DISTINCT FROM NEW." + c + ") ",
          "");
  // Without the column: PL/pgSQL remembers its type all the same.
  trigger("beside", "TRIGGER {} AFTER INSERT OR DELETE", each_row, "");
  trigger("beside", "TRIGGER {} BEFORE INSERT", each_row, "");
  trigger("beside", "TRIGGER {} AFTER INSERT", "REFERENCING NEW TABLE AS fresh " + each_statement, "");
  trigger("beside", "TRIGGER {} AFTER TRUNCATE", each_statement, "ENABLE REPLICA");
  // The sweep would fire these, which the role cannot prevent.
  trigger("refused", "TRIGGER {} AFTER UPDATE",
          each_row + "WHEN (OLD." + c + " IS DISTINCT FROM NEW." + c + ") ", "");
  trigger("refused", "TRIGGER {} AFTER UPDATE", each_row + "WHEN (OLD.* IS DISTINCT FROM NEW.*) ", "");
}

void RandomSchema::choose_code() {
  const auto c = column(), t = table();
  const auto statistics = [&](const std::string& on, const std::string& place, const std::string& set) {
    const auto name = new_name();
    const auto full = q(place) + "." + q(name);
    add({"statistics", q(name),
         fmt::format("CREATE STATISTICS {} {} FROM {}", full, on, t) +
             (set.empty() ? "" : fmt::format("; ALTER STATISTICS {} {}", full, set)) +
             maybe_comment("STATISTICS " + full),
         "DROP STATISTICS " + full});
  };
  statistics(fmt::format("(ndistinct, mcv) ON {}, e", c), schema_, "SET STATISTICS 50");
  statistics(fmt::format("(dependencies) ON {}, e", c), beside_, "");
  statistics(fmt::format("ON {}, e", kind_.number ? "(" + c + " + 1)" : "(lower(" + c + "))"), beside_,
             "SET STATISTICS 0");
  const auto routine = [&](const std::string& what, const std::string& kind, const std::string& signature,
                           const std::string& rest) {
    const auto name = new_name();
    const auto full = fmt::format("{}.{}", q(beside_), q(name));
    add({what, q(name),
         fmt::format("CREATE {0} {1}{2} {3}; COMMENT ON {0} {1} IS 'f'; REVOKE ALL ON {0} {1} FROM PUBLIC; "
                     "GRANT EXECUTE ON {0} {1} TO cf_friend",
                     kind, full, signature, rest),
         fmt::format("DROP {} {}", kind, full)});
  };
  routine("sql_function", "FUNCTION", "()",
          fmt::format("RETURNS bigint STABLE RETURN (SELECT count({}) FROM {})", c, t));
  routine("sql_function", "FUNCTION", "(a int, \"B b\" text DEFAULT 'x')",
          fmt::format("RETURNS TABLE (q bigint) BEGIN ATOMIC SELECT max(e) FROM {} WHERE {} IS NOT NULL "
                      "AND id > a; SELECT count(*) FROM {} x WHERE x.{} IS NULL; END",
                      t, c, t, c));
  routine("sql_function", "PROCEDURE", "()",
          fmt::format("BEGIN ATOMIC UPDATE {0} SET {1} = {1} WHERE id = 1; END", t, c));
  routine("beside", "FUNCTION", "()",
          fmt::format("RETURNS bigint SECURITY DEFINER SET search_path = pg_catalog LANGUAGE plpgsql AS {}",
                      quote_literal(fmt::format("BEGIN RETURN (SELECT count({}) FROM {}); END", c, t))));
  const auto publication = [&](const std::string& what, const std::string& rest) {
    const auto name = new_name();
    add({what, q(name),
         fmt::format("CREATE PUBLICATION {} FOR TABLE {}{}", q(name), t, rest) +
             maybe_comment("PUBLICATION " + q(name)),
         "DROP PUBLICATION " + q(name)});
  };
  const auto list = kind_.key ? std::string(" (id, d)") : fmt::format(" (id, d, {})", c);
  publication("publication", list);
  publication("publication", fmt::format(" WHERE ({} IS NOT NULL) WITH (publish = 'insert')", c));
  publication("publication",
              list + fmt::format(" WHERE ({} IS NOT NULL AND e > 0) WITH (publish = 'insert')", c));
  publication("beside", " WITH (publish = 'insert, delete')");
}

void RandomSchema::choose_policies_and_rules() {
  const auto c = column(), t = table();
  const auto policy = [&](const std::string& rest, const std::string& more = "",
                          const std::string& less = "") {
    const auto name = new_name();
    add({"policy", q(name),
         fmt::format("CREATE POLICY {} ON {} {}", q(name), t, rest) +
             maybe_comment(fmt::format("POLICY {} ON {}", q(name), t)) + more,
         fmt::format("DROP POLICY {} ON {}", q(name), t) + less});
  };
  policy("FOR SELECT TO cf_friend, cf_guest USING (" + row_condition() + ")");
  policy("AS RESTRICTIVE FOR UPDATE USING (" + row_condition() + ") WITH CHECK (" + row_condition() + ")");
  policy("FOR INSERT WITH CHECK (" + row_condition() + ")");
  policy("FOR DELETE USING (" + row_condition() + ")",
         fmt::format("; ALTER TABLE {} ENABLE ROW LEVEL SECURITY", t),
         fmt::format("; ALTER TABLE {} DISABLE ROW LEVEL SECURITY", t));
  policy(fmt::format("USING (EXISTS (SELECT 1 FROM {} x WHERE x.{} = {}))", t, c, c));
  {
    const auto name = new_name();
    add({"policy", q(name),
         fmt::format("CREATE TABLE {1}.other (b {{type}}); CREATE POLICY {0} ON {1}.other USING (b IN "
                     "(SELECT x.{2} FROM {3} x))",
                     q(name), q(beside_), c, t),
         fmt::format("DROP TABLE {}.other", q(beside_))});
  }
  const auto log = new_name();  // of its own for each: a rule names its table
  const auto rule = [&](const std::string& where, const std::string& state) {
    const auto name = new_name();
    const auto table = q(beside_) + "." + q(name_with_suffix(log, std::to_string(objects_.size())));
    add({"rule", q(name),
         fmt::format("CREATE TABLE {1} (b {{type}}); GRANT INSERT ON {1} TO PUBLIC; CREATE RULE {0} AS ON "
                     "DELETE TO {2} {4}DO ALSO INSERT INTO {1} VALUES (OLD.{3})",
                     q(name), table, t, c, where) +
             (state.empty() ? "" : fmt::format("; ALTER TABLE {} {} RULE {}", t, state, q(name))) +
             maybe_comment(fmt::format("RULE {} ON {}", q(name), t)),
         fmt::format("DROP RULE {} ON {}; DROP TABLE {}", q(name), t, table)});
  };
  rule("", "");
  rule(fmt::format("WHERE OLD.{} IS NOT NULL AND OLD.e > 3 ", c), "ENABLE REPLICA");
  rule("", "DISABLE");
  {
    // Of another table, whose statements write this one.
    const auto name = new_name(), other = new_name();
    const auto full = q(beside_) + "." + q(other);
    add({"rule", q(name),
         fmt::format(
             "CREATE TABLE {0} (b int); CREATE RULE {1} AS ON INSERT TO {0} DO ALSO UPDATE {2} SET n = 1 "
             "WHERE {3} IS NULL AND id = NEW.b",
             full, q(name), t, c),
         "DROP TABLE " + full});
  }
}

void RandomSchema::choose_properties() {
  const auto c = column(), t = table();
  const auto property = [&](const std::string& what, const std::string& create, const std::string& drop) {
    add({what, c, create, drop, "", true});
  };
  const auto alter = [&](const std::string& what, const std::string& set, const std::string& reset) {
    property(what, fmt::format("ALTER TABLE {} ALTER {} {}", t, c, set),
             fmt::format("ALTER TABLE {} ALTER {} {}", t, c, reset));
  };
  if (!kind_.key) {
    alter("default_value", kind_.number ? "SET DEFAULT 77" : "SET DEFAULT '77'", "DROP DEFAULT");
    alter("default_value", kind_.number ? "SET DEFAULT 70 + 7" : "SET DEFAULT repeat('7', 2)",
          "DROP DEFAULT");
    if (kind_.number) {
      const auto sequence = q(schema_) + "." + q(new_name());
      property(
          "default_value",
          fmt::format("CREATE SEQUENCE {0} START 100; ALTER TABLE {1} ALTER {2} SET DEFAULT nextval({3})",
                      sequence, t, c, quote_literal(sequence)),
          fmt::format("ALTER TABLE {} ALTER {} DROP DEFAULT; DROP SEQUENCE {}", t, c, sequence));
    }
  }
  alter("column_setting", "SET STATISTICS 10", "SET STATISTICS -1");
  alter("column_setting", "SET (n_distinct = 5, n_distinct_inherited = -0.5)",
        "RESET (n_distinct, n_distinct_inherited)");
  if (!kind_.number && kind_.new_type != "integer") {
    alter("column_setting", "SET STORAGE MAIN", "SET STORAGE EXTENDED");
    alter("column_setting", "SET STORAGE EXTERNAL", "SET STORAGE EXTENDED");
    alter("column_setting", "SET COMPRESSION pglz", "SET COMPRESSION default");
    // An expression of one's own reads no collation of the column's.
    if (kind_.forward.empty()) {
      alter("column_setting", "TYPE {type} COLLATE \"POSIX\"",
            fmt::format("TYPE {} COLLATE \"default\"", kind_.old_type));
    }
  }
  property("comment", fmt::format("COMMENT ON COLUMN {}.{} IS 'it''s \"b\"'", t, c),
           fmt::format("COMMENT ON COLUMN {}.{} IS NULL", t, c));
  property(
      "column_grant",
      fmt::format(
          "GRANT SELECT ({0}), REFERENCES ({0}) ON {1} TO PUBLIC; GRANT UPDATE ({0}) ON {1} TO cf_friend "
          "WITH GRANT OPTION; SET ROLE cf_friend;"
          " GRANT UPDATE ({0}) ON {1} TO cf_guest; RESET ROLE; GRANT INSERT ({0}) ON {1} TO CURRENT_USER",
          c, t),
      fmt::format("REVOKE ALL ({0}) ON {1} FROM PUBLIC, cf_friend, CURRENT_USER CASCADE", c, t));
  // Of the table, which no switch may touch.
  property(
      "beside",
      fmt::format("ALTER TABLE {0} SET (fillfactor = 80, autovacuum_enabled = off); COMMENT ON TABLE {0} IS "
                  "'t'; GRANT SELECT, DELETE ON {0} TO cf_guest WITH GRANT OPTION",
                  t),
      "SELECT 1");
  if (kind_.key && !key_default_.empty()) return;
  const auto sequence = new_name();
  const auto full = q(schema_) + "." + q(sequence);
  add({"sequence", q(sequence),
       fmt::format("CREATE SEQUENCE {0} AS {{type}} OWNED BY {1}.{2}; SELECT setval({3}, 1000); ALTER TABLE "
                   "{1} ALTER {2} "
                   "SET DEFAULT nextval({3}); GRANT USAGE ON SEQUENCE {0} TO PUBLIC",
                   full, t, c, quote_literal(full)) +
           maybe_comment("SEQUENCE " + full),
       fmt::format("DROP SEQUENCE {} CASCADE", full)});
  if (!not_null_) return;
  const auto identity = new_name();
  add({"identity", q(identity),
       fmt::format("ALTER TABLE {} ALTER {} ADD GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME {}.{} START "
                   "WITH 1000 INCREMENT BY 3 CACHE 2)",
                   t, c, q(schema_), q(identity)),
       fmt::format("ALTER TABLE {} ALTER {} DROP IDENTITY", t, c)});
}

void RandomSchema::choose_what_is_refused() {
  const auto c = column(), t = table(), row = q(table_);
  const auto one = [&](const std::string& create, const std::string& drop, const std::string& finding = "") {
    const auto name = q(new_name());
    RandomObject object{"refused", finding.empty() ? name : row, replaced(create, "{n}", name),
                        replaced(drop, "{n}", name)};
    object.finding = finding;
    add(std::move(object));
  };
  // Whoever reads the whole row would see one column more.
  one(fmt::format("CREATE INDEX {{n}} ON {} (({} IS NULL))", t, row),
      fmt::format("DROP INDEX {}.{{n}}", q(schema_)));
  one(fmt::format("ALTER TABLE {} ADD CONSTRAINT {{n}} CHECK (num_nulls({}.*) < 99)", t, row),
      fmt::format("ALTER TABLE {} DROP CONSTRAINT {{n}}", t));
  one(fmt::format("CREATE POLICY {{n}} ON {} USING ({} IS NOT NULL AND {} IS NOT NULL)", t, row, c),
      fmt::format("DROP POLICY {{n}} ON {}", t));
  one(fmt::format("CREATE INDEX {{n}} ON {} (({})); ALTER INDEX {}.{{n}} ALTER 1 SET STATISTICS 9", t,
                  kind_.number ? c + " + 1" : "lower(" + c + ")", q(schema_)),
      fmt::format("DROP INDEX {}.{{n}}", q(schema_)));
  one(fmt::format("ALTER TABLE {} ADD {{n}} {{type}} GENERATED ALWAYS AS ({}) STORED", t, c),
      fmt::format("ALTER TABLE {} DROP {{n}}", t));
  one(fmt::format("CREATE MATERIALIZED VIEW {}.{{n}} AS SELECT id, {} FROM {}", q(schema_), c, t),
      fmt::format("DROP MATERIALIZED VIEW {}.{{n}}", q(schema_)));
  one(fmt::format(
          "CREATE VIEW {0}.{{n}} AS SELECT id, {1} FROM {2}; CREATE FUNCTION {0}.reader() RETURNS bigint "
          "RETURN (SELECT count(*) FROM {0}.{{n}})",
          q(beside_), c, t),
      fmt::format("DROP VIEW {}.{{n}} CASCADE", q(beside_)));
  one(fmt::format("CREATE RULE {{n}} AS ON INSERT TO {} DO ALSO NOTHING", t),
      fmt::format("DROP RULE {{n}} ON {}", t));
  one(fmt::format("CREATE TABLE {}.heir () INHERITS ({})", q(beside_), t),
      fmt::format("DROP TABLE {}.heir", q(beside_)), "relation_kind");
}

// The key draws from a sequence.
void RandomSchema::choose_key_parts() {
  key_default_ = chance_.one_in(2) ? "GENERATED BY DEFAULT AS IDENTITY" : "GENERATED ALWAYS AS IDENTITY";
}

}  // namespace crossfade::test

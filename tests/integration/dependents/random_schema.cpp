#include "random_schema.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/identifier.hpp"

namespace crossfade::test {

namespace {

const std::vector<RandomColumn> kColumns{{"integer", "bigint", ""},
                                         {"smallint", "integer", ""},
                                         {"integer", "numeric", ""},
                                         {"character varying(20)", "text", "", false},
                                         {"text", "integer", "", false},
                                         {"numeric(10,2)", "numeric(14,2)", ""},
                                         {"integer", "bigint", "", true, true}};

// Names that tools get wrong. Each is made different by a number before it is used.
const std::vector<std::string> kNames{"plain",
                                      "Upper",
                                      "with space",
                                      "do.t",
                                      "qu\"ote",
                                      "apos'trophe",
                                      "back\\slash",
                                      "ünïcödé",
                                      "percent%s",
                                      "{brace}",
                                      "$1",
                                      "semi;colon",
                                      "dash--dash",
                                      " ON x ",
                                      " WHERE ",
                                      " USING ",
                                      std::string(63, 'n'),
                                      std::string(61, 'm') + "ä"};
// Keywords, whose quoting depends on the kind of keyword.
const std::vector<std::string> kKeywords{"select", "order",    "user",   "between", "time",
                                         "left",   "value",    "values", "key",     "table",
                                         "name",   "position", "row",    "group",   "check"};

std::string replaced(std::string text, std::string_view mark, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += with.size())
    text.replace(at, mark.size(), with);
  return text;
}

}  // namespace

std::string RandomSchema::q(const std::string& name) { return display_identifier(name); }

std::string RandomSchema::typed(std::string sql, const std::string& type) {
  return replaced(std::move(sql), "{type}", type);
}

std::string RandomSchema::new_name() {
  for (;;) {
    auto name = chance_.one_in(3) ? chance_.of(kKeywords) : chance_.of(kNames);
    if (std::ranges::find(taken_, name) != taken_.end()) {
      const auto number = std::to_string(taken_.size());
      name = name_with_suffix(name, number);
    }
    if (std::ranges::find(taken_, name) != taken_.end()) continue;
    taken_.push_back(name);
    return name;
  }
}

RandomSchema::RandomSchema(std::uint64_t seed) : chance_(seed) {
  taken_ = {"id", "d", "e", "n", "public", "crossfade", "twin"};
  kind_ = chance_.of(kColumns);
  schema_ = chance_.one_in(2) ? "public" : new_name();
  beside_ = chance_.one_in(2) ? schema_ : new_name();
  table_ = new_name();
  function_ = new_name();
  column_ = kind_.key ? "id" : new_name();
  not_null_ = kind_.key || chance_.one_in(2);
  if (chance_.one_in(2)) choose_key_parts();
  choose_indexes();
  choose_constraints();
  choose_views();
  choose_code();
  choose_properties();
  // Everything at once is rare in life, and one refusal more hides what would have come after it.
  for (std::size_t i = objects_.size(); i > 1; --i) std::swap(objects_[i - 1], objects_[chance_.below(i)]);
  objects_.resize(std::min(objects_.size(), 4 + chance_.below(10)));
}

std::string RandomSchema::spec() const {
  const auto toml = [](const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    return quoted + '"';
  };
  std::string text =
      fmt::format("[migration]\nname = \"m\"\ntable = {}\n[[column]]\nname = {}\ntype = \"{}\"\n",
                  toml(table()), toml(column()), kind_.new_type);
  if (kind_.old_type == "text") {
    text +=
        fmt::format("forward = {}\nbackward = {}\n[expect]\nerrors = \"0..50\"\n[tuning]\nmax_rejects = 50\n",
                    toml(column() + "::integer"), toml(column() + "::text"));
  }
  return text + "[drop]\nsoak = \"0s\"\n";
}

std::string RandomSchema::make_table(const std::string& type) const {
  std::string sql;
  for (const auto& schema : {schema_, beside_})
    sql += fmt::format("CREATE SCHEMA IF NOT EXISTS {};", quote_identifier(schema));
  sql += "GRANT USAGE ON SCHEMA " + q(schema_) + ", " + q(beside_) + " TO cf_friend, cf_guest;";
  sql +=
      fmt::format("CREATE TABLE {} (id {} {} PRIMARY KEY, ", table(), kind_.key ? type : "int", key_default_);
  if (!kind_.key) sql += fmt::format("{} {}{}, ", column(), type, not_null_ ? " NOT NULL" : "");
  sql += "d text NOT NULL, e int NOT NULL, n int);";
  const bool dirty = kind_.old_type == "text" && type == "text" && !not_null_;
  sql += fmt::format(
      "INSERT INTO {0} (id, {1}d, e, n) {2} SELECT g, {3}'d' || g, g, g FROM generate_series(1, 60) g;",
      table(), kind_.key ? "" : column() + ", ", key_default_.empty() ? "" : "OVERRIDING SYSTEM VALUE",
      kind_.key ? ""
      : dirty   ? "CASE WHEN g % 20 = 0 THEN 'dirty ' || g ELSE '0' || g END, "
                : fmt::format("g::{}, ", type));
  if (!key_default_.empty())
    sql += fmt::format("SELECT setval(pg_get_serial_sequence({}, 'id'), 1000);", quote_literal(table()));
  sql += fmt::format("CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';",
                     function());
  // What other tables need of it.
  sql += fmt::format("CREATE TABLE {}.partner (b {} PRIMARY KEY);", q(beside_), kind_.key ? "int" : type);
  sql += fmt::format("INSERT INTO {}.partner SELECT g{} FROM generate_series(0, 2000) g;", q(beside_),
                     kind_.number ? "" : "::text::" + type);
  return sql;
}

std::string RandomSchema::make_twin() const {
  return fmt::format("CREATE SCHEMA twin; CREATE TABLE twin.t AS SELECT id, {}::text AS b, d, e FROM {};",
                     column(), table());
}

std::string RandomSchema::value(Chance& chance) const {
  const auto number = 61 + chance.below(1900);
  if (!not_null_ && chance.one_in(6)) return "NULL";
  return kind_.number ? std::to_string(number) : fmt::format("'{}'", number);
}

std::string RandomSchema::maybe_comment(const std::string& what) {
  if (!chance_.one_in(2)) return {};
  return fmt::format("; COMMENT ON {} IS {}", what, quote_literal("it's \"" + chance_.of(kNames) + "\""));
}

// A condition that every row of the generator fulfils, in words that every type takes the same way.
std::string RandomSchema::row_condition(const std::string& prefix) {
  const auto column = prefix + this->column();
  std::vector<std::string> conditions{
      column + " IS NOT NULL OR " + prefix + "e >= 0",
      "CASE WHEN " + prefix + "e > 5 THEN " + column + " IS NOT NULL ELSE true END OR " + prefix + "id > 0"};
  if (kind_.number) {
    conditions.push_back(column + " >= 0");
    conditions.push_back(column + " + 1 > 0 AND " + prefix + "e < 100000000");
  } else {
    conditions.push_back(column + " <> 'x'");
    conditions.push_back("length(" + column + ") < 20");
    conditions.push_back("lower(" + column + ") <> 'x'");
  }
  return chance_.of(conditions);
}

void RandomSchema::choose_indexes() {
  const auto c = column();
  const auto index = [&](const std::string& unique, const std::string& rest) {
    const auto name = new_name();
    const auto full = q(schema_) + "." + q(name);
    add({q(name),
         fmt::format("CREATE {}INDEX {} ON {} {}", unique, q(name), table(), rest) +
             maybe_comment("INDEX " + full),
         "DROP INDEX " + full});
    return name;
  };
  index("", fmt::format("({})", c));
  index("", fmt::format("(e DESC NULLS LAST, {} ASC NULLS FIRST) WITH (fillfactor = 70)", c));
  index("", fmt::format("(e) INCLUDE ({})", c));
  index("", fmt::format("USING hash ({})", c));
  index("", fmt::format("USING brin ({}) WITH (pages_per_range = 4)", c));
  index("", fmt::format("USING gin ((ARRAY[{}]))", c));
  index("", fmt::format("(e) WHERE {}", row_condition()));
  index("", fmt::format("({}, lower(d)) WHERE {}", c, row_condition()));
  index("", kind_.number ? fmt::format("(({} + 1), (lower(d)))", c) : fmt::format("((lower({})), d)", c));
  index("UNIQUE ", fmt::format("({}, id)", c));
  index("UNIQUE ", fmt::format("(id, {}) NULLS NOT DISTINCT", c));
  index("UNIQUE ", fmt::format("({})", c));
  index("UNIQUE ", fmt::format("({} DESC, (id / 2)) INCLUDE (e) WITH (fillfactor = 80)", c));
  index("UNIQUE ", fmt::format("((lower(d)), {}) WHERE e > 5", c));
  if (!kind_.number) index("", fmt::format("({} {} COLLATE \"POSIX\")", c, "text_pattern_ops"));
  {
    const auto name = new_name();
    add({q(name),
         fmt::format("CREATE INDEX {} ON {} ({}); ALTER TABLE {} CLUSTER ON {}", q(name), table(), c, table(),
                     q(name)),
         fmt::format("DROP INDEX {}.{}", q(schema_), q(name))});
  }
  if (not_null_) {
    const auto name = new_name();
    add({q(name),
         fmt::format("CREATE UNIQUE INDEX {} ON {} (id, {}); ALTER TABLE {} REPLICA IDENTITY USING INDEX {}",
                     q(name), table(), c, table(), q(name)),
         fmt::format("ALTER TABLE {} REPLICA IDENTITY DEFAULT; DROP INDEX {}.{}", table(), q(schema_),
                     q(name))});
  }
}

void RandomSchema::choose_constraints() {
  const auto c = column();
  const auto constraint = [&](const std::string& rest) {
    const auto name = new_name();
    add({q(name),
         fmt::format("ALTER TABLE {} ADD CONSTRAINT {} {}", table(), q(name), rest) +
             maybe_comment(fmt::format("CONSTRAINT {} ON {}", q(name), table())),
         fmt::format("ALTER TABLE {} DROP CONSTRAINT {}", table(), q(name))});
  };
  constraint(fmt::format("CHECK ({})", row_condition()));
  constraint(fmt::format("CHECK ({}) NO INHERIT", row_condition()));
  constraint(fmt::format("CHECK ({}) NOT VALID", row_condition()));
  constraint(fmt::format("CHECK ({} IS NULL OR e > -1 AND id > 0)", c));
  constraint(fmt::format("UNIQUE ({}, id)", c));
  constraint(fmt::format("UNIQUE ({})", c));
  constraint(fmt::format("UNIQUE (e, {})", c));
  constraint(fmt::format("UNIQUE (id) INCLUDE ({})", c));
  constraint(fmt::format("UNIQUE (id, {}) DEFERRABLE INITIALLY DEFERRED", c));
  constraint(fmt::format("EXCLUDE USING btree (id WITH =, {} WITH =)", c));
  constraint(fmt::format("FOREIGN KEY ({}) REFERENCES {}.partner ON UPDATE CASCADE ON DELETE SET NULL", c,
                         q(beside_)));
  constraint(
      fmt::format("FOREIGN KEY ({}) REFERENCES {}.partner DEFERRABLE INITIALLY DEFERRED", c, q(beside_)));
  constraint(fmt::format("FOREIGN KEY ({}) REFERENCES {}.partner NOT VALID", c, q(beside_)));
}

void RandomSchema::choose_views() {
  const auto c = column(), t = table();
  const auto view = [&](const std::string& place, const std::string& options, const std::string& body,
                        const std::string& rest, bool writable) {
    const auto name = new_name();
    const auto full = q(place) + "." + q(name);
    auto create = fmt::format("CREATE VIEW {}{} AS {}", full, options, body) + maybe_comment("VIEW " + full);
    const auto more = replaced(rest, "{v}", full);
    add({q(name), create + more, "DROP VIEW IF EXISTS " + full + " CASCADE", writable ? full : ""});
    return full;
  };
  const auto all = fmt::format("SELECT id, {}, d, e FROM {}", c, t);
  view(beside_, "", all, maybe_comment("COLUMN {v}." + c), true);
  view(schema_, " WITH (security_barrier = true, check_option = cascaded)", all + " WHERE id > 0", "", true);
  view(schema_, " WITH (security_invoker = true)", all,
       "; GRANT SELECT ON {v} TO cf_friend WITH GRANT OPTION; SET ROLE cf_friend; GRANT SELECT ON {v} TO "
       "cf_guest;"
       " RESET ROLE; GRANT UPDATE (" +
           c + "), INSERT ON {v} TO PUBLIC",
       true);
  view(schema_, "",
       fmt::format("SELECT id, {} AS shown, count(*) OVER () FROM {} WHERE {}", c, t, row_condition()),
       "; REVOKE ALL ON {v} FROM CURRENT_USER", false);
  view(beside_, "",
       fmt::format("WITH x AS (SELECT {0} AS y, e FROM {1}) SELECT max(y) AS most, e FROM x GROUP BY e "
                   "UNION ALL SELECT {0}, 0 FROM {1} WHERE id < 3",
                   c, t),
       "", false);
  view(schema_, "", all,
       fmt::format("; ALTER VIEW {{v}} ALTER {} SET DEFAULT {}; CREATE RULE \"a rule\" AS ON DELETE TO "
                   "{{v}} DO INSTEAD NOTHING; COMMENT ON RULE \"a rule\" ON {{v}} IS 'r'",
                   c, kind_.number ? "7" : "'7'"),
       false);
  view(schema_, "", all,
       fmt::format("; CREATE RULE w AS ON INSERT TO {{v}} DO INSTEAD INSERT INTO {} (id, {}{}d, e) "
                   "VALUES (NEW.id, {}{}NEW.d, NEW.e)",
                   t, kind_.key ? "" : c, kind_.key ? "" : ", ", kind_.key ? "" : "NEW." + c,
                   kind_.key ? "" : ", "),
       false);
  {
    // A chain; the second view goes with the first.
    const auto below = new_name(), above = new_name();
    const auto b = q(schema_) + "." + q(below), a = q(beside_) + "." + q(above);
    add({q(above),
         fmt::format("CREATE VIEW {} AS {}; CREATE VIEW {} AS SELECT v.id, v.{} AS x, w.d FROM {} v JOIN {} "
                     "w USING (id)"
                     "; GRANT SELECT ON {} TO cf_guest; COMMENT ON COLUMN {}.x IS 'x'",
                     b, all, a, c, b, t, a, a),
         fmt::format("DROP VIEW {} CASCADE", b), b});
  }
  if (chance_.one_in(3)) {
    const auto name = new_name();
    const auto full = q(schema_) + "." + q(name);
    add({q(name), fmt::format("CREATE MATERIALIZED VIEW {} AS {}", full, all),
         "DROP MATERIALIZED VIEW " + full});
  }
}

void RandomSchema::choose_code() {
  const auto c = column(), t = table();
  const auto trigger = [&](const std::string& when, const std::string& rest, const std::string& more) {
    const auto name = new_name();
    const auto after = replaced(more, "{g}", q(name));
    add({q(name),
         fmt::format("CREATE {} ON {} {}EXECUTE FUNCTION {}()", replaced(when, "{}", q(name)), t, rest,
                     function()) +
             after + maybe_comment(fmt::format("TRIGGER {} ON {}", q(name), t)),
         fmt::format("DROP TRIGGER {} ON {}", q(name), t)});
  };
  trigger("TRIGGER {} AFTER UPDATE OF " + c, "FOR EACH ROW ",
          "; ALTER TABLE " + t + " ENABLE ALWAYS TRIGGER {g}");
  trigger("TRIGGER {} AFTER INSERT", "FOR EACH ROW WHEN (" + row_condition("NEW.") + ") ",
          "; ALTER TABLE " + t + " DISABLE TRIGGER {g}");
  trigger("CONSTRAINT TRIGGER {} AFTER UPDATE OF " + c, "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW ",
          "; ALTER TABLE " + t + " ENABLE REPLICA TRIGGER {g}");
  trigger("TRIGGER {} AFTER UPDATE", "FOR EACH ROW WHEN (OLD." + c + " IS DISTINCT FROM NEW." + c + ") ", "");
  trigger("TRIGGER {} BEFORE UPDATE OF e, " + c, "FOR EACH STATEMENT ", "");
  const auto policy = [&](const std::string& rest) {
    const auto name = new_name();
    add({q(name),
         fmt::format("CREATE POLICY {} ON {} {}", q(name), t, rest) +
             maybe_comment(fmt::format("POLICY {} ON {}", q(name), t)),
         fmt::format("DROP POLICY {} ON {}", q(name), t)});
  };
  policy("FOR SELECT TO cf_friend, cf_guest USING (" + row_condition() + ")");
  policy("AS RESTRICTIVE FOR UPDATE USING (" + row_condition() + ") WITH CHECK (" + row_condition() + ")");
  policy("FOR INSERT WITH CHECK (" + row_condition() + ")");
  {
    const auto name = new_name();
    add({q(name),
         fmt::format("CREATE TABLE {1}.other (b {{type}}); CREATE POLICY {0} ON {1}.other USING (b IN "
                     "(SELECT x.{2} FROM {3} x))",
                     q(name), q(beside_), c, t),
         fmt::format("DROP TABLE {}.other", q(beside_))});
  }
  const auto statistics = [&](const std::string& on, const std::string& place) {
    const auto name = new_name();
    const auto full = q(place) + "." + q(name);
    add({q(name),
         fmt::format("CREATE STATISTICS {} {} FROM {}; ALTER STATISTICS {} SET STATISTICS 50", full, on, t,
                     full) +
             maybe_comment("STATISTICS " + full),
         "DROP STATISTICS " + full});
  };
  statistics(fmt::format("(ndistinct, mcv) ON {}, e", c), schema_);
  statistics(fmt::format("ON {}, e", kind_.number ? "(" + c + " + 1)" : "(lower(" + c + "))"), beside_);
  {
    const auto name = new_name();
    add({q(name),
         fmt::format("CREATE TABLE {1}.log (b {{type}}); GRANT INSERT ON {1}.log TO PUBLIC; CREATE RULE {0} "
                     "AS ON DELETE TO {2} DO ALSO INSERT INTO {1}.log VALUES (OLD.{3})",
                     q(name), q(beside_), t, c) +
             maybe_comment(fmt::format("RULE {} ON {}", q(name), t)),
         fmt::format("DROP RULE {} ON {}; DROP TABLE {}.log", q(name), t, q(beside_))});
  }
  const auto sql_function = [&](const std::string& what, const std::string& signature,
                                const std::string& rest, const std::string& more) {
    const auto name = new_name();
    const auto full = fmt::format("{}.{}", q(beside_), q(name));
    add({q(name),
         fmt::format("CREATE {} {}{} {}; {}COMMENT ON {} {} IS 'f'; REVOKE ALL ON {} {} FROM PUBLIC; GRANT "
                     "EXECUTE ON {} {} TO cf_friend",
                     what, full, signature, rest, more, what, full, what, full, what, full),
         fmt::format("DROP {} {}", what, full)});
  };
  sql_function("FUNCTION", "()", fmt::format("RETURNS bigint STABLE RETURN (SELECT count({}) FROM {})", c, t),
               "");
  sql_function("FUNCTION", "(a int, \"B b\" text DEFAULT 'x')",
               fmt::format("RETURNS TABLE (q bigint) BEGIN ATOMIC SELECT max(e) FROM {} WHERE {} IS NOT NULL "
                           "AND id > a; SELECT count(*) FROM {} x WHERE x.{} IS NULL; END",
                           t, c, t, c),
               "");
  sql_function("PROCEDURE", "()",
               fmt::format("BEGIN ATOMIC UPDATE {0} SET {1} = {1} WHERE id = 1; END", t, c), "");
  const auto publication = [&](const std::string& rest) {
    const auto name = new_name();
    add({q(name),
         fmt::format("CREATE PUBLICATION {} FOR TABLE {}{}", q(name), t, rest) +
             maybe_comment("PUBLICATION " + q(name)),
         "DROP PUBLICATION " + q(name)});
  };
  publication(kind_.key ? "(id, d)" : fmt::format(" (id, d, {})", c));
  publication(fmt::format(" WHERE ({} IS NOT NULL) WITH (publish = 'insert')", c));
}

void RandomSchema::choose_properties() {
  const auto c = column(), t = table();
  const auto property = [&](const std::string& create, const std::string& drop) {
    add({c, create, drop, "", true});
  };
  const auto alter = [&](const std::string& set, const std::string& reset) {
    property(fmt::format("ALTER TABLE {} ALTER {} {}", t, c, set),
             fmt::format("ALTER TABLE {} ALTER {} {}", t, c, reset));
  };
  if (!kind_.key) alter(kind_.number ? "SET DEFAULT 77" : "SET DEFAULT '77'", "DROP DEFAULT");
  alter("SET STATISTICS 10", "SET STATISTICS -1");
  alter("SET (n_distinct = 5, n_distinct_inherited = -0.5)", "RESET (n_distinct, n_distinct_inherited)");
  if (!kind_.number && kind_.new_type == "text") {
    alter("SET STORAGE MAIN", "SET STORAGE EXTENDED");
    alter("SET COMPRESSION pglz", "SET COMPRESSION default");
  }
  property(fmt::format("COMMENT ON COLUMN {}.{} IS 'it''s \"b\"'", t, c),
           fmt::format("COMMENT ON COLUMN {}.{} IS NULL", t, c));
  property(
      fmt::format(
          "GRANT SELECT ({0}), REFERENCES ({0}) ON {1} TO PUBLIC; GRANT UPDATE ({0}) ON {1} TO cf_friend "
          "WITH GRANT OPTION; SET ROLE cf_friend;"
          " GRANT UPDATE ({0}) ON {1} TO cf_guest; RESET ROLE; GRANT INSERT ({0}) ON {1} TO CURRENT_USER",
          c, t),
      fmt::format("REVOKE ALL ({0}) ON {1} FROM PUBLIC, cf_friend, CURRENT_USER CASCADE", c, t));
  if (kind_.key && !key_default_.empty()) return;
  const auto sequence = new_name();
  const auto full = q(schema_) + "." + q(sequence);
  add({q(sequence),
       fmt::format("CREATE SEQUENCE {0} AS {{type}} OWNED BY {1}.{2}; SELECT setval({3}, 1000); ALTER TABLE "
                   "{1} ALTER {2} "
                   "SET DEFAULT nextval({3}); GRANT USAGE ON SEQUENCE {0} TO PUBLIC",
                   full, t, c, quote_literal(full)) +
           maybe_comment("SEQUENCE " + full),
       fmt::format("DROP SEQUENCE {} CASCADE", full)});
  if (!not_null_) return;
  const auto identity = new_name();
  add({q(identity),
       fmt::format("ALTER TABLE {} ALTER {} ADD GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME {}.{} START "
                   "WITH 1000 INCREMENT BY 3 CACHE 2)",
                   t, c, q(schema_), q(identity)),
       fmt::format("ALTER TABLE {} ALTER {} DROP IDENTITY", t, c)});
}

// The key draws from a sequence.
void RandomSchema::choose_key_parts() {
  key_default_ = chance_.one_in(2) ? "GENERATED BY DEFAULT AS IDENTITY" : "GENERATED ALWAYS AS IDENTITY";
}

}  // namespace crossfade::test

// What stands on the column: indexes, constraints, and views over it.
#include <fmt/format.h>

#include "crossfade/core/identifier.hpp"
#include "random_schema.hpp"

namespace crossfade::test {

void RandomSchema::choose_indexes() {
  const auto c = column();
  const auto index = [&](const std::string& unique, const std::string& rest) {
    const auto name = new_name();
    const auto full = q(schema_) + "." + q(name);
    add({"index", q(name),
         fmt::format("CREATE {}INDEX {} ON {} {}", unique, q(name), table(), rest) +
             maybe_comment("INDEX " + full),
         "DROP INDEX " + full});
  };
  index("", fmt::format("({})", c));
  index("", fmt::format("(e DESC NULLS LAST, {} ASC NULLS FIRST) WITH (fillfactor = 70)", c));
  index("", fmt::format("({}) WITH (deduplicate_items = off)", c));
  index("", fmt::format("(e) INCLUDE ({})", c));
  index("", fmt::format("({}) INCLUDE (e, d)", c));
  index("", fmt::format("USING hash ({})", c));
  index("", fmt::format("USING brin ({}) WITH (pages_per_range = 4)", c));
  index("", fmt::format("USING gin ((ARRAY[{}]))", c));
  index("", fmt::format("(e) WHERE {}", row_condition()));
  index("", fmt::format("({}) WHERE {}", c, row_condition()));
  index("", fmt::format("({}, lower(d)) WHERE {}", c, row_condition()));
  index("", kind_.number ? fmt::format("(({} + 1), (lower(d)))", c) : fmt::format("((lower({})), d)", c));
  index("", fmt::format("((coalesce({}, {})), e DESC)", c, kind_.number ? "0" : "''"));
  index("UNIQUE ", fmt::format("({}, id)", c));
  index("UNIQUE ", fmt::format("(id, {}) NULLS NOT DISTINCT", c));
  index("UNIQUE ", fmt::format("({}, d) NULLS NOT DISTINCT", c));
  index("UNIQUE ", fmt::format("({})", c));
  index("UNIQUE ", fmt::format("({}) WHERE e > 5", c));
  index("UNIQUE ", fmt::format("({} DESC, (id / 2)) INCLUDE (e) WITH (fillfactor = 80)", c));
  index("UNIQUE ", fmt::format("((lower(d)), {}) WHERE e > 5", c));
  index("UNIQUE ", kind_.number ? fmt::format("(({} + 1), id)", c) : fmt::format("(id, (lower({})))", c));
  if (!kind_.number) {
    index("", fmt::format("({} {} COLLATE \"POSIX\")", c, "text_pattern_ops"));
    index("UNIQUE ", fmt::format("({} COLLATE \"C\" DESC, id)", c));
    index("", fmt::format("USING spgist ({})", c));
  }
  const auto named_by_the_table = [&](const std::string& unique, const std::string& columns,
                                      const std::string& set, const std::string& reset) {
    const auto name = new_name();
    add({"index", q(name),
         fmt::format("CREATE {}INDEX {} ON {} {}; ALTER TABLE {} {} {}", unique, q(name), table(), columns,
                     table(), set, q(name)),
         fmt::format("{}DROP INDEX {}.{}", reset, q(schema_), q(name))});
  };
  named_by_the_table("", fmt::format("({})", c), "CLUSTER ON", "");
  if (not_null_) {
    named_by_the_table("UNIQUE ", fmt::format("(id, {})", c), "REPLICA IDENTITY USING INDEX",
                       fmt::format("ALTER TABLE {} REPLICA IDENTITY DEFAULT; ", table()));
  }
}

void RandomSchema::choose_constraints() {
  const auto c = column();
  const auto constraint = [&](const std::string& what, const std::string& rest,
                              const std::string& more = "") {
    const auto name = new_name();
    add({what, q(name),
         fmt::format("ALTER TABLE {} ADD CONSTRAINT {} {}", table(), q(name), rest) +
             maybe_comment(fmt::format("CONSTRAINT {} ON {}", q(name), table())) +
             replaced(more, "{k}", q(name)),
         fmt::format("ALTER TABLE {} DROP CONSTRAINT {}", table(), q(name))});
  };
  constraint("check", fmt::format("CHECK ({})", row_condition()));
  constraint("check", fmt::format("CHECK ({}) NO INHERIT", row_condition()));
  constraint("check", fmt::format("CHECK ({}) NOT VALID", row_condition()));
  constraint("check", fmt::format("CHECK ({} IS NULL OR e > -1 AND id > 0)", c));
  constraint("check", kind_.number ? fmt::format("CHECK ({} <= e + 1000000)", c)
                                   : fmt::format("CHECK (length({}) <= length(d) + e + 1000)", c));
  constraint("unique_constraint", fmt::format("UNIQUE ({}, id)", c));
  constraint("unique_constraint", fmt::format("UNIQUE ({})", c));
  constraint("unique_constraint", fmt::format("UNIQUE NULLS NOT DISTINCT ({}, id)", c));
  constraint("unique_constraint", fmt::format("UNIQUE (e, {}) WITH (fillfactor = 60)", c));
  constraint("unique_constraint", fmt::format("UNIQUE (id) INCLUDE ({})", c));
  constraint("unique_constraint", fmt::format("UNIQUE ({}, e)", c),
             fmt::format("; ALTER TABLE {} CLUSTER ON {{k}}", table()));
  constraint("refused", fmt::format("UNIQUE (id, {}) DEFERRABLE INITIALLY DEFERRED", c));
  constraint("refused", fmt::format("EXCLUDE USING btree (id WITH =, {} WITH =)", c));
}

void RandomSchema::choose_foreign_keys() {
  const auto c = column();
  const auto out = [&](const std::string& rest) {
    const auto name = new_name();
    add({"foreign_key", q(name),
         fmt::format("ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {}", table(), q(name), c,
                     rest) +
             maybe_comment(fmt::format("CONSTRAINT {} ON {}", q(name), table())),
         fmt::format("ALTER TABLE {} DROP CONSTRAINT {}", table(), q(name))});
  };
  const auto partner = q(beside_) + ".partner";
  out(partner + " ON UPDATE CASCADE ON DELETE SET NULL");
  out(partner + " DEFERRABLE INITIALLY DEFERRED");
  out(partner + " NOT VALID");
  if (!kind_.key) out(table() + " (id) NOT VALID");
  // Another table's column that refers to this one: it follows, or it is refused.
  const auto index = new_name(), name = new_name();
  const auto child = q(beside_) + ".child";
  add({"foreign_key", q(name),
       fmt::format("CREATE UNIQUE INDEX {0} ON {1} ({2}); CREATE TABLE {3} (k int PRIMARY KEY, b {{type}} "
                   "CONSTRAINT {4} REFERENCES {1} ({2}) ON UPDATE CASCADE ON DELETE SET NULL); INSERT INTO "
                   "{3} SELECT id, {2} FROM {1} WHERE id BETWEEN 5 AND 9",
                   q(index), table(), c, child, q(name)) +
           maybe_comment(fmt::format("CONSTRAINT {} ON {}", q(name), child)),
       fmt::format("DROP TABLE {}; DROP INDEX {}.{}", child, q(schema_), q(index)), "", false, q(index)});
}

void RandomSchema::choose_views() {
  const auto c = column(), t = table();
  const auto view = [&](const std::string& place, const std::string& options, const std::string& body,
                        const std::string& rest, bool writable, const std::string& what = "view") {
    const auto name = new_name();
    const auto full = q(place) + "." + q(name);
    auto create = fmt::format("CREATE VIEW {}{} AS {}", full, options, body) + maybe_comment("VIEW " + full);
    const auto more = replaced(rest, "{v}", full);
    add({what, q(name), create + more, "DROP VIEW IF EXISTS " + full + " CASCADE", writable ? full : ""});
  };
  const auto all = fmt::format("SELECT id, {}, d, e FROM {}", c, t);
  view(beside_, "", all, maybe_comment("COLUMN {v}." + c), true);
  view(schema_, " WITH (security_barrier = true, check_option = cascaded)", all + " WHERE id > 0", "", true);
  view(beside_, "", all + " WHERE e > -5 WITH LOCAL CHECK OPTION", "", true);
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
  view(beside_, "",
       fmt::format("WITH RECURSIVE x AS (SELECT id, {0}, 1 AS n FROM {1} WHERE id = 1 UNION ALL SELECT y.id, "
                   "y.{0}, n + 1 FROM x JOIN {1} y ON y.id = x.id + 1 WHERE n < 9) SELECT * FROM x",
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
  view(schema_, "", all,
       fmt::format("; CREATE TRIGGER \"on it\" INSTEAD OF UPDATE ON {{v}} FOR EACH ROW EXECUTE FUNCTION {}();"
                   " COMMENT ON TRIGGER \"on it\" ON {{v}} IS 't'",
                   function()),
       false);
  // It reads the row, not the column, and is told of only.
  view(beside_, "", fmt::format("SELECT x.id, to_jsonb(x) ->> 'd' AS d FROM {} x", t), "", false, "beside");
  {
    // A chain; the second view goes with the first, the third with the second.
    const auto below = new_name(), above = new_name(), top = new_name();
    const auto b = q(schema_) + "." + q(below), a = q(beside_) + "." + q(above),
               o = q(schema_) + "." + q(top);
    add({"view", q(above),
         fmt::format("CREATE VIEW {} AS {}; CREATE VIEW {} AS SELECT v.id, v.{} AS x, w.d FROM {} v JOIN {} "
                     "w USING (id)"
                     "; GRANT SELECT ON {} TO cf_guest; COMMENT ON COLUMN {}.x IS 'x'; CREATE VIEW {} WITH "
                     "(security_barrier) AS SELECT x, count(*) AS n FROM {} GROUP BY x; GRANT SELECT (x) ON "
                     "{} TO cf_friend, PUBLIC",
                     b, all, a, c, b, t, a, a, o, a, o),
         fmt::format("DROP VIEW {} CASCADE", b), b, false, q(top)});
  }
}

}  // namespace crossfade::test

// One case for each kind of object that hangs on the column: forward, switched, rolled back to the beginning,
// forward again and dropped. After each step the catalog is what it was, but for the column itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

struct LedgerCase {
  std::string name;
  std::string ddl;  // as the owner of the table, after kTable
  std::string type = "bigint";
  std::string column = "b";
  std::string check = "";  // a query that answers t before, and after every step
  bool makes_publication = false;
  std::string expressions = "";  // of the spec, as TOML
};
void PrintTo(const LedgerCase& c, std::ostream* out) { *out << c.name; }

const std::string kTable =
    "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL, d text NOT NULL, e int NOT NULL, n int);"
    "INSERT INTO t SELECT g, g, 'd' || g, g, g FROM generate_series(1, 200) g;";

class LedgerLifecycleTest : public DatabaseTest, public ::testing::WithParamInterface<LedgerCase> {
 protected:
  void prepare() {
    const auto& c = GetParam();
    super_sql(
        "DO $$BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cf friend') THEN"
        " CREATE ROLE \"cf friend\"; CREATE ROLE cf_guest; GRANT \"cf friend\" TO app_owner; END IF; END$$");
    if (c.makes_publication) {
      super_sql(
          "DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO PUBLIC', current_database()); END$$");
    }
    sql(kTable + c.ddl);
    owner_.emplace(dsn());
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
    before_ = lines();
    start();
  }

  void start() {
    const auto& c = GetParam();
    std::vector<Acceptance> accept;
    if (!c.expressions.empty()) accept = {{"twin_unique_may_reject", "every row is another number"}};
    migrator_->start(
        {fmt::format("[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{}\"\n"
                     "type = \"{}\"\n{}[drop]\nsoak = \"0s\"\n",
                     c.column, c.type, c.expressions)},
        accept);
  }

  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    if (phase == Phase::dropped) options.confirm = "m";
    migrator_->next("m", options);
  }

  std::vector<std::string> lines() { return describe_catalog(*owner_, "public.t"); }

  // What differs from before and is neither the column itself, nor where it is shown, nor ours.
  std::vector<std::string> unintended() {
    auto now = lines();
    // A sequence becomes as wide as the column, and a view shows it, and what it computes with it, in its
    // type.
    for (auto& line : now) {
      if (!line.starts_with("sequence ") && !line.starts_with("view column ")) continue;
      for (const auto& [wide, narrow] : {std::pair(" bigint ", " integer "),
                                         {"9223372036854775807", "2147483647"},
                                         {" numeric ", " bigint "}}) {
        if (std::ranges::find(before_, line) != before_.end()) break;
        if (const auto at = line.find(wide); at != std::string::npos)
          line.replace(at, std::string_view(wide).size(), narrow);
      }
    }
    std::vector<std::string> differing;
    std::ranges::set_symmetric_difference(before_, now, std::back_inserter(differing));
    std::erase_if(differing, [&](const std::string& line) {
      return line.starts_with("column " + GetParam().column + " ") || line.find("_cf") != std::string::npos ||
             line.find("crossfade.") != std::string::npos;
    });
    return differing;
  }

  void expect_check(const std::string& where) {
    const auto& c = GetParam();
    if (!c.check.empty()) {
      EXPECT_EQ(value(c.check), "t") << where;
    }
  }

  void expect_kept(const std::string& where) {
    EXPECT_EQ(unintended(), std::vector<std::string>{}) << where;
    expect_check(where);
    EXPECT_EQ(value("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass"
                    " AND attname = " +
                    quote_literal(GetParam().column)),
              GetParam().type)
        << where;
  }

  std::optional<ApplicationSession> owner_;
  std::optional<Migrator> migrator_;
  std::vector<std::string> before_;
};

TEST_P(LedgerLifecycleTest, ForwardSwitchedRolledBackAndDropped) {
  prepare();
  expect_check("before");
  advance(Phase::switched);
  expect_kept("switched");
  migrator_->rollback("m");
  advance(Phase::compare);
  EXPECT_EQ(unintended(), std::vector<std::string>{}) << "back in compare";
  expect_check("back in compare");
  advance(Phase::switched);
  expect_kept("switched again");
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_) << "rolled back";
  expect_check("rolled back");
  start();
  advance(Phase::switched);
  advance(Phase::dropped);
  expect_kept("dropped");
  for (const auto& line : lines()) EXPECT_EQ(line.find("_cf"), std::string::npos) << line;
}

// One with everything, and somebody who goes on hanging things on it.
class AfterSwitchTest : public LedgerLifecycleTest {};

TEST_P(AfterSwitchTest, WhatIsHungOnTheNewColumnIsNamedBeforeTheWayBack) {
  prepare();
  advance(Phase::switched);
  const auto refused = [&](const std::string& change, const std::string& undo, const std::string& name) {
    sql(change);
    try {
      migrator_->rollback("m");
      ADD_FAILURE() << "not refused after " << change;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.message();
      EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
    }
    sql(undo);
  };
  refused("CREATE INDEX later ON t (b)", "DROP INDEX later", "later");
  refused("CREATE VIEW later AS SELECT b FROM t", "DROP VIEW later", "later");
  refused("ALTER TABLE t ADD CONSTRAINT later CHECK (b < 1000000)", "ALTER TABLE t DROP CONSTRAINT later",
          "later");
  const auto view = value("SELECT pg_get_viewdef('v'::regclass)");
  refused("CREATE OR REPLACE VIEW v AS SELECT b FROM t WHERE b > 1", "CREATE OR REPLACE VIEW v AS " + view,
          "public.v");
  sql("CREATE INDEX later ON t (b)");
  migrator_->rollback("m", {.to = {}, .accept = {{"dependent_added", "it can go"}}});
  advance(Phase::compare);
  EXPECT_EQ(value("SELECT count(*) FROM pg_class WHERE relname = 'i'"), "1");
}

TEST_P(AfterSwitchTest, WhatIsDoneToAViewIsNamedBeforeTheWayBack) {
  prepare();
  advance(Phase::switched);
  sql("GRANT SELECT ON v TO PUBLIC");
  try {
    migrator_->rollback("m");
    ADD_FAILURE() << "the grant would have been lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.message();
    EXPECT_NE(error.message().find("public.v was changed"), std::string::npos) << error.message();
  }
}

TEST_P(AfterSwitchTest, WhatHangsOnTheOldColumnIsNamedBeforeTheDrop) {
  prepare();
  advance(Phase::switched);
  const auto retired = value(
      "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname LIKE "
      "'b\\_cfold\\_%'");
  const auto refused = [&](const std::string& change, const std::string& undo, const std::string& name) {
    sql(change);
    try {
      advance(Phase::dropped);
      ADD_FAILURE() << "not refused after " << change;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::finding_refused) << error.message();
      EXPECT_NE(error.message().find("old_column_in_use"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find(name), std::string::npos) << error.message();
    }
    EXPECT_EQ(migrator_->status("m").phase, Phase::switched);
    sql(undo);
  };
  refused("CREATE VIEW \"My later\" AS SELECT * FROM t", "DROP VIEW \"My later\"", "public.\"My later\"");
  refused("CREATE INDEX later ON t (" + retired + ")", "DROP INDEX later", "later");
  refused("ALTER TABLE t ADD CONSTRAINT later CHECK (e > -1 OR " + retired + " > 0)",
          "ALTER TABLE t DROP CONSTRAINT later", "later");
  refused("CREATE FUNCTION later() RETURNS bigint RETURN (SELECT max(" + retired + ") FROM t)",
          "DROP FUNCTION later", "later()");
  advance(Phase::dropped);
}

INSTANTIATE_TEST_SUITE_P(
    dependents_later, AfterSwitchTest,
    ::testing::Values(LedgerCase{
        "Everything",
        "CREATE INDEX i ON t (b); CREATE STATISTICS s ON b, e FROM t; CREATE VIEW v AS SELECT b"
        " FROM t; ALTER TABLE t ADD CONSTRAINT c CHECK (b > 0); ALTER TABLE t ADD UNIQUE (b);"
        "CREATE POLICY p ON t USING (b > 0);"
        "CREATE FUNCTION f() RETURNS bigint RETURN (SELECT sum(b) FROM t)"}),
    [](const auto& tested) { return tested.param.name; });

// PostgreSQL writes the same words in another way over another type. That is no change, and the way back
// makes everything again by the words of before.
class OtherWordsTest : public LedgerLifecycleTest {};

TEST_P(OtherWordsTest, ComeBackAsTheyWere) {
  prepare();
  advance(Phase::switched);
  migrator_->rollback("m");
  advance(Phase::compare);
  EXPECT_EQ(unintended(), std::vector<std::string>{});
  advance(Phase::switched);
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_);
}

INSTANTIATE_TEST_SUITE_P(
    dependents_words, OtherWordsTest,
    ::testing::Values(LedgerCase{
        "Numeric",
        "CREATE VIEW v AS SELECT id, b FROM t WHERE b > 0; ALTER TABLE t ADD CONSTRAINT c CHECK (b > 0);"
        "CREATE POLICY p ON t USING (b > 0);"
        "CREATE FUNCTION f() RETURNS bigint RETURN (SELECT count(*) FROM t WHERE b > 0);"
        "CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW WHEN (NEW.b >= 0) EXECUTE FUNCTION g()",
        "numeric"}),
    [](const auto& tested) { return tested.param.name; });

// A vacuum turns off a flag of the table some time after its last rule has gone.
class DroppedRuleTest : public LedgerLifecycleTest {};

TEST_P(DroppedRuleTest, IsNoChangeWhenAVacuumFindsOut) {
  prepare();
  advance(Phase::backfill);
  EXPECT_EQ(value("SELECT relhasrules FROM pg_class WHERE oid = 't'::regclass"), "t");
  sql("VACUUM t");
  EXPECT_EQ(value("SELECT relhasrules FROM pg_class WHERE oid = 't'::regclass"), "f");
  advance(Phase::switched);
}

INSTANTIATE_TEST_SUITE_P(dependents_rule, DroppedRuleTest,
                         ::testing::Values(LedgerCase{"Rule",
                                                      "CREATE RULE r AS ON DELETE TO t DO ALSO NOTHING;"
                                                      "DROP RULE r ON t"}),
                         [](const auto& tested) { return tested.param.name; });

// What cannot be made again is refused by the plan, not found out by the switch. `check` is the name told.
class RefusedByThePlanTest : public LedgerLifecycleTest {};

TEST_P(RefusedByThePlanTest, ByName) {
  const auto& c = GetParam();
  sql(kTable + c.ddl);
  Migrator migrator({.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
  migrator.init();
  const auto report = migrator.plan(
      {fmt::format("[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{0}\"\n"
                   "type = \"{1}\"\nforward = \"{0}::{1}\"\nbackward = \"{0}::text\"\n",
                   c.column, c.type)});
  std::string told;
  for (const auto& finding : report.refusals)
    if (finding.id == "dependent_not_carried") told += finding.message + "\n";
  EXPECT_NE(told.find(c.check), std::string::npos) << told;
}

INSTANTIATE_TEST_SUITE_P(
    dependents_refused, RefusedByThePlanTest,
    ::testing::Values(
        LedgerCase{"DefaultOfAView",
                   "CREATE VIEW v AS SELECT id, d FROM t; ALTER VIEW v ALTER d SET DEFAULT 'no number'",
                   "integer", "d", "public.v"},
        LedgerCase{"RuleOfAView",
                   "CREATE TABLE log (d date); CREATE VIEW v AS SELECT id, d FROM t;"
                   "CREATE RULE r AS ON INSERT TO v DO INSTEAD INSERT INTO log VALUES (NEW.d::date)",
                   "integer", "d", "public.v"},
        LedgerCase{"RuleThatUsesALaterView",
                   "CREATE VIEW v AS SELECT id, d FROM t; CREATE VIEW w AS SELECT id, d FROM v;"
                   "CREATE RULE r AS ON DELETE TO v DO INSTEAD DELETE FROM w WHERE id = OLD.id",
                   "character varying(50)", "d", "rule r on view"}),
    [](const auto& tested) { return tested.param.name; });

// The copy on which definitions are tried brings a type of its name: it must not hide PostgreSQL's.
class TableNamedLikeATypeTest : public DatabaseTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(TableNamedLikeATypeTest, IsMigratedLikeAnyOther) {
  const auto table = "public." + quote_identifier(GetParam());
  sql(
      fmt::format("CREATE TABLE {0} (id int PRIMARY KEY, b int); CREATE INDEX ON {0} (b) WHERE b > 0;"
                  "CREATE FUNCTION f() RETURNS bigint RETURN (SELECT sum(b) FROM {0})",
                  table));
  Migrator migrator({.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
  migrator.init();
  migrator.start(
      {fmt::format("[migration]\nname = \"m\"\ntable = '{}'\n[[column]]\nname = \"b\"\n"
                   "type = \"bigint\"\n",
                   table)});
  NextOptions options;
  options.until = Phase::switched;
  EXPECT_EQ(migrator.next("m", options).phase, Phase::switched);
}

INSTANTIATE_TEST_SUITE_P(dependents_types, TableNamedLikeATypeTest, ::testing::Values("name", "text", "oid"));

const std::string kTriggerFunction =
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';";

const std::vector<LedgerCase> kIndexes{
    {"PlainIndex", "CREATE INDEX i ON t (b); COMMENT ON INDEX i IS 'it''s'"},
    {"OrderedIndex", "CREATE INDEX i ON t (e DESC NULLS LAST, b ASC NULLS FIRST) WITH (fillfactor = 70)"},
    {"UniqueIndex", "CREATE UNIQUE INDEX i ON t (b)"},
    {"PartialIndex", "CREATE INDEX i ON t (b) WHERE e > 0 AND CASE WHEN e > 5 THEN true ELSE id > 3 END"},
    {"PredicateOverTheColumn", "CREATE INDEX i ON t (e) WHERE b > 0"},
    {"ExpressionIndex", "CREATE INDEX i ON t ((b + 1), (lower(d)))"},
    {"IncludingIndex", "CREATE INDEX i ON t (e) INCLUDE (b)"},
    {"HashIndex", "CREATE INDEX i ON t USING hash (b)"},
    {"BrinIndex", "CREATE INDEX i ON t USING brin (b) WITH (pages_per_range = 4)"},
    {"GinIndex", "CREATE INDEX i ON t USING gin ((ARRAY[b]))"},
    {"GistIndex",
     "CREATE INDEX i ON t USING gist (to_tsvector('simple', d) tsvector_ops (siglen = 100)) WHERE b > 0"},
    {"OperatorClass", "CREATE INDEX i ON t (d text_pattern_ops)", "character varying(50)", "d"},
    {"IndexCollation", "CREATE INDEX i ON t (d COLLATE \"POSIX\")", "character varying(50)", "d"},
    {"ReplicaIdentity", "CREATE UNIQUE INDEX i ON t (b); ALTER TABLE t REPLICA IDENTITY USING INDEX i"},
    {"ClusteredIndex", "CREATE INDEX i ON t (b); ALTER TABLE t CLUSTER ON i"},
    {"NullsNotDistinct", "CREATE UNIQUE INDEX i ON t (b, n) NULLS NOT DISTINCT"},
};
INSTANTIATE_TEST_SUITE_P(dependents_indexes, LedgerLifecycleTest, ::testing::ValuesIn(kIndexes),
                         [](const auto& tested) { return tested.param.name; });

// The way back is not proved to keep the values apart: the switch drops the old index, and the way back makes
// it again. In the second half neither is the way there.
const std::string kTextIsNumber =
    "ALTER TABLE t ALTER d TYPE text USING id::text; CREATE UNIQUE INDEX order_of_it ON t (e);";
const std::string kThereAndBack = "forward = \"d::numeric\"\nbackward = \"d::text\"\n";
const std::vector<LedgerCase> kShed{
    {"UniqueIndex", "CREATE UNIQUE INDEX i ON t (b) WITH (fillfactor = 70); COMMENT ON INDEX i IS 'i'",
     "numeric"},
    {"UniqueConstraint",
     "ALTER TABLE t ADD CONSTRAINT c UNIQUE (b); COMMENT ON CONSTRAINT c ON t IS 'one';"
     "COMMENT ON INDEX c IS 'its index'; ALTER TABLE t CLUSTER ON c",
     "numeric"},
    {"OverTwoAndReplicaIdentity",
     "ALTER TABLE t ADD CONSTRAINT c UNIQUE (e, b); ALTER TABLE t REPLICA IDENTITY USING INDEX c", "numeric"},
    {"IndexAsReplicaIdentity",
     "CREATE UNIQUE INDEX i ON t (b DESC, e); ALTER TABLE t REPLICA IDENTITY USING INDEX i", "numeric"},
    {"PrimaryKey",
     "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD UNIQUE (id), ALTER id SET NOT NULL;"
     "ALTER TABLE t ADD CONSTRAINT c PRIMARY KEY (b, e) INCLUDE (n)",
     "numeric"},
    {"PartialWithAnExpression", "CREATE UNIQUE INDEX i ON t (b, (lower(d))) INCLUDE (n) WHERE e > 3",
     "numeric"},
    {"VarcharUnique",
     "ALTER TABLE t ALTER d TYPE varchar(20); CREATE UNIQUE INDEX i ON t (d varchar_pattern_ops);"
     "ALTER TABLE t ADD CONSTRAINT c UNIQUE (d)",
     "text", "d"},
    {"TextUniqueIndex", kTextIsNumber + "CREATE UNIQUE INDEX i ON t (d DESC); COMMENT ON INDEX i IS 'i'",
     "numeric", "d", "", false, kThereAndBack},
    {"TextUniqueConstraint",
     kTextIsNumber + "ALTER TABLE t ADD CONSTRAINT c UNIQUE (d); COMMENT ON CONSTRAINT c ON t IS 'one'",
     "numeric", "d", "", false, kThereAndBack},
    {"TextUniqueOverTwo",
     kTextIsNumber + "ALTER TABLE t ADD UNIQUE (e, d); CREATE UNIQUE INDEX i ON t (d, (b % 7)) WHERE id > 4",
     "numeric", "d", "", false, kThereAndBack},
};
INSTANTIATE_TEST_SUITE_P(dependents_shed, LedgerLifecycleTest, ::testing::ValuesIn(kShed),
                         [](const auto& tested) { return tested.param.name; });

const std::vector<LedgerCase> kConstraints{
    {"Check", "ALTER TABLE t ADD CONSTRAINT c CHECK (b > 0); COMMENT ON CONSTRAINT c ON t IS 'positive'"},
    {"CheckOverSeveralColumns", "ALTER TABLE t ADD CONSTRAINT c CHECK (b <= e + 1000 AND b < 100000)"},
    {"CheckNotValid", "ALTER TABLE t ADD CONSTRAINT c CHECK (b > 0) NOT VALID"},
    {"CheckNoInherit", "ALTER TABLE t ADD CONSTRAINT c CHECK (b > 0) NO INHERIT"},
    {"Unique",
     "ALTER TABLE t ADD CONSTRAINT c UNIQUE (b); COMMENT ON CONSTRAINT c ON t IS 'one';"
     "COMMENT ON INDEX c IS 'its index'"},
    {"UniqueIncluding", "ALTER TABLE t ADD CONSTRAINT c UNIQUE (e) INCLUDE (b)"},
    {"UniqueOverTwo",
     "ALTER TABLE t ADD CONSTRAINT c UNIQUE (b, e); ALTER TABLE t REPLICA IDENTITY USING INDEX c"},
    {"ForeignKeyOut",
     "CREATE TABLE p (b int PRIMARY KEY); INSERT INTO p SELECT generate_series(1, 200);"
     "ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (b) REFERENCES p ON UPDATE CASCADE ON DELETE CASCADE "
     "DEFERRABLE"},
    {"ForeignKeyOutNotValid",
     "CREATE TABLE p (b int PRIMARY KEY);"
     "ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (b) REFERENCES p NOT VALID"},
    {"ForeignKeyOutOfTwo",
     "CREATE TABLE p (b int, e int, UNIQUE (b, e)); INSERT INTO p SELECT g, g FROM generate_series(1, 200) g;"
     "ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (b, e) REFERENCES p (b, e) MATCH FULL"},
    {"ForeignKeyToItself",
     "ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (b) REFERENCES t (id) INITIALLY DEFERRED"},
};
INSTANTIATE_TEST_SUITE_P(dependents_constraints, LedgerLifecycleTest, ::testing::ValuesIn(kConstraints),
                         [](const auto& tested) { return tested.param.name; });

const std::vector<LedgerCase> kObjects{
    {"TriggerColumnList", kTriggerFunction +
                              "CREATE TRIGGER g BEFORE UPDATE OF b ON t FOR EACH ROW EXECUTE FUNCTION f();"
                              "COMMENT ON TRIGGER g ON t IS 'g'; ALTER TABLE t ENABLE ALWAYS TRIGGER g"},
    {"TriggerWhen",
     kTriggerFunction +
         "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.b > 0) EXECUTE FUNCTION f();"
         "ALTER TABLE t DISABLE TRIGGER g"},
    {"ConstraintTrigger",
     kTriggerFunction + "CREATE CONSTRAINT TRIGGER g AFTER UPDATE OF b ON t DEFERRABLE INITIALLY DEFERRED"
                        " FOR EACH ROW EXECUTE FUNCTION f()"},
    {"Policy",
     "CREATE POLICY p ON t FOR SELECT TO PUBLIC USING (b > 0);"
     "CREATE POLICY w ON t AS RESTRICTIVE FOR UPDATE USING (b > 0) WITH CHECK (b > 1)"},
    {"PolicyOfAnotherTable", "CREATE TABLE o (b int); CREATE POLICY p ON o USING (b IN (SELECT t.b FROM t))"},
    {"Statistics",
     "CREATE STATISTICS s (ndistinct, mcv) ON id, b FROM t; COMMENT ON STATISTICS s IS 's';"
     "ALTER STATISTICS s SET STATISTICS 50"},
    {"StatisticsExpression",
     "CREATE STATISTICS s ON (b + 1) FROM t; CREATE STATISTICS r ON (b + 1), e FROM t"},
    {"Rule",
     "CREATE TABLE log (b bigint);"
     "CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO log VALUES (OLD.b)"},
    {"RuleOfAnotherTable",
     "CREATE TABLE log (b bigint);"
     "CREATE RULE r AS ON INSERT TO log DO ALSO UPDATE t SET n = t.b WHERE t.id = NEW.b"},
    {"SqlBodyFunction",
     "CREATE FUNCTION f() RETURNS bigint RETURN (SELECT sum(b) FROM t);"
     "COMMENT ON FUNCTION f() IS 'f'; REVOKE ALL ON FUNCTION f() FROM PUBLIC",
     "bigint", "b", "SELECT public.f() = 20100"},
    {"SqlBodyProcedure", "CREATE PROCEDURE f() BEGIN ATOMIC UPDATE t SET b = b WHERE b = 1; END"},
    {"PublicationColumnList", "CREATE PUBLICATION p FOR TABLE t (id, b)", "bigint", "b", "", true},
    {"PublicationWithAName", "CREATE PUBLICATION \"P \"\"q\" FOR TABLE t (id, b)", "bigint", "b", "", true},
    {"PublicationRowFilter", "CREATE PUBLICATION p FOR TABLE t WHERE (b > 0) WITH (publish = 'insert')",
     "bigint", "b", "", true},
};
INSTANTIATE_TEST_SUITE_P(dependents_objects, LedgerLifecycleTest, ::testing::ValuesIn(kObjects),
                         [](const auto& tested) { return tested.param.name; });

const std::vector<LedgerCase> kKeys{
    {"PrimaryKeyThatIsTheOrder",
     "COMMENT ON CONSTRAINT t_pkey ON t IS 'key'; CREATE INDEX i ON t (id DESC, e)", "bigint", "id"},
    {"PrimaryKeyOfTwo",
     "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (e, b) INCLUDE (d)"},
    {"PrimaryKeyBesideAnotherOrder", "ALTER TABLE t ADD UNIQUE (e)", "bigint", "id"},
    {"Serial",
     "CREATE SEQUENCE s AS int OWNED BY t.id; SELECT setval('s', 200); ALTER TABLE t ALTER id SET DEFAULT "
     "nextval('s');"
     "COMMENT ON SEQUENCE s IS 's'",
     "bigint", "id", "SELECT nextval('s') > 200"},
    {"SerialWhoseSequenceIsWide",
     "CREATE SEQUENCE s OWNED BY t.id; SELECT setval('s', 200); ALTER TABLE t ALTER id SET DEFAULT "
     "nextval('s')",
     "bigint", "id", "SELECT nextval('s') > 200"},
    {"IdentityAlways",
     "ALTER TABLE t ALTER id ADD GENERATED ALWAYS AS IDENTITY (START WITH 300 INCREMENT BY 2 CACHE 5);"
     "SELECT setval('t_id_seq', 301); COMMENT ON SEQUENCE t_id_seq IS 's'; GRANT USAGE ON SEQUENCE t_id_seq "
     "TO PUBLIC",
     "bigint", "id", "SELECT nextval('t_id_seq') > 302"},
    {"IdentityByDefault",
     "ALTER TABLE t ALTER b ADD GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME \"S q\" MAXVALUE 1000 CYCLE);"
     "SELECT setval('\"S q\"', 250)",
     "bigint", "b", "SELECT nextval('\"S q\"') > 250"},
};
INSTANTIATE_TEST_SUITE_P(dependents_keys, LedgerLifecycleTest, ::testing::ValuesIn(kKeys),
                         [](const auto& tested) { return tested.param.name; });

const std::string kSum = "SELECT sum(b) = 20100 FROM v";
const std::vector<LedgerCase> kViews{
    {"View",
     "CREATE VIEW v AS SELECT id, b FROM t WHERE b > 0; COMMENT ON VIEW v IS 'it''s v';"
     "COMMENT ON COLUMN v.b IS 'its b'; GRANT SELECT ON v TO PUBLIC; GRANT UPDATE (b) ON v TO PUBLIC",
     "bigint", "b", kSum},
    {"ViewGrantedByAnother",
     "CREATE VIEW v AS SELECT id, b FROM t; GRANT USAGE ON SCHEMA public TO \"cf friend\";"
     "GRANT SELECT ON v TO \"cf friend\" WITH GRANT OPTION; SET ROLE \"cf friend\"; GRANT SELECT ON v TO "
     "cf_guest;"
     "RESET ROLE",
     "bigint", "b", kSum},
    {"ViewWithOptions",
     "CREATE VIEW v WITH (security_barrier, check_option = cascaded) AS SELECT * FROM t WHERE b > 0",
     "bigint", "b", kSum},
    {"SecurityInvokerView", "CREATE VIEW v WITH (security_invoker = true) AS SELECT b FROM t", "bigint", "b",
     kSum},
    {"ChainOfViews",
     "CREATE VIEW v AS SELECT id, b FROM t; CREATE VIEW w AS SELECT v.b AS x, t.b FROM v JOIN t USING (id);"
     "CREATE VIEW x AS SELECT w.x + v.b AS y FROM w, v LIMIT 1; CREATE VIEW beside AS SELECT count(*) FROM v",
     "bigint", "b", kSum},
    {"ViewWithTriggerRuleAndDefault",
     kTriggerFunction + "CREATE VIEW v AS SELECT id, b FROM t; ALTER VIEW v ALTER b SET DEFAULT 7;"
                        "CREATE TRIGGER g INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION f();"
                        "CREATE RULE r AS ON DELETE TO v DO INSTEAD NOTHING; COMMENT ON RULE r ON v IS 'r'",
     "bigint", "b", kSum},
    {"ViewWhoseRuleWritesTheTable",
     "CREATE VIEW v AS SELECT id, b, d, e FROM t; CREATE RULE w AS ON INSERT TO v DO INSTEAD INSERT INTO t"
     " (id, b, d, e) VALUES (NEW.id, NEW.b, NEW.d, NEW.e)",
     "bigint", "b", kSum},
    {"ViewWhoseRuleWritesAnother",
     "CREATE VIEW v AS SELECT id, b FROM t; CREATE VIEW w AS SELECT id, b FROM v;"
     "CREATE RULE r AS ON DELETE TO w DO INSTEAD DELETE FROM v WHERE id = OLD.id",
     "bigint", "b", kSum},
    {"ViewThatAggregates",
     "CREATE VIEW v AS WITH x AS (SELECT b, row_number() OVER (ORDER BY b) AS r FROM t)"
     " SELECT sum(b) AS b FROM x GROUP BY r % 2 UNION ALL SELECT 0",
     "bigint", "b", kSum},
};
INSTANTIATE_TEST_SUITE_P(dependents_views, LedgerLifecycleTest, ::testing::ValuesIn(kViews),
                         [](const auto& tested) { return tested.param.name; });

const std::vector<LedgerCase> kProperties{
    {"StatisticsTarget", "ALTER TABLE t ALTER b SET STATISTICS 10"},
    {"Options", "ALTER TABLE t ALTER b SET (n_distinct = 5, n_distinct_inherited = -0.5)"},
    {"Storage", "ALTER TABLE t ALTER d SET STORAGE MAIN", "character varying(50)", "d"},
    {"Compression", "ALTER TABLE t ALTER d SET COMPRESSION pglz", "character varying(50)", "d"},
    {"Collation", "ALTER TABLE t ALTER d TYPE text COLLATE \"POSIX\"", "character varying(50)", "d"},
    {"ColumnGrants", "GRANT SELECT (b), UPDATE (b) ON t TO PUBLIC; GRANT INSERT (b) ON t TO CURRENT_USER"},
    {"ColumnGrantsOfAnotherGrantor",
     "GRANT USAGE ON SCHEMA public TO \"cf friend\"; GRANT UPDATE (b) ON t TO \"cf friend\" WITH GRANT "
     "OPTION;"
     "SET ROLE \"cf friend\"; GRANT UPDATE (b) ON t TO cf_guest; RESET ROLE"},
    {"Comment", "COMMENT ON COLUMN t.b IS 'it''s b'"},
};
INSTANTIATE_TEST_SUITE_P(dependents_properties, LedgerLifecycleTest, ::testing::ValuesIn(kProperties),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace crossfade::test

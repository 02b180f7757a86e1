// The ledger: what hangs on a column is carried exactly or refused by name.
#include "crossfade/shadow/dependents.hpp"

#include <algorithm>
#include <chrono>

#include "crossfade/core/state_schema.hpp"
#include "crossfade/shadow/twins.hpp"
#include "support/database_test.hpp"
#include "support/migration_fixture.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

ColumnSpec column_spec(const std::string& name, const std::string& type,
                       const std::optional<std::string>& forward = std::nullopt) {
  ColumnSpec column;
  column.name = name;
  column.type = type;
  column.forward = forward;
  return column;
}

struct Inventoried {
  Ledger ledger;
  std::vector<Finding> findings;
  std::vector<std::string> objects(std::string_view id, Severity severity = Severity::refuse) const {
    std::vector<std::string> found;
    for (const auto& finding : findings) {
      if (finding.id == id && finding.severity == severity) found.push_back(finding.object);
    }
    return found;
  }
};

class DependentsTest : public DatabaseTest {
 protected:
  SqlSession door_{SqlSession::connect({dsn(), "test", milliseconds(10000)})};

  // Of table public.t, in a transaction that is rolled back.
  Inventoried inventory(const std::string& ddl, const ColumnSpec& column) {
    sql(ddl);
    install_schema(door_);
    Transaction transaction(door_);
    Inventoried result;
    const auto table = read_table(door_, QualifiedName{"public", "t"});
    const GeneratedNames names(StateStore(door_).new_id());
    const auto bound = bind_column(door_, *table, column, names, result.findings);
    EXPECT_TRUE(unaccepted(result.findings, {}).empty()) << result.findings.front().message;
    const auto before = temp_objects();
    result.ledger = take_inventory(door_, *table, bound, result.findings);
    EXPECT_EQ(temp_objects(), before);
    return result;
  }

  std::string temp_objects() {
    return text_of(door_.exec("SELECT count(*) FROM pg_class WHERE relpersistence = 't'").one("count")[0]);
  }
};

// --- refused
// -----------------------------------------------------------------------------------------------------

struct RefusedCase {
  std::string kind, ddl, object;
  ColumnSpec column = column_spec("b", "bigint");
  int since = 0;  // server_version_num: an older server has no such thing to refuse
};
void PrintTo(const RefusedCase& refused, std::ostream* out) { *out << refused.kind; }

const std::string kTable =
    "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL, d text NOT NULL, e int NOT NULL);";

class RefusedDependentTest : public DependentsTest, public ::testing::WithParamInterface<RefusedCase> {};

TEST_P(RefusedDependentTest, IsNamed) {
  const auto& refused = GetParam();
  if (session().identity().version_num < refused.since) return;
  const auto found = inventory(kTable + refused.ddl, refused.column);
  EXPECT_EQ(found.objects("dependent_not_carried"), std::vector<std::string>{refused.object});
  for (const auto& finding : found.findings) {
    EXPECT_TRUE(finding.message.ends_with(".")) << finding.message;
    EXPECT_FALSE(finding.hint.empty()) << finding.message;
  }
}

const std::vector<RefusedCase> kIndexCases{
    {"WholeRowIndex",
     "CREATE FUNCTION f(t) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'; CREATE INDEX i ON t (f(t))",
     "public.i"},
    {"ExpressionIndexUnderAWrittenExpression", "CREATE INDEX i ON t ((1 / b))", "public.i",
     column_spec("b", "bigint", "b / 2")},
    {"PredicateUnderAWrittenExpression", "CREATE INDEX i ON t (e) WHERE b > 0", "public.i",
     column_spec("b", "bigint", "b / 2")},
    {"IndexOnATypeWithoutOrder", "CREATE INDEX i ON t (b)", "public.i",
     column_spec("b", "point", "point(b, b)")},
    {"StatisticsTargetOfAnIndexColumn",
     "CREATE INDEX i ON t ((b + 1)); ALTER INDEX i ALTER 1 SET STATISTICS 9", "public.i"},
};
INSTANTIATE_TEST_SUITE_P(Indexes, RefusedDependentTest, ::testing::ValuesIn(kIndexCases),
                         [](const auto& tested) { return tested.param.kind; });

const std::vector<RefusedCase> kConstraintCases{
    {"WholeRowCheck", "ALTER TABLE t ADD CONSTRAINT c CHECK (t IS NOT NULL)", "c on public.t"},
    {"CheckThatTheNewTypeCannotDo", "ALTER TABLE t ADD CONSTRAINT c CHECK (int4larger(b, 1) > 0)",
     "c on public.t"},
    {"PrimaryKeyThatIsNotProvedNotNull",
     "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD UNIQUE (e); ALTER TABLE t ADD CONSTRAINT c "
     "PRIMARY "
     "KEY (b)",
     "c on public.t", column_spec("b", "smallint")},
    {"DeferrableUnique", "ALTER TABLE t ADD CONSTRAINT c UNIQUE (b) DEFERRABLE", "c on public.t"},
    {"Exclusion", "ALTER TABLE t ADD CONSTRAINT c EXCLUDE USING btree (b WITH =)", "c on public.t"},
    {"ExclusionByExpression", "ALTER TABLE t ADD CONSTRAINT c EXCLUDE USING btree ((b + 1) WITH =)",
     "c on public.t"},
    {"ExclusionByPredicate", "ALTER TABLE t ADD CONSTRAINT c EXCLUDE USING btree (e WITH =) WHERE (b > 0)",
     "c on public.t"},
    {"ForeignKeyUnderAWrittenExpression",
     "CREATE TABLE p (b int PRIMARY KEY); ALTER TABLE t ADD CONSTRAINT c FOREIGN KEY (b) REFERENCES p",
     "c on public.t", column_spec("b", "bigint", "b + 1")},
};
INSTANTIATE_TEST_SUITE_P(Constraints, RefusedDependentTest, ::testing::ValuesIn(kConstraintCases),
                         [](const auto& tested) { return tested.param.kind; });

const std::string kFunction =
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';";

const std::vector<RefusedCase> kObjectCases{
    {"TriggerWhenOverTheWholeRow",
     kFunction +
         "CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.b > 0 AND OLD IS DISTINCT FROM NEW)"
         " EXECUTE FUNCTION f()",
     "g on public.t"},
    {"TriggerWhenThatTheNewTypeCannotDo",
     kFunction + "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (int4larger(NEW.b, 1) > 0)"
                 " EXECUTE FUNCTION f()",
     "g on public.t"},
    {"PolicyThatTheNewTypeCannotDo", "CREATE POLICY p ON t USING (int4larger(b, 1) > 0)", "p on public.t"},
    {"StatisticsThatTheNewTypeCannotDo", "CREATE STATISTICS s ON (int4larger(b, 1)) FROM t", "public.s"},
    {"ViewThatTheNewTypeCannotDo",
     "CREATE VIEW v AS SELECT b FROM t; CREATE VIEW w AS SELECT int4larger(b, 1) FROM v", "public.w"},
    {"ViewWhoseRowTypeIsUsed", "CREATE VIEW v AS SELECT b FROM t; CREATE TABLE u (r v)", "public.v"},
    {"MaterialisedView", "CREATE MATERIALIZED VIEW v AS SELECT b FROM t", "public.v"},
    {"MaterialisedViewOfAView",
     "CREATE VIEW v AS SELECT b FROM t; CREATE MATERIALIZED VIEW w AS SELECT b FROM v", "public.w"},
    {"RuleUnderAWrittenExpression",
     "CREATE TABLE log (b int); CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO log VALUES (OLD.b)",
     "r on public.t", column_spec("b", "bigint", "b + 1")},
    {"SqlBodyFunctionThatTheNewTypeCannotDo",
     "CREATE FUNCTION f() RETURNS int RETURN (SELECT int4larger(b, 1) FROM t LIMIT 1)", "public.f()"},
    {"GeneratedColumn", "ALTER TABLE t ADD g int GENERATED ALWAYS AS (b + 1) STORED", "public.t.g"},
    {"OwnGeneration", "ALTER TABLE t DROP b, ADD b int GENERATED ALWAYS AS (e + 1) STORED", "for public.t.b"},
    {"SerialThatBecomesText", "ALTER TABLE t DROP b, ADD b serial", "public.t_b_seq",
     column_spec("b", "text")},
    {"IdentityThatOthersDrawFrom",
     "ALTER TABLE t ALTER b ADD GENERATED ALWAYS AS IDENTITY; CREATE TABLE u (x int DEFAULT "
     "nextval('t_b_seq'))",
     "public.t_b_seq"},
};
INSTANTIATE_TEST_SUITE_P(Objects, RefusedDependentTest, ::testing::ValuesIn(kObjectCases),
                         [](const auto& tested) { return tested.param.kind; });

const std::vector<RefusedCase> kPropertyCases{
    {"DefaultOfEachRowUnderAWrittenExpression", "ALTER TABLE t ALTER b SET DEFAULT (random() * 9)::int",
     "public.t.b", column_spec("b", "bigint", "b + 1")},
    {"DefaultWhoseForwardReadsMore", "ALTER TABLE t ALTER b SET DEFAULT 5", "public.t.b",
     column_spec("b", "bigint", "b + e")},
    {"DefaultOfADomain",
     "CREATE DOMAIN five AS int DEFAULT 5; ALTER TABLE t DROP b, ADD b five NOT NULL DEFAULT 1;"
     "ALTER TABLE t ALTER b DROP DEFAULT",
     "public.five"},
};
INSTANTIATE_TEST_SUITE_P(Properties, RefusedDependentTest, ::testing::ValuesIn(kPropertyCases),
                         [](const auto& tested) { return tested.param.kind; });

// The column is a smallint, which coalesce takes for an integer: so do the words by which PostgreSQL tells
// it.
const std::string kSmall = "ALTER TABLE t ALTER b TYPE smallint; ";
const std::vector<RefusedCase> kNarrowingCases{
    {"Index", kSmall + "CREATE INDEX i ON t ((coalesce(b, 0)))", "public.i"},
    {"Predicate", kSmall + "CREATE INDEX i ON t (e) WHERE coalesce(b, 0) > 0", "public.i"},
    {"Check", kSmall + "ALTER TABLE t ADD CONSTRAINT c CHECK (coalesce(b, 0) >= 0)", "c on public.t"},
    {"Trigger",
     kSmall + kFunction +
         "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW WHEN (coalesce(NEW.b, 0) > 0) EXECUTE FUNCTION "
         "f()",
     "g on public.t"},
    {"Policy", kSmall + "CREATE POLICY p ON t USING (coalesce(b, 0) > 0)", "p on public.t"},
    {"Statistics", kSmall + "CREATE STATISTICS s ON (coalesce(b, 0)) FROM t", "public.s"},
    {"Rule",
     kSmall + "CREATE TABLE log (b bigint); CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO log VALUES"
              " (coalesce(OLD.b, 0))",
     "r on public.t"},
    {"Function", kSmall + "CREATE FUNCTION f() RETURNS bigint RETURN (SELECT sum(coalesce(b, 0)) FROM t)",
     "public.f()"},
    {"View", kSmall + "CREATE VIEW v AS SELECT coalesce(b, 0) AS b FROM t", "public.v"},
    {"ViewOfAView",
     kSmall + "CREATE VIEW v AS SELECT e, b FROM t; CREATE VIEW w AS SELECT coalesce(b, 0) AS b FROM v",
     "public.w"},
    {"OfANumber", "CREATE INDEX i ON t ((coalesce(b, 5000000000)))", "public.i", column_spec("b", "numeric")},
};
INSTANTIATE_TEST_SUITE_P(Narrowing, RefusedDependentTest, ::testing::ValuesIn(kNarrowingCases),
                         [](const auto& tested) { return tested.param.kind; });

// To the type that the words take the column for, and to one that becomes that by itself.
TEST_F(DependentsTest, ACastThatNarrowsNothingIsCarried) {
  const auto found =
      inventory(kTable + kSmall +
                    "CREATE INDEX i ON t ((coalesce(b, 0))); ALTER TABLE t ADD CHECK (coalesce(b, 0) >="
                    " 0); CREATE VIEW v AS SELECT coalesce(b, 0) AS b FROM t",
                column_spec("b", "integer"));
  EXPECT_TRUE(found.objects("dependent_not_carried").empty());
  const auto wider = inventory("DROP TABLE t CASCADE; " + kTable + "CREATE INDEX i ON t ((coalesce(b, 0.5)))",
                               column_spec("b", "bigint"));
  EXPECT_TRUE(wider.objects("dependent_not_carried").empty());
}

TEST_F(DependentsTest, AForeignKeyFromAnotherTableIsNamed) {
  const auto found = inventory(kTable +
                                   "ALTER TABLE t ADD CONSTRAINT u UNIQUE (b);"
                                   "CREATE TABLE c (b int CONSTRAINT k REFERENCES t (b))",
                               column_spec("b", "bigint"));
  EXPECT_EQ(found.objects("dependent_not_carried"), (std::vector<std::string>{"k on public.c"}));
}

TEST_F(DependentsTest, AnIndexThatIsNotValidIsNamed) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1), (2, 1)");
  EXPECT_THROW(sql("CREATE UNIQUE INDEX CONCURRENTLY i ON t (b)"), Error);
  EXPECT_EQ(inventory("SELECT 1", column_spec("b", "bigint")).objects("dependent_not_carried"),
            std::vector<std::string>{"public.i"});
}

// What a unique index of the old column may do to the application, by what is proved of the two ways.
struct UniqueCase {
  std::string name, index;
  ColumnSpec column;
  bool may_reject, shed;
  int since = 0;
};
void PrintTo(const UniqueCase& c, std::ostream* out) { *out << c.name; }

class UniqueProofTest : public DependentsTest, public ::testing::WithParamInterface<UniqueCase> {};

TEST_P(UniqueProofTest, DecidesWhatIsAcceptedAndWhatTheSwitchDrops) {
  const auto& c = GetParam();
  if (session().identity().version_num < c.since) return;
  const auto found = inventory(kTable + "CREATE UNIQUE INDEX i ON t " + c.index, c.column);
  EXPECT_EQ(found.objects("twin_unique_may_reject"),
            c.may_reject ? std::vector<std::string>{"public.i"} : std::vector<std::string>{});
  EXPECT_TRUE(found.objects("dependent_not_carried").empty());
  const auto* entry = found.ledger.find(DependentKind::index);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->shed, c.shed);
}

const std::vector<UniqueCase> kUniqueCases{
    {"BothWays", "(b)", column_spec("b", "bigint"), false, false},
    {"OnlyForward", "(b, e)", column_spec("b", "numeric"), false, true},
    {"OnlyBackward", "(b)", column_spec("b", "bigint", "b / 2"), true, false},
    {"Neither", "(d)", column_spec("d", "numeric", "d::numeric"), true, true},
    {"NotOfTheKey", "(e) INCLUDE (b)", column_spec("b", "bigint", "b / 2"), false, false},
    {"InAnExpression", "((b + 1))", column_spec("b", "bigint"), false, true},
    {"NullsCollideOnTheWayBack", "(b) NULLS NOT DISTINCT", column_spec("b", "bigint"), false, true, 150000},
    {"NullsCollideOnTheWayThere", "(b) NULLS NOT DISTINCT", column_spec("b", "smallint"), true, false,
     150000},
};
INSTANTIATE_TEST_SUITE_P(Uniques, UniqueProofTest, ::testing::ValuesIn(kUniqueCases),
                         [](const auto& tested) { return tested.param.name; });

TEST_F(DependentsTest, AnIndexInATablespaceThatIsNotOursNeedsAGrant) {
  PrivateFolder folder("tablespace");
  give_to_postgres(folder.path());
  super_sql("SET allow_in_place_tablespaces = on");
  super_sql("CREATE TABLESPACE fast LOCATION '" + folder.path().string() + "'");
  sql(kTable + "CREATE INDEX i ON t (b)");
  super_sql("ALTER INDEX i SET TABLESPACE fast");
  EXPECT_EQ(inventory("SELECT 1", column_spec("b", "bigint")).objects("missing_privilege"),
            std::vector<std::string>{"fast"});
  super_sql("ALTER INDEX i SET TABLESPACE pg_default");
  super_sql("DROP TABLESPACE fast");
}

TEST_F(DependentsTest, WhatDoesNotReferToTheColumnIsNotNamed) {
  const auto found =
      inventory(kTable + kFunction +
                    "CREATE VIEW v AS SELECT id FROM t; CREATE INDEX i ON t (e) WHERE id > 0;"
                    "ALTER TABLE t ADD CHECK (e > 0); CREATE TRIGGER g BEFORE UPDATE OF e ON t FOR EACH ROW"
                    " EXECUTE FUNCTION f(); CREATE STATISTICS s ON id, e FROM t",
                column_spec("b", "bigint"));
  EXPECT_TRUE(unaccepted(found.findings, {}).empty());
  ASSERT_EQ(found.ledger.carried.size(), 1u);
  EXPECT_EQ(found.ledger.carried[0].kind, DependentKind::not_null);
}

// --- defaults
// ----------------------------------------------------------------------------------------------------

struct DefaultCase {
  std::string name, old_type, value;
  ColumnSpec column;
  std::optional<std::string> new_sql;
};
void PrintTo(const DefaultCase& c, std::ostream* out) { *out << c.name; }

class DefaultTest : public DependentsTest, public ::testing::WithParamInterface<DefaultCase> {};

TEST_P(DefaultTest, BecomesWhatForwardMakesOfIt) {
  const auto& c = GetParam();
  const auto found = inventory(
      "CREATE TABLE t (id int PRIMARY KEY, b " + c.old_type + " DEFAULT " + c.value + ")", c.column);
  for (const auto& finding : unaccepted(found.findings, {})) ADD_FAILURE() << finding.message;
  const auto* entry = found.ledger.find(DependentKind::default_value);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->new_sql, c.new_sql);
  if (!entry->new_sql) return;
  sql("CREATE TABLE n (b " + c.column.type + " DEFAULT " + *entry->new_sql +
      "); INSERT INTO n DEFAULT VALUES");
}

const std::vector<DefaultCase> kDefaults{
    {"Constant", "int", "7", column_spec("b", "bigint"), "'7'::bigint"},
    {"OfTheOldColumnsOwnRounding", "numeric(4,0)", "1.7", column_spec("b", "numeric(12,2)"),
     "'2.00'::numeric(12,2)"},
    {"Written", "int", "7", column_spec("b", "text", "'<' || b || '\\''>'"), "E'<7\\\\''>'::text"},
    {"Null", "varchar(9)", "NULL", column_spec("b", "text"), std::nullopt},
    {"Computed", "text", "upper('x')", column_spec("b", "character varying(5)"), "'X'::character varying(5)"},
    {"OfEachRow", "timestamp", "now()", column_spec("b", "date"),
     "CAST(CAST((now()) AS timestamp without time zone) AS date)"},
};
INSTANTIATE_TEST_SUITE_P(All, DefaultTest, ::testing::ValuesIn(kDefaults),
                         [](const auto& tested) { return tested.param.name; });

TEST_F(DependentsTest, ADefaultThatForwardCannotConvertIsAMisfit) {
  const auto found = inventory("CREATE TABLE t (id int PRIMARY KEY, b text DEFAULT 'none')",
                               column_spec("b", "integer", "b::integer"));
  EXPECT_EQ(found.objects("misfit_default"), std::vector<std::string>{"public.t.b"});
  const auto* entry = found.ledger.find(DependentKind::default_value);
  ASSERT_NE(entry, nullptr);
  EXPECT_FALSE(entry->new_sql);
}

TEST_F(DependentsTest, ADefaultOfEachRowIsAWarning) {
  const auto found =
      inventory("CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT random())", column_spec("b", "bigint"));
  EXPECT_EQ(found.objects("misfit_default", Severity::warn), std::vector<std::string>{"public.t.b"});
}

TEST_F(DependentsTest, ADefaultFromASequenceIsCarriedAsItIs) {
  const auto found =
      inventory("CREATE SEQUENCE s; CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT nextval('s'))",
                column_spec("b", "bigint"));
  EXPECT_TRUE(found.objects("misfit_default", Severity::warn).empty());
  const auto* entry = found.ledger.find(DependentKind::default_value);
  ASSERT_NE(entry, nullptr);
  EXPECT_TRUE(entry->from_sequence);
  EXPECT_EQ(entry->new_sql, entry->old_sql);
  EXPECT_EQ(value("SELECT nextval('s')"), "1");
}

// --- carried
// -----------------------------------------------------------------------------------------------------

class CarriedTest : public DependentsTest {
 protected:
  void prepare(const std::string& ddl, const ColumnSpec& column) {
    fixture_.emplace(door_, ddl, column);
    ledger_ = inventoried();
    store_ledger(door_, fixture_->migration().row.id, ledger_);
    fixture_->install_capture();
    fixture_->fill_shadow();
    fixture_->set_phase(Phase::dual_write);
    TwinBuilder builder(fixture_->migration(), fixture_->table(), ledger_);
    while (!builder.step(door_, milliseconds(1000))) {
    }
    EXPECT_TRUE(builder.missing(door_).empty());
    fixture_->set_phase(Phase::compare);
  }

  Ledger inventoried() {
    Transaction transaction(door_);
    std::vector<Finding> findings;
    auto ledger = take_inventory(door_, *read_table(door_, fixture_->table()),
                                 fixture_->migration().binding.column, findings);
    for (const auto& finding : unaccepted(findings, {})) ADD_FAILURE() << finding.message;
    return ledger;
  }

  void cross(const std::string& sql) { door_.script("BEGIN;" + sql + "COMMIT"); }

  std::string rename(const std::string& from, const std::string& to) {
    return "ALTER TABLE t RENAME COLUMN " + quote_identifier(from) + " TO " + quote_identifier(to) + ";";
  }

  void switch_over() {
    const auto before = fixture_->migration();
    const bool valid = TwinBuilder(before, fixture_->table(), ledger_).not_null_check_valid(door_);
    fixture_->set_phase(Phase::switched);
    const auto after = fixture_->migration();
    cross("SET LOCAL search_path = public;" + rename(before.names.old_column, after.names.old_column) +
          rename(before.names.new_column, after.names.new_column) + "SET LOCAL search_path = pg_catalog;" +
          carry_over_sql(after, fixture_->table(), load_ledger(door_, after.row.id), valid).all());
  }

  void switch_back() {
    const auto before = fixture_->migration();
    fixture_->set_phase(Phase::compare);
    const auto after = fixture_->migration();
    cross("SET LOCAL search_path = public;" + rename(before.names.new_column, after.names.new_column) +
          rename(before.names.old_column, after.names.old_column) + "SET LOCAL search_path = pg_catalog;" +
          carry_back_sql(after, fixture_->table(), load_ledger(door_, after.row.id), false).all());
  }

  void settle() {
    while (!settle_not_null(door_, fixture_->migration(), fixture_->table(), "b", milliseconds(1000))) {
    }
  }

  // Everything that hangs on a column of t, by name.
  std::vector<std::vector<SqlValue>> catalog(const std::string& of_column = "%") {
    return door_
        .exec(R"sql(
SELECT 'column', a.attname::text, concat_ws(' | ', a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
       col_description(a.attrelid, a.attnum))
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = 'public.t'::regclass AND a.attnum > 0 AND a.attname LIKE $1
UNION ALL SELECT 'index', c.relname, concat_ws(' | ', pg_get_indexdef(c.oid), i.indisvalid,
       obj_description(c.oid), c.reltablespace, pg_get_userbyid(c.relowner))
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = 'public.t'::regclass
  AND ($1 = '%' OR c.relname NOT LIKE '%\_cf%')
UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'public.t'::regclass AND ($1 = '%' OR conname NOT LIKE '%\_cf%') ORDER BY 1, 2)sql",
              {of_column})
        .rows;
  }

  std::optional<MigrationFixture> fixture_;
  Ledger ledger_;
};

const std::string kEverything =
    "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL DEFAULT 7, \"e E\" int);"
    "INSERT INTO t SELECT g, g, g FROM generate_series(1, 100) g;"
    "COMMENT ON COLUMN t.b IS 'it''s \\ b';"
    "CREATE INDEX \"B idx\" ON t (\"e E\" DESC, b) WITH (fillfactor = 70, deduplicate_items = off);"
    "CREATE INDEX ordered ON t (b DESC NULLS LAST, id ASC NULLS FIRST);"
    "CREATE UNIQUE INDEX one ON t (b); COMMENT ON INDEX one IS 'the one';";

TEST_F(CarriedTest, TheLedgerIsReadAsItWasStored) {
  prepare(kEverything, column_spec("b", "bigint"));
  EXPECT_EQ(ledger_.carried.size(), 6u);
  EXPECT_EQ(load_ledger(door_, fixture_->migration().row.id).carried, ledger_.carried);
}

TEST_F(CarriedTest, OurOwnObjectsAreNoDependents) {
  prepare(kEverything, column_spec("b", "bigint"));
  EXPECT_TRUE(ledger_changes(ledger_, inventoried()).empty());
}

TEST_F(CarriedTest, TheNewColumnLooksAsTheOldOneDid) {
  prepare(kEverything, column_spec("b", "bigint"));
  auto before = catalog("b");
  switch_over();
  for (auto& row : before) {
    if (row[0] == "column") row[2] = "t | '7'::bigint | it's \\ b";
  }
  EXPECT_EQ(catalog("b"), before);
  EXPECT_EQ(value("SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 't'::regclass"
                  " AND attname = 'b'"),
            "bigint");
}

TEST_F(CarriedTest, NothingIsLeftOnTheOldColumnButItsIndexes) {
  prepare(kEverything, column_spec("b", "bigint"));
  switch_over();
  const auto old = catalog(fixture_->migration().names.old_column);
  EXPECT_EQ(std::ranges::count(old, SqlValue("column"), [](const auto& row) { return row[0]; }), 1);
  for (const auto& row : old) {
    if (row[0] == "column") {
      EXPECT_EQ(row[2], "f");
    }
  }
}

TEST_F(CarriedTest, TheSwitchReadsNoRowForNotNull) {
  prepare(kEverything, column_spec("b", "bigint"));
  door_.exec("SET client_min_messages = debug1");
  door_.take_notices();
  switch_over();
  const auto notices = door_.take_notices();
  EXPECT_TRUE(std::ranges::any_of(notices, [](const std::string& notice) {
    return notice.find("sufficient to prove that it does not contain nulls") != std::string::npos;
  }));
  EXPECT_TRUE(std::ranges::none_of(notices, [](const std::string& notice) {
    return notice.find("verifying table") != std::string::npos;
  }));
}

TEST_F(CarriedTest, SwitchAndSwitchBackLeaveTheCatalogAsItWas) {
  prepare(kEverything, column_spec("b", "bigint"));
  const auto before = catalog();
  switch_over();
  EXPECT_NE(catalog(), before);
  settle();
  switch_back();
  settle();
  EXPECT_EQ(catalog(), before);
  switch_over();
  switch_back();
  settle();
  EXPECT_EQ(catalog(), before);
}

TEST_F(CarriedTest, SoDoesAnExpressionThatMayFail) {
  prepare(
      "CREATE TABLE t (id int PRIMARY KEY, b text NOT NULL DEFAULT '7'); INSERT INTO t VALUES (1, '1');"
      "CREATE INDEX i ON t (b)",
      column_spec("b", "integer", "b::integer"));
  const auto before = catalog();
  switch_over();
  EXPECT_EQ(value("SELECT convalidated FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'"),
            "f");
  settle();
  EXPECT_EQ(catalog("b")[0][2], "t | 7");
  switch_back();
  settle();
  EXPECT_EQ(catalog(), before);
}

TEST_F(CarriedTest, ASwitchBackBeforeNotNullSettledLeavesNothingBehind) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b text NOT NULL)", column_spec("b", "integer", "b::integer"));
  const auto before = catalog();
  switch_over();
  switch_back();
  settle();
  EXPECT_EQ(catalog(), before);
}

TEST_F(CarriedTest, ChangesSinceThePlanAreNamed) {
  prepare(kEverything, column_spec("b", "bigint"));
  sql("CREATE INDEX later ON t (b); DROP INDEX one; ALTER TABLE t ALTER b SET DEFAULT 8");
  std::vector<std::string> changed;
  for (const auto& finding : ledger_changes(ledger_, inventoried())) changed.push_back(finding.object);
  std::ranges::sort(changed);
  EXPECT_EQ(changed, (std::vector<std::string>{"b", "later", "one"}));
}

TEST_F(CarriedTest, TheMarkTellsForeignChangesFromOurs) {
  fixture_.emplace(door_, kEverything, column_spec("b", "bigint"));
  const auto read = [&] {
    return text_of(door_.exec("SELECT " + dependents_mark_sql(fixture_->migration())).one("mark")[0]);
  };
  auto mark = read();
  ledger_ = inventoried();
  fixture_->install_capture();
  fixture_->fill_shadow();
  TwinBuilder builder(fixture_->migration(), fixture_->table(), ledger_);
  while (!builder.step(door_, milliseconds(1000))) {
  }
  EXPECT_EQ(read(), mark);
  for (const std::string change :
       {"CREATE INDEX later ON t (b)", "ALTER TABLE t ALTER b SET DEFAULT 8",
        "COMMENT ON COLUMN t.b IS 'other'", "ALTER TABLE t ADD CHECK (b > 0) NOT VALID",
        "CREATE VIEW v AS SELECT b FROM t", "GRANT UPDATE (b) ON t TO PUBLIC",
        "ALTER INDEX one RENAME TO two", "ALTER TABLE t ALTER b DROP NOT NULL",
        "ALTER INDEX ordered SET (fillfactor = 50)", "CREATE POLICY p ON t USING (b > 0)",
        "ALTER POLICY p ON t USING (b > 1)", "CREATE STATISTICS s ON id, b FROM t"}) {
    sql(change);
    const auto now = read();
    EXPECT_NE(now, mark) << change;
    mark = now;
  }
}

TEST_F(CarriedTest, TheMarkOfTheViewsTellsAnyChangeOfThem) {
  fixture_.emplace(door_, kEverything + "CREATE VIEW v AS SELECT b FROM t; CREATE VIEW w AS SELECT b FROM v;",
                   column_spec("b", "bigint"));
  const auto read = [&] {
    return text_of(door_.exec("SELECT " + views_mark_sql(fixture_->migration())).one("mark")[0]);
  };
  auto mark = read();
  for (const std::string change :
       {"CREATE OR REPLACE VIEW w AS SELECT b FROM v WHERE b > 0", "GRANT SELECT ON w TO PUBLIC",
        "GRANT SELECT (b) ON w TO PUBLIC", "COMMENT ON VIEW v IS 'v'", "COMMENT ON COLUMN w.b IS 'b'",
        "ALTER VIEW v SET (security_barrier = true)", "ALTER VIEW v ALTER b SET DEFAULT 1",
        "CREATE VIEW x AS SELECT * FROM w"}) {
    sql(change);
    const auto now = read();
    EXPECT_NE(now, mark) << change;
    mark = now;
  }
}

}  // namespace
}  // namespace crossfade::test

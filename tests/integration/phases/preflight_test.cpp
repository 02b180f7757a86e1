// Preflight: each fact has a twin where nothing is wrong, and names its object.
#include "crossfade/phases/preflight.hpp"

#include <algorithm>
#include <chrono>

#include "crossfade/core/state_schema.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/transform.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"

namespace crossfade::test {
namespace {

const std::string kTable = "CREATE TABLE t (id int PRIMARY KEY, b int, e int);";
const std::string kFunction =
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';";

using Objects = std::vector<std::string>;

class PreflightTest : public DatabaseTest {
 protected:
  PreflightTest() {
    spec_.name = "m";
    spec_.table = {"public", "t"};
    ColumnSpec column;
    column.name = "b";
    column.type = "bigint";
    spec_.columns = {column};
  }

  // As the owner of the database, unless another dsn is given.
  std::vector<Finding> run(const std::string& as = {}) {
    auto door = SqlSession::connect({as.empty() ? dsn() : as, "test", std::chrono::milliseconds(10000)});
    if (as.empty()) install_schema(door);
    Transaction transaction(door);
    const auto table = read_table(door, spec_.table);
    if (!table) throw std::runtime_error("there is no table");
    const GeneratedNames names(id_);
    std::vector<Finding> refused;
    std::optional<ColumnBinding> bound;
    std::vector<int> excluded;
    if (const auto* column = table->column(spec_.columns.front().name)) excluded = {column->attnum};
    if (as.empty() && bind_) bound = bind_column(door, *table, spec_.columns.front(), names, refused);
    const bool usable = bound && unaccepted(refused, {}).empty();
    auto findings = preflight(door, spec_, *table, choose_key(door, table->oid, excluded),
                              usable ? &*bound : nullptr, names, phase_);
    for (const auto& finding : findings) {
      EXPECT_TRUE(find_finding(finding.id)) << finding.id;
      EXPECT_TRUE(finding.message.ends_with(".")) << finding.message;
      EXPECT_FALSE(finding.hint.empty()) << finding.message;
      EXPECT_FALSE(finding.object.empty()) << finding.message;
    }
    return findings;
  }

  static Objects objects(const std::vector<Finding>& findings, std::string_view id,
                         std::optional<Severity> severity = std::nullopt) {
    Objects found;
    for (const auto& finding : findings) {
      if (finding.id == id && (!severity || finding.severity == *severity)) found.push_back(finding.object);
    }
    return found;
  }
  Objects refused(std::string_view id) { return objects(run(), id, Severity::refuse); }
  Objects warned(std::string_view id) { return objects(run(), id, Severity::warn); }

  std::string as(const std::string& role) { return server().dsn(database().name(), role); }

  Spec spec_;
  MigrationId id_{"0123abcd-4567-4890-8abc-0123456789ab"};
  Phase phase_ = Phase::planned;
  bool bind_ = true;
};

TEST_F(PreflightTest, APlainTableIsNotRefused) {
  sql(kTable);
  const auto findings = run();
  EXPECT_TRUE(unaccepted(findings, {}).empty()) << unaccepted(findings, {}).front().message;
  EXPECT_EQ(objects(findings, "column_order", Severity::info), Objects{"public.t"});
  EXPECT_EQ(objects(findings, "star_readers", Severity::warn), Objects{"public.t"});
  EXPECT_EQ(objects(findings, "isolation_conflict", Severity::info), Objects{"public.t"});
  EXPECT_EQ(objects(findings, "statistics_hidden", Severity::info), Objects{"app_owner"});
  for (const auto* silent : {"deadlock_timeout_short", "standby_snapshots_unseen", "published_table",
                             "foreign_dependents", "plpgsql_cached_types", "user_trigger_fires"}) {
    EXPECT_EQ(objects(findings, silent), Objects{}) << silent;
  }
}

// --- the table
// ---------------------------------------------------------------------------------------------------

struct TableCase {
  std::string name, ddl, id, object = "public.t";
};
void PrintTo(const TableCase& c, std::ostream* out) { *out << c.name; }

class PreflightTableTest : public PreflightTest, public ::testing::WithParamInterface<TableCase> {};

TEST_P(PreflightTableTest, IsRefused) {
  sql(GetParam().ddl);
  EXPECT_EQ(refused(GetParam().id), Objects{GetParam().object});
}

const std::vector<TableCase> kTables{
    {"View", "CREATE VIEW t AS SELECT 1 AS id, 2 AS b", "relation_kind"},
    {"MaterialisedView", "CREATE MATERIALIZED VIEW t AS SELECT 1 AS id, 2 AS b", "relation_kind"},
    {"PartitionedWithoutAKeyOfTheWhole",
     "CREATE TABLE t (id int, b int) PARTITION BY RANGE (id);"
     "CREATE TABLE t_0 PARTITION OF t (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (9)",
     "no_usable_key"},
    {"UnloggedPartition",
     "CREATE TABLE t (id int PRIMARY KEY, b int) PARTITION BY RANGE (id);"
     "CREATE UNLOGGED TABLE t_0 PARTITION OF t FOR VALUES FROM (0) TO (9)",
     "unlogged_table", "public.t_0"},
    {"RuleOfAPartition",
     "CREATE TABLE t (id int PRIMARY KEY, b int) PARTITION BY RANGE (id);"
     "CREATE TABLE t_0 PARTITION OF t FOR VALUES FROM (0) TO (9);"
     "CREATE RULE r AS ON UPDATE TO t_0 DO INSTEAD NOTHING",
     "update_rule", "public.t_0"},
    {"LaterTriggerOfAPartition",
     "CREATE TABLE t (id int PRIMARY KEY, b int) PARTITION BY RANGE (id);"
     "CREATE TABLE t_0 PARTITION OF t FOR VALUES FROM (0) TO (9);" +
         kFunction + "CREATE TRIGGER \"~~~~\" BEFORE INSERT ON t_0 FOR EACH ROW EXECUTE FUNCTION f()",
     "trigger_sorts_later", "\"~~~~\""},
    {"Partition",
     "CREATE TABLE p (id int PRIMARY KEY, b int) PARTITION BY RANGE (id);"
     "CREATE TABLE t PARTITION OF p FOR VALUES FROM (0) TO (9)",
     "relation_kind"},
    {"Child", "CREATE TABLE p (b int); CREATE TABLE t (id int PRIMARY KEY) INHERITS (p)", "relation_kind"},
    {"Parent", kTable + "CREATE TABLE c () INHERITS (t)", "relation_kind"},
    {"Typed", "CREATE TYPE y AS (id int, b int); CREATE TABLE t OF y (PRIMARY KEY (id))", "relation_kind"},
    {"Unlogged", "CREATE UNLOGGED TABLE t (id int PRIMARY KEY, b int)", "unlogged_table"},
    {"NoKey", "CREATE TABLE t (id int, b int); CREATE UNIQUE INDEX ON t (id)", "no_usable_key"},
    {"TheKeyItself", "CREATE TABLE t (b int PRIMARY KEY)", "not_supported_yet", "public.t.b"},
    {"Generated", "CREATE TABLE t (id int PRIMARY KEY, b int GENERATED ALWAYS AS (id + 1) STORED)",
     "generated_input", "public.t.b"},
    {"InsertRule",
     kTable + "CREATE TABLE log (b int);"
              "CREATE RULE r AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (1)",
     "update_rule", "r on public.t"},
    {"UpdateRule", kTable + "CREATE RULE r AS ON UPDATE TO t WHERE OLD.id < 0 DO INSTEAD NOTHING",
     "update_rule", "r on public.t"},
    {"LaterTrigger",
     kTable + kFunction + "CREATE TRIGGER \"~~~~\" BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
     "trigger_sorts_later", "\"~~~~\""},
    {"PublishedWithoutIdentity",
     kTable + "ALTER TABLE t REPLICA IDENTITY NOTHING; CREATE PUBLICATION p FOR TABLE t", "published_table",
     "p"},
};
INSTANTIATE_TEST_SUITE_P(All, PreflightTableTest, ::testing::ValuesIn(kTables),
                         [](const auto& tested) { return tested.param.name; });

TEST_F(PreflightTest, SystemTablesAreRefused) {
  spec_.table = {"pg_catalog", "pg_class"};
  spec_.columns[0].name = "relpages";
  EXPECT_EQ(refused("relation_kind"), Objects{"pg_catalog.pg_class"});
}

TEST_F(PreflightTest, ADisabledRuleIsNone) {
  sql(kTable + "CREATE RULE r AS ON UPDATE TO t DO INSTEAD NOTHING; ALTER TABLE t DISABLE RULE r");
  EXPECT_EQ(refused("update_rule"), Objects{});
}

TEST_F(PreflightTest, AKeyBesideTheColumnsOwnIsEnough) {
  sql("CREATE TABLE t (b int PRIMARY KEY, id int NOT NULL UNIQUE)");
  EXPECT_EQ(refused("not_supported_yet"), Objects{});
  EXPECT_EQ(refused("no_usable_key"), Objects{});
}

TEST_F(PreflightTest, GeneratedNamesAreFreeUntilTheyAreTaken) {
  const GeneratedNames names(id_);
  sql(kTable + kFunction + "ALTER TABLE t ADD " + names.shadow_column("b") + " int; CREATE INDEX " +
      names.twin("i") + " ON t (e); CREATE TABLE " + names.archive_table("t") +
      " (a int); CREATE TRIGGER \"" + names.trigger("insert") +
      "\" BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "ALTER TABLE t ADD CONSTRAINT " +
      names.not_null_check("b") + " CHECK (e > 0)");
  EXPECT_EQ(refused("name_in_use").size(), 5u);
  phase_ = Phase::dual_write;
  EXPECT_EQ(refused("name_in_use"), Objects{});
}

// --- the new type
// ------------------------------------------------------------------------------------------------

TEST_F(PreflightTest, ADomainWithoutConstraintsIsAType) {
  sql(kTable + "CREATE DOMAIN d AS bigint");
  spec_.columns[0].type = "public.d";
  EXPECT_EQ(refused("not_supported_yet"), Objects{});
}

TEST_F(PreflightTest, DomainsThatWouldRewriteTheTableAreRefused) {
  sql(kTable +
      "CREATE DOMAIN d AS bigint CHECK (VALUE > 0); CREATE DOMAIN over_d AS d;"
      "CREATE DOMAIN five AS bigint DEFAULT 5");
  for (const std::string type : {"public.d", "public.over_d", "public.five"}) {
    spec_.columns[0].type = type;
    EXPECT_EQ(refused("not_supported_yet"), Objects{type});
  }
}

TEST_F(PreflightTest, ACompositeTypeIsRefused) {
  sql(kTable + "CREATE TYPE y AS (a int)");
  spec_.columns[0].type = "public.y";
  spec_.columns[0].forward = "ROW(b)::public.y";
  EXPECT_EQ(refused("not_supported_yet"), Objects{"public.y"});
}

// --- what this version cannot do
// ---------------------------------------------------------------------------------

TEST_F(PreflightTest, EachUnsupportedWishIsNamed) {
  sql(kTable);
  const auto wish = [&](const std::string& object, const std::function<void(Spec&)>& make) {
    const Spec before = spec_;
    make(spec_);
    EXPECT_EQ(refused("not_supported_yet"), Objects{object});
    spec_ = before;
  };
  wish("[[column]] into", [](Spec& spec) { spec.columns[0].into = "n"; });
  wish("[[column]]", [](Spec& spec) { spec.columns.push_back(spec.columns[0]); });
  wish("[shadow] kind", [](Spec& spec) { spec.shadow = ShadowKind::table; });
  EXPECT_EQ(refused("not_supported_yet"), Objects{});
}

TEST_F(PreflightTest, APaceThatTheRoleMayNotReadIsRefusedWithTheGrant) {
  sql(kTable);
  const auto find = [&](const std::function<void(Tuning&)>& make) {
    spec_.tuning = {};
    make(spec_.tuning);
    return refused("statistics_hidden");
  };
  EXPECT_EQ(find([](Tuning& t) { t.max_replication_lag = std::chrono::seconds(10); }), Objects{"app_owner"});
  EXPECT_EQ(find([](Tuning& t) { t.max_replication_bytes = 1 << 20; }), Objects{"app_owner"});
  EXPECT_EQ(find([](Tuning& t) { t.max_xmin_age = 1000; }), Objects{"app_owner"});
  EXPECT_EQ(find([](Tuning& t) { t.probe = "SELECT 1"; }), Objects{}) << "every role may read that";
  super_sql("GRANT pg_read_all_stats TO app_owner");
  EXPECT_EQ(find([](Tuning& t) { t.max_replication_lag = std::chrono::seconds(10); }), Objects{});
  super_sql("REVOKE pg_read_all_stats FROM app_owner");
}

// --- privileges
// --------------------------------------------------------------------------------------------------

class PreflightPrivilegeTest : public PreflightTest {
 protected:
  PreflightPrivilegeTest() {
    super_sql("DROP ROLE IF EXISTS app_other; CREATE ROLE app_other LOGIN");
    super_sql("GRANT USAGE ON SCHEMA public TO app_other");
  }
  std::vector<Finding> run_as_other() { return run(as("app_other")); }
};

TEST_F(PreflightPrivilegeTest, WhoDoesNotOwnTheTableIsTold) {
  sql(kTable);
  const auto findings = run_as_other();
  EXPECT_EQ(objects(findings, "missing_privilege"), (Objects{"public.t", "public.t"}));
  const auto found = std::ranges::find(findings, "missing_privilege", &Finding::id);
  EXPECT_NE(found->message.find("app_owner"), std::string::npos);
  EXPECT_NE(found->hint.find("GRANT app_owner TO app_other"), std::string::npos);
}

TEST_F(PreflightPrivilegeTest, AMemberOfTheOwnerMayDoWhatTheOwnerMay) {
  sql(kTable);
  super_sql("GRANT app_owner TO app_other");
  EXPECT_EQ(objects(run_as_other(), "missing_privilege"), Objects{});
  super_sql("REVOKE app_owner FROM app_other");
}

TEST_F(PreflightPrivilegeTest, CreateOnTheSchemaIsNeededWhereTheColumnHasAnIndex) {
  super_sql(
      "CREATE SCHEMA s; GRANT USAGE ON SCHEMA s TO app_owner; CREATE TABLE s.t (id int PRIMARY KEY, b int);"
      "ALTER TABLE s.t OWNER TO app_owner");
  spec_.table.schema = "s";
  EXPECT_EQ(refused("missing_privilege"), Objects{});
  super_sql("CREATE INDEX ON s.t (b)");
  EXPECT_EQ(refused("missing_privilege"), Objects{"s"});
}

TEST_F(PreflightPrivilegeTest, TemporaryTablesAreNeeded) {
  sql(kTable);
  super_sql("REVOKE TEMPORARY ON DATABASE " + database().name() + " FROM PUBLIC, app_owner");
  bind_ = false;
  const auto findings = run();
  EXPECT_EQ(objects(findings, "missing_privilege"), Objects{database().name()});
  EXPECT_EQ(std::ranges::find(findings, "missing_privilege", &Finding::id)->hint,
            "GRANT TEMPORARY ON DATABASE " + database().name() + " TO app_owner;");
}

TEST_F(PreflightPrivilegeTest, AnOwnerMayHaveRevokedFromHimself) {
  sql(kTable + "REVOKE UPDATE ON t FROM app_owner");
  EXPECT_EQ(refused("missing_privilege"), Objects{"public.t"});
}

TEST_F(PreflightPrivilegeTest, RowSecurityBindsAnOwnerOnlyWhenForced) {
  sql(kTable + "CREATE POLICY p ON t USING (id > 0); ALTER TABLE t ENABLE ROW LEVEL SECURITY");
  EXPECT_EQ(refused("row_security"), Objects{});
  sql("ALTER TABLE t FORCE ROW LEVEL SECURITY");
  EXPECT_EQ(refused("row_security"), Objects{"public.t"});
  super_sql("ALTER ROLE app_owner BYPASSRLS");
  EXPECT_EQ(refused("row_security"), Objects{});
  super_sql("ALTER ROLE app_owner NOBYPASSRLS");
}

TEST_F(PreflightPrivilegeTest, ReadingStatisticsMakesBlockersVisible) {
  sql(kTable);
  super_sql("GRANT pg_read_all_stats TO app_owner");
  EXPECT_EQ(objects(run(), "statistics_hidden"), Objects{});
  super_sql("REVOKE pg_read_all_stats FROM app_owner");
}

// --- triggers
// ----------------------------------------------------------------------------------------------------

class PreflightTriggerTest : public PreflightTest {
 protected:
  void with(const std::string& trigger) { sql(kTable + kFunction + trigger); }
};

TEST_F(PreflightTriggerTest, TheSweepFiresThemForARoleThatCannotPassBy) {
  with(
      "CREATE TRIGGER \"Audit it\" AFTER INSERT OR UPDATE ON t FOR EACH ROW WHEN (NEW.e > 0) EXECUTE "
      "FUNCTION f()");
  const auto findings = run();
  EXPECT_EQ(objects(findings, "user_trigger_fires", Severity::refuse), Objects{"\"Audit it\""});
  const auto found = std::ranges::find(findings, "user_trigger_fires", &Finding::id);
  ASSERT_NE(found, findings.end());
  EXPECT_NE(
      found->hint.find("(its condition) AND coalesce(current_setting('crossfade.sweep', true), '') = ''"),
      std::string::npos);
  EXPECT_TRUE(unaccepted({*found}, {{"user_trigger_fires", "idempotent"}}).empty());
}

TEST_F(PreflightTriggerTest, StatementTriggersFireToo) {
  with("CREATE TRIGGER a AFTER UPDATE ON t EXECUTE FUNCTION f()");
  EXPECT_EQ(refused("user_trigger_fires"), Objects{"a"});
}

TEST_F(PreflightTriggerTest, ARoleThatMaySetTheReplicationRolePassesBy) {
  with(
      "CREATE TRIGGER a AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER always AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER replica AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "ALTER TABLE t ENABLE ALWAYS TRIGGER always; ALTER TABLE t ENABLE REPLICA TRIGGER replica");
  // Before 15 no role but a superuser can be given that.
  if (session().identity().version_num < 150000) return;
  super_sql("GRANT SET ON PARAMETER session_replication_role TO app_owner");
  const auto findings = run();
  super_sql("REVOKE SET ON PARAMETER session_replication_role FROM app_owner");
  EXPECT_EQ(objects(findings, "user_trigger_fires", Severity::warn), Objects{"a"});
  EXPECT_EQ(objects(findings, "user_trigger_fires", Severity::refuse), (Objects{"always", "replica"}));
}

TEST_F(PreflightTriggerTest, WhatTheSweepDoesNotFireIsNotNamed) {
  with(
      "CREATE TRIGGER inserts AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER listed AFTER UPDATE OF e ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER disabled AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "ALTER TABLE t DISABLE TRIGGER disabled;"
      "CREATE TRIGGER exempting AFTER UPDATE ON t FOR EACH ROW WHEN (coalesce("
      "current_setting('crossfade.sweep', true), '') = '') EXECUTE FUNCTION f();"
      "CREATE TABLE c (id int REFERENCES t)");
  EXPECT_EQ(objects(run(), "user_trigger_fires"), Objects{});
}

TEST_F(PreflightTriggerTest, TheHintsConditionExemptsTheSweepAlone) {
  sql(kTable +
      "CREATE TABLE log (id int); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS"
      " 'BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END';"
      "CREATE TRIGGER a AFTER UPDATE ON t FOR EACH ROW"
      " WHEN (coalesce(current_setting('crossfade.sweep', true), '') = '') EXECUTE FUNCTION f();"
      "INSERT INTO t VALUES (1, 1)");
  auto writer = session();
  writer.script("BEGIN; SET LOCAL crossfade.sweep = 'mark'; UPDATE t SET b = 2; COMMIT");
  EXPECT_EQ(value("SELECT count(*) FROM log"), "0");
  writer.script("UPDATE t SET b = 3");
  EXPECT_EQ(value("SELECT count(*) FROM log"), "1");
}

TEST_F(PreflightTriggerTest, OrderIsThatOfBytes) {
  with(
      "CREATE TRIGGER zzz BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER \"\xC3\x9F\" BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER \"\xC3\xA9\" AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE TRIGGER \"\xC3\xB8\" BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()");
  EXPECT_EQ(refused("trigger_sorts_later"), Objects{"\"\xC3\x9F\""});
}

// --- what the application notices
// --------------------------------------------------------------------------------

TEST_F(PreflightTest, EveryPublicationThatSendsTheTableIsNamed) {
  sql(kTable +
      "CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION direct FOR TABLE t;"
      "CREATE PUBLICATION elsewhere FOR TABLE other");
  super_sql("CREATE PUBLICATION everything FOR ALL TABLES");
  Objects expected{"direct", "everything"};
  if (session().identity().version_num >= 150000) {
    super_sql("CREATE PUBLICATION schema_wide FOR TABLES IN SCHEMA public");
    expected.push_back("schema_wide");
  }
  EXPECT_EQ(warned("published_table"), expected);
}

TEST_F(PreflightTest, ReadersOfWholeRowsAreNamed) {
  sql(kTable + kFunction +
      "CREATE VIEW whole AS SELECT t AS r FROM t; CREATE VIEW named AS SELECT id FROM t;"
      "CREATE FUNCTION of_row(t) RETURNS int LANGUAGE sql AS 'SELECT 1';"
      "CREATE FUNCTION star() RETURNS int LANGUAGE plpgsql AS 'DECLARE r t%ROWTYPE; BEGIN RETURN 1; END';"
      "CREATE FUNCTION selects() RETURNS SETOF record LANGUAGE sql AS 'SELECT * FROM t';"
      "CREATE FUNCTION counts() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM t';"
      "CREATE TRIGGER g AFTER UPDATE ON t FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION "
      "f()");
  auto found = warned("star_readers");
  for (const std::string reader :
       {"public.whole", "public.of_row(public.t)", "public.star()", "public.selects()", "g on public.t"}) {
    EXPECT_NE(std::ranges::find(found, reader), found.end()) << reader;
  }
  for (const std::string other : {"public.named", "public.counts()", "public.f()"}) {
    EXPECT_EQ(std::ranges::find(found, other), found.end()) << other;
  }
}

TEST_F(PreflightTest, FunctionsThatRememberTheTypeAreNamedWhenItChanges) {
  sql(kTable +
      "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.b := NEW.b + 1; RETURN NEW; END';"
      "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();"
      "CREATE FUNCTION other() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'");
  EXPECT_EQ(warned("plpgsql_cached_types"), Objects{}) << "its trigger is made again";
  super_sql("CREATE FUNCTION theirs() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN max(b) FROM t; END'");
  sql("CREATE FUNCTION ours() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN max(b) FROM t; END'");
  EXPECT_EQ(warned("plpgsql_cached_types"), Objects{"public.theirs()"});
  spec_.columns[0].type = "integer";
  spec_.columns[0].forward = "b + 1";
  EXPECT_EQ(warned("plpgsql_cached_types"), Objects{});
}

TEST_F(PreflightTest, ViewsOfOtherOwnersAreNamed) {
  sql(kTable + "CREATE VIEW mine AS SELECT id FROM t");
  super_sql("CREATE VIEW theirs AS SELECT id FROM t");
  EXPECT_EQ(warned("foreign_dependents"), Objects{"public.theirs"});
}

// --- the server
// --------------------------------------------------------------------------------------------------

// A receiver of WAL without a slot: from the primary it looks as a standby without feedback does.
TEST_F(PreflightTest, AStandbyThatSendsNoFeedbackIsTold) {
  sql(kTable);
  ApplicationSession receiver(superuser_dsn() + " replication=database");
  receiver.send("START_REPLICATION PHYSICAL " + super_value("SELECT pg_current_wal_flush_lsn()"));
  wait_until_true("SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'");
  EXPECT_EQ(warned("standby_snapshots_unseen").size(), 1u);
}

TEST_F(PreflightTest, ATableOfAnotherAccessMethodIsRefused) {
  super_sql("CREATE ACCESS METHOD columns TYPE TABLE HANDLER heap_tableam_handler");
  sql("CREATE TABLE t (id int PRIMARY KEY, b int) USING columns");
  EXPECT_EQ(refused("relation_kind"), Objects{"public.t"});
}

TEST_F(PreflightTest, AShortDeadlockTimeoutIsTold) {
  sql(kTable);
  super_sql("ALTER DATABASE " + database().name() + " SET deadlock_timeout = '399ms'");
  EXPECT_EQ(warned("deadlock_timeout_short"), Objects{"deadlock_timeout"});
  super_sql("ALTER DATABASE " + database().name() + " SET deadlock_timeout = '400ms'");
  EXPECT_EQ(warned("deadlock_timeout_short"), Objects{});
}

}  // namespace
}  // namespace crossfade::test

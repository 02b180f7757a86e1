// Group D: triggers, sessions, the catalog.
#include "case_test.hpp"

namespace crossfade::test {
namespace {

class TriggerCases : public CaseTest {
 protected:
  // With the capture of a settled backfill.
  void capture(const std::string& text = spec()) {
    start(text);
    advance_to(Phase::backfill);
  }
  // Of the capture's function, by one statement.
  static void expect_calls(ApplicationSession& writer, const std::string& statement, int times) {
    const auto calls = [&] {
      return std::stoi(
          writer.value("SELECT coalesce(sum(pg_stat_get_xact_function_calls(oid)), 0) FROM pg_proc WHERE"
                       " pronamespace = 'crossfade'::regnamespace AND prorettype = 'trigger'::regtype"));
    };
    writer.run("BEGIN");
    const int before = calls();
    writer.run(statement);
    EXPECT_EQ(calls() - before, times) << statement;
    writer.run("COMMIT");
  }
};

// 63: https://github.com/bucardo/bucardo/issues/116: what a replication worker or a loader writes fires no
// trigger.
TEST_F(TriggerCases, WritesOfAReplicaRoleAreCaptured) {
  make_table();
  capture();
  ApplicationSession loader(superuser_dsn(), "SET session_replication_role = replica");
  loader.run("UPDATE t SET b = 6 WHERE id = 1; INSERT INTO t VALUES (2000, 8)");
  EXPECT_EQ(shadow_of("id = 1"), "6");
  EXPECT_EQ(shadow_of("id = 2000"), "8");
  advance_to(Phase::switched);
  loader.run("UPDATE t SET b = 7 WHERE id = 1");
  EXPECT_EQ(shadow_of("id = 1"), "7");
}

constexpr const char* kAbsolute =
    "CREATE FUNCTION absolute() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.b := abs(NEW.b); RETURN NEW; "
    "END';"
    "CREATE TRIGGER {} BEFORE INSERT OR UPDATE ON t FOR EACH ROW WHEN "
    "(coalesce(current_setting('crossfade.sweep', true),"
    " '') = '') EXECUTE FUNCTION absolute()";

// 66: https://github.com/xataio/pgroll/issues/352: a trigger of the application changes the value after it
// was read.
TEST_F(TriggerCases, ATriggerOfTheApplicationChangesTheValueBeforeItIsCaptured) {
  make_table();
  sql(fmt::format(fmt::runtime(kAbsolute), "zzz"));
  capture();
  sql("INSERT INTO t VALUES (2000, -5); UPDATE t SET b = -6 WHERE id = 1");
  EXPECT_EQ(shadow_of("id = 2000"), "5");
  EXPECT_EQ(shadow_of("id = 1"), "6");
  advance_to(Phase::switched);
  sql("UPDATE t SET b = -3000000000 WHERE id = 1; UPDATE t SET b = -7 WHERE id = 2");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 1"), "3000000000");
  EXPECT_EQ(shadow_of("id = 2"), "7");
}

TEST_F(TriggerCases, ATriggerThatWouldFireAfterTheCaptureIsRefused) {
  make_table();
  sql(fmt::format(fmt::runtime(kAbsolute), "\"~~~~~~~~~~\""));
  std::string message;
  EXPECT_EQ(code_of([&] { start(); }, &message), ErrorCode::finding_refused);
  EXPECT_NE(message.find("trigger_sorts_later"), std::string::npos) << message;
}

TEST_F(TriggerCases, ATriggerThatIsAddedMeanwhileStopsTheSwitch) {
  make_table();
  capture();
  sql(fmt::format(fmt::runtime(kAbsolute), "\"~~~~~~~~~~\""));
  EXPECT_EQ(code_of([&] { migrator().next("m", {.until = Phase::switched, .confirm = {}, .accept = {}}); }),
            ErrorCode::fingerprint_changed);
  EXPECT_EQ(migrator().status("m").status, Status::failed);
}

// 68: a guard on pg_trigger_depth() misses what other triggers write.
TEST_F(TriggerCases, WritesFromATriggerOfAnotherTableAreCaptured) {
  make_table();
  sql("CREATE TABLE orders (item int);"
      "CREATE FUNCTION order_item() RETURNS trigger LANGUAGE plpgsql AS"
      " 'BEGIN UPDATE t SET b = 777 WHERE id = NEW.item; RETURN NEW; END';"
      "CREATE TRIGGER o AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_item()");
  capture();
  sql("INSERT INTO orders VALUES (4)");
  EXPECT_EQ(shadow_of("id = 4"), "777");
}

// 70: https://github.com/boardsesh/boardsesh/issues/4699: pg_restore and the apply worker have no
// search_path.
TEST_F(TriggerCases, AnEmptySearchPathIsEnough) {
  make_table();
  capture(spec("b", "numeric(12,2)"));
  ApplicationSession restored(dsn(), "SET search_path = ''");
  restored.run("INSERT INTO public.t VALUES (2000, 8); UPDATE public.t SET b = 9 WHERE id = 1");
  EXPECT_EQ(shadow_of("id = 2000"), "8.00");
  advance_to(Phase::switched);
  restored.run(
      "INSERT INTO public.t (id, b) VALUES (2001, 8.5); UPDATE public.t SET b = 9999999999 WHERE id = 1");
  EXPECT_EQ(shadow_of("id = 2001"), "9");
  EXPECT_EQ(shadow_of("id = 1"), "NULL");
}

// 71: pg_repack#168, pg_squeeze 1.9.2: a low role's function on the path is run with the owner's rights.
TEST_F(TriggerCases, AFunctionOnTheWritersPathIsNeverTakenForPostgresqlsOwn) {
  make_table();
  super_sql("CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO app_owner");
  const auto evil = [&](const std::string& signature, const std::string& result) {
    sql(
        fmt::format("CREATE FUNCTION evil.{} RETURNS {} LANGUAGE plpgsql AS"
                    " 'BEGIN RAISE EXCEPTION ''taken''; END'",
                    signature, result));
  };
  evil("abs(int)", "int");
  evil("current_setting(text, boolean)", "text");
  evil("record_image_ne(record, record)", "boolean");
  evil("less(int, int)", "boolean");
  evil("less(bigint, bigint)", "boolean");
  evil("differs(record, record)", "boolean");
  evil("same(text, text)", "boolean");
  sql("CREATE OPERATOR evil.< (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.less);"
      "CREATE OPERATOR evil.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.less);"
      "CREATE OPERATOR evil.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.less);"
      "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.same);"
      "CREATE OPERATOR evil.*<> (LEFTARG = record, RIGHTARG = record, FUNCTION = evil.differs)");
  start(spec("b", "bigint", "forward = \"abs(b)\"\nbackward = \"b::int\""));
  advance_to(Phase::backfill);
  ApplicationSession writer(dsn(), "SET search_path = evil, public, pg_catalog");
  const auto write = [&](const std::string& number) {
    writer.run("INSERT INTO t VALUES (" + number +
               ", -5); UPDATE t SET b = -6 WHERE id OPERATOR(pg_catalog.=) 1");
  };
  write("2000");
  EXPECT_EQ(shadow_of("id = 1"), "6");
  advance_to(Phase::switched);
  write("2001");
  writer.run("UPDATE t SET b = 3000000000 WHERE id OPERATOR(pg_catalog.=) 2");
  EXPECT_EQ(shadow_of("id = 2001"), "-5");
  EXPECT_EQ(shadow_of("id = 2"), "NULL");
}

constexpr const char* kVersion =
    "ALTER TABLE t ADD version int NOT NULL DEFAULT 1;"
    "CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN NEW.version := OLD.version + 1; RETURN NEW; END';"
    "CREATE TRIGGER bump BEFORE UPDATE ON t FOR EACH ROW {} EXECUTE FUNCTION bump()";

// 74: https://github.com/margince/margince/pull/3611: the copy bumps versions and fires the audit.
TEST_F(TriggerCases, TriggersThatTheSweepWouldFireAreNamedAndRefused) {
  make_table();
  sql(fmt::format(fmt::runtime(kVersion), ""));
  std::string message;
  EXPECT_EQ(code_of([&] { start(); }, &message), ErrorCode::finding_refused);
  EXPECT_NE(message.find("user_trigger_fires"), std::string::npos) << message;
  EXPECT_NE(message.find("bump"), std::string::npos) << message;
}

TEST_F(TriggerCases, ATriggerThatExemptsTheSweepDoesNotFire) {
  make_table();
  sql(fmt::format(fmt::runtime(kVersion),
                  "WHEN (coalesce(current_setting('crossfade.sweep', true), '') = '')"));
  start();
  advance_to(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE version <> 1"), "0");
  sql("UPDATE t SET b = 5 WHERE id = 1");
  EXPECT_EQ(value("SELECT version FROM t WHERE id = 1"), "2");
}

TEST_F(TriggerCases, ARoleThatMaySetTheReplicationRoleSweepsPastTriggers) {
  make_table();
  sql(fmt::format(fmt::runtime(kVersion), ""));
  Migrator superuser({.dsn = superuser_dsn(), .redis = {}, .operator_name = "ada", .host = "lovelace"});
  superuser.init();
  superuser.start({spec()});
  superuser.next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE version <> 1"), "0");
}

// 75: pg_repack#457: an exception block per row overflows the subtransactions.
TEST_F(TriggerCases, NoSubtransactionOfTheCaptureTakesATransactionId) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b text)");
  capture(spec("b", "integer", "forward = \"b::integer\"\nbackward = \"b::text\""));
  const auto next_xid = [&] {
    return std::stoll(value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text"));
  };
  const auto before = next_xid();
  sql("INSERT INTO t SELECT g, g::text FROM generate_series(1, 20000) g");
  EXPECT_LT(next_xid() - before, 1000);
  EXPECT_EQ(stale("b::integer"), "0");
}

TEST_F(TriggerCases, ACastThatCannotFailIsCapturedWithoutAnExceptionBlock) {
  make_table();
  capture();
  EXPECT_EQ(
      value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'crossfade'::regnamespace AND prorettype ="
            " 'trigger'::regtype AND prosrc LIKE '%EXCEPTION%'"),
      "0");
}

// Most of an application's updates leave the column alone. Before its row is swept such a one must carry the
// value nevertheless.
TEST_F(TriggerCases, AnUpdateOfOtherColumnsCallsNoFunctionOnceTheRowIsRight) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int, other int);"
      "INSERT INTO t SELECT g, g, 0 FROM generate_series(1, 10) g");
  super_sql("ALTER ROLE app_owner SET track_functions = 'all'");
  capture();
  ApplicationSession writer(dsn());
  expect_calls(writer, "UPDATE t SET other = 1", 0);
  expect_calls(writer, "UPDATE t SET b = b, id = id + 100", 0);
  expect_calls(writer, "UPDATE t SET b = b + 1 WHERE id <= 103", 3);
  expect_calls(writer, "UPDATE t SET " + shadow() + " = 7 WHERE id = 104", 1);
  EXPECT_EQ(shadow_of("id = 104"), "4") << "what others write into it is overwritten";
  EXPECT_EQ(stale("b"), "0");
  // As if the sweep had not come to it yet.
  ApplicationSession unseen(dsn(),
                            "SET crossfade.sweep = '" + value("SELECT mark FROM crossfade.migration") + "'");
  unseen.run("UPDATE t SET " + shadow() + " = NULL WHERE id = 105");
  EXPECT_EQ(shadow_of("id = 105"), "NULL");
  expect_calls(writer, "UPDATE t SET other = 2 WHERE id = 105", 1);
  EXPECT_EQ(shadow_of("id = 105"), "5");
}

TEST_F(TriggerCases, AfterTheSwitchAnUpdateOfOtherColumnsCallsNoFunction) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int, other int);"
      "INSERT INTO t SELECT g, g, 0 FROM generate_series(1, 10) g");
  super_sql("ALTER ROLE app_owner SET track_functions = 'all'");
  capture();
  advance_to(Phase::switched);
  ApplicationSession writer(dsn());
  expect_calls(writer, "UPDATE t SET other = 1, id = id + 100", 0);
  expect_calls(writer, "UPDATE t SET b = b + 1 WHERE id = 101", 1);
  EXPECT_EQ(shadow_of("id = 101"), "2");
}

// 77: https://github.com/reorg/pg_repack/issues/391: a column is added meanwhile, and every INSERT fails.
TEST_F(TriggerCases, AColumnThatIsAddedMeanwhileDisturbsNothing) {
  make_table();
  capture();
  sql("ALTER TABLE t ADD c text DEFAULT 'x'; INSERT INTO t (id, b, c) VALUES (2000, 8, 'y'); INSERT INTO t "
      "VALUES (2001, 9)");
  EXPECT_EQ(stale(), "0");
  advance_to(Phase::switched);
  sql("INSERT INTO t (id, b, c) VALUES (2002, 8, 'y')");
  advance_to(Phase::dropped);
}

TEST_F(TriggerCases, AnIndexThatIsAddedMeanwhileStopsTheSwitch) {
  make_table();
  capture();
  advance_to(Phase::compare);
  sql("CREATE INDEX late ON t (b)");
  std::string message;
  EXPECT_NE(code_of([&] { migrator().next("m"); }, &message), std::nullopt);
  EXPECT_NE(message.find("late"), std::string::npos) << message;
  EXPECT_EQ(migrator().status("m").phase, Phase::compare);
  sql("DROP INDEX late");
  advance_to(Phase::switched);
}

TEST_F(TriggerCases, PostgresqlKeepsTheCapturedColumnFromBeingDroppedOrRetyped) {
  make_table();
  capture();
  // Refused by PostgreSQL while a trigger's condition reads the column.
  EXPECT_ANY_THROW(sql("ALTER TABLE t ALTER b TYPE smallint"));
  EXPECT_ANY_THROW(sql("ALTER TABLE t DROP b"));
  sql("INSERT INTO t VALUES (2000, 1)");
  advance_to(Phase::switched);
}

// 79: https://github.com/LanternOps/breeze/issues/4483: FORCE ROW LEVEL SECURITY, and an owner who updates no
// row.
TEST_F(TriggerCases, ForcedRowSecurityIsRefusedAndNotTakenForAnEmptyTable) {
  make_table();
  sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY;"
      "CREATE POLICY mine ON t USING (id = current_setting('app.id', true)::int)");
  std::string message;
  EXPECT_EQ(code_of([&] { start(); }, &message), ErrorCode::finding_refused);
  EXPECT_NE(message.find("row_security"), std::string::npos) << message;
}

TEST_F(TriggerCases, RowSecurityThatIsForcedMeanwhileStopsTheMigration) {
  make_table();
  start();
  advance_to(Phase::dry_run);
  sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY");
  EXPECT_EQ(code_of([&] { sweep_all(); }), ErrorCode::finding_refused);
  sql("ALTER TABLE t DISABLE ROW LEVEL SECURITY; ALTER TABLE t NO FORCE ROW LEVEL SECURITY");
  advance_to(Phase::compare);
  sql("ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY");
  EXPECT_NE(code_of([&] { migrator().next("m"); }), std::nullopt);
  EXPECT_EQ(migrator().status("m").phase, Phase::compare);
}

// 81: https://github.com/reorg/pg_repack/issues/71: a crash empties an unlogged table, and the tool goes on.
TEST_F(TriggerCases, AnUnloggedTableIsRefused) {
  sql("CREATE UNLOGGED TABLE t (id int PRIMARY KEY, b int)");
  std::string message;
  EXPECT_EQ(code_of([&] { start(); }, &message), ErrorCode::finding_refused);
  EXPECT_NE(message.find("unlogged_table"), std::string::npos) << message;
}

TEST_F(TriggerCases, ATableThatBecomesUnloggedMeanwhileStopsTheMigration) {
  make_table();
  capture();
  sql("ALTER TABLE t SET UNLOGGED");
  EXPECT_EQ(code_of([&] { migrator().next("m", {.until = Phase::compare, .confirm = {}, .accept = {}}); }),
            ErrorCode::fingerprint_changed);
}

}  // namespace
}  // namespace crossfade::test

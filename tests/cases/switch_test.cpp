// Group E: switch, reverse, drop.
#include "case_test.hpp"

namespace crossfade::test {
namespace {

class SwitchCases : public CaseTest {};

// 87: https://www.postgresql.org/docs/current/mvcc-caveats.html: an older snapshot reads NULL under the new
// name.
TEST_F(SwitchCases, ASnapshotOlderThanTheSweepHoldsTheSwitchAndIsNamed) {
  make_table();
  ApplicationSession reader(dsn());
  reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  start();
  advance_to(Phase::compare);
  std::string message;
  EXPECT_EQ(code_of([&] { migrator().next("m"); }, &message), ErrorCode::old_snapshot);
  EXPECT_NE(message.find(fmt::format("pid {}", reader.backend_pid())), std::string::npos) << message;
  EXPECT_EQ(migrator().status("m").phase, Phase::compare);
  EXPECT_EQ(reader.value("SELECT sum(b) FROM t"), "500500");
  reader.run("COMMIT");
  advance_to(Phase::switched);
  EXPECT_EQ(reader.value("SELECT sum(b) FROM t"), "500500");
}

// 87, the twin where nothing is wrong: a snapshot from after the last write of the shadow.
TEST_F(SwitchCases, ASnapshotFromBetweenReadsTheSameBeforeAndAfterTheSwitch) {
  make_table();
  start();
  advance_to(Phase::compare);
  ApplicationSession reader(dsn());
  reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  advance_to(Phase::switched);
  EXPECT_EQ(reader.value("SELECT sum(b) FROM t"), "500500");
  reader.run("COMMIT");
}

// 88: https://github.com/pgjdbc/r2dbc-postgresql/issues/382: prepared statements whose result changes its
// type.
TEST_F(SwitchCases, PreparedStatementsFailOnlyWhereThePlanSaysSo) {
  make_table();
  bool named = false;
  for (const auto& finding : migrator().plan({spec()}).findings) {
    named = named || (finding.id == "star_readers" && finding.message.find("0A000") != std::string::npos);
  }
  EXPECT_TRUE(named);
  ApplicationSession driver(dsn());
  driver.run(
      "PREPARE a AS SELECT * FROM t WHERE id = 1; PREPARE b AS SELECT b FROM t WHERE id = 1;"
      "PREPARE u(int, int) AS UPDATE t SET b = $2 WHERE id = $1;"
      "PREPARE i(int, int) AS INSERT INTO t (id, b) VALUES ($1, $2)");
  int key = 2000;
  const auto works = [&](const std::string& statement) {
    try {
      driver.run(statement);
      return std::string("works");
    } catch (const ApplicationError& error) {
      return error.sqlstate();
    }
  };
  const auto writes = [&] {
    return works("EXECUTE u(1, 5)") + " " + works(fmt::format("EXECUTE i({}, 5)", ++key));
  };
  EXPECT_EQ(works("EXECUTE a") + works("EXECUTE b"), "worksworks");
  EXPECT_EQ(writes(), "works works");
  start();
  advance_to(Phase::backfill);
  EXPECT_EQ(works("EXECUTE a"), "0A000");
  EXPECT_EQ(works("EXECUTE b"), "works");
  EXPECT_EQ(writes(), "works works");
  advance_to(Phase::compare);
  driver.run("DEALLOCATE a; PREPARE a AS SELECT * FROM t WHERE id = 1; EXECUTE a");
  EXPECT_EQ(works("EXECUTE b"), "works");
  advance_to(Phase::switched);
  EXPECT_EQ(works("EXECUTE b"), "0A000");
  EXPECT_EQ(writes(), "works works");
  driver.run("DEALLOCATE b; PREPARE b AS SELECT b FROM t WHERE id = 1; EXECUTE b");
}

// 97: https://github.com/xataio/pgroll/issues/350: the old type cannot hold what the new application writes.
TEST_F(SwitchCases, AValueThatDoesNotFitTheOldColumnIsWrittenAndRecorded) {
  make_table();
  start();
  advance_to(Phase::switched);
  sql("UPDATE t SET b = 3000000000 WHERE id = 7; INSERT INTO t (id, b) VALUES (2000, -3000000000)");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 7"), "3000000000");
  EXPECT_EQ(shadow_of("id = 7"), "NULL");
  const auto misfits = migrator().misfits("m");
  ASSERT_EQ(misfits.size(), 2U);
  EXPECT_EQ(misfits[0].sqlstate, "22003");
  std::string message;
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }, &message), ErrorCode::rollback_refused);
  EXPECT_NE(message.find("2 values"), std::string::npos) << message;
  sql("UPDATE t SET b = 3 WHERE id = 7; DELETE FROM t WHERE id = 2000");
  EXPECT_TRUE(migrator().misfits("m").empty());
  migrator().rollback("m");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 7"), "3");
}

TEST_F(SwitchCases, UnderTheStrictPolicyAValueThatDoesNotFitIsRejected) {
  make_table();
  start(spec("b", "bigint", "on_misfit = \"reject\""));
  advance_to(Phase::switched);
  ApplicationSession writer(dsn());
  try {
    writer.run("UPDATE t SET b = 3000000000 WHERE id = 7");
    FAIL() << "a value that does not fit was written";
  } catch (const ApplicationError& error) {
    EXPECT_EQ(error.sqlstate(), "22003");
  }
  writer.run("UPDATE t SET b = 2147483647 WHERE id = 7");
  migrator().rollback("m");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 7"), "2147483647");
}

// 98: https://github.com/un-fao/GeoID/issues/1233: whoever waits for the table holds up all readers behind
// it.
TEST_F(SwitchCases, ReadersAreNotHeldUpWhileAnOpenTransactionKeepsTheSwitchAway) {
  make_table();
  start(spec("b", "bigint", "[switch]\nattempts = 10000\n"));
  advance_to(Phase::compare);
  ApplicationSession holder(dsn());
  holder.run("BEGIN; SELECT count(*) FROM t");
  InBackground switching([&] { migrator().next("m"); });
  const auto attempts = "SELECT count(*) FROM crossfade.switch_attempt WHERE to_phase = 'switched'";
  // From here on the holder is old enough that no attempt stands in the queue any more: it is named instead.
  wait_until_true(fmt::format("SELECT EXISTS ({} AND blockers @> '[{{\"pid\": {}}}]' HAVING count(*) >= 2)",
                              attempts, holder.backend_pid()));
  ApplicationSession reader(dsn(), "SET statement_timeout = '2s'");
  const auto before = value(attempts);
  while (value(attempts) == before) EXPECT_NO_THROW(reader.run("SELECT count(*) FROM t"));
  EXPECT_EQ(super_value("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted"), "0");
  holder.run("COMMIT");
  EXPECT_EQ(switching.end(), std::nullopt) << switching.message();
  EXPECT_EQ(migrator().status("m").phase, Phase::switched);
}

// 98: attempts are bounded, and nothing has changed after the last.
TEST_F(SwitchCases, ATableThatCannotBeLockedLeavesThePhaseAsItWas) {
  make_table();
  start(spec("b", "bigint", "[switch]\nattempts = 3\n"));
  advance_to(Phase::compare);
  ApplicationSession holder(dsn());
  holder.run("BEGIN; SELECT count(*) FROM t");
  std::string message;
  EXPECT_EQ(code_of([&] { migrator().next("m"); }, &message), ErrorCode::lock_attempts_exhausted);
  EXPECT_EQ(migrator().status("m").phase, Phase::compare);
  EXPECT_EQ(stale(), "0");
  holder.run("COMMIT");
  advance_to(Phase::switched);
}

}  // namespace
}  // namespace crossfade::test

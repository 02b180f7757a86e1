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

// A note is a hint: ON CONFLICT DO NOTHING leaves one for a row that it does not insert. However many come,
// also right before the lock, they do not keep the switch away; a real reject does.
TEST_F(SwitchCases, NotesThatTellOfNothingDoNotKeepTheSwitchAway) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b text); INSERT INTO t SELECT g, g FROM generate_series(1, 100) "
      "g");
  start(spec("b", "integer", "forward = \"b::integer\"\nbackward = \"b::text\""));
  advance_to(Phase::compare);
  ApplicationSession writer(dsn());
  const auto note = [&] { writer.run("INSERT INTO t VALUES (7, 'x') ON CONFLICT DO NOTHING"); };
  stop_at("compare_to_switched.locked");
  std::optional<InBackground> switching(std::in_place, [&] { migrator().next("m"); });
  wait_until_stopped();
  writer.run("UPDATE t SET b = 'x' WHERE id = 9");
  let_go();
  EXPECT_EQ(switching->end(), ErrorCode::not_ready) << switching->message();
  writer.run("UPDATE t SET b = '9' WHERE id = 9");

  stop_at("compare_to_switched.locked");
  switching.emplace([&] { migrator().next("m"); });
  wait_until_stopped();
  for (int n = 0; n < 30; ++n) note();
  let_go();
  EXPECT_EQ(switching->end(), std::nullopt) << switching->message();
  EXPECT_EQ(migrator().status("m").phase, Phase::switched);
}

TEST_F(SwitchCases, NotesThatTellOfNothingDoNotKeepTheWayBackShut) {
  make_table();
  start();
  advance_to(Phase::switched);
  ApplicationSession writer(dsn());
  stop_at("switched_to_compare.locked");
  std::optional<InBackground> going_back(std::in_place, [&] { migrator().rollback("m"); });
  wait_until_stopped();
  writer.run("UPDATE t SET b = 3000000000 WHERE id = 9");
  let_go();
  EXPECT_EQ(going_back->end(), ErrorCode::not_ready) << going_back->message();
  writer.run("UPDATE t SET b = 9 WHERE id = 9");

  stop_at("switched_to_compare.locked");
  going_back.emplace([&] { migrator().rollback("m"); });
  wait_until_stopped();
  for (int n = 0; n < 30; ++n)
    writer.run("INSERT INTO t (id, b) VALUES (7, 3000000000) ON CONFLICT DO NOTHING");
  let_go();
  EXPECT_EQ(going_back->end(), std::nullopt) << going_back->message();
  EXPECT_EQ(migrator().status("m").phase, Phase::compare);
}

// By position NULL is given; left out, the default is meant.
TEST_F(SwitchCases, AnInsertByPositionOfNullIsToldFromOneThatLeavesTheColumnOut) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT 7); INSERT INTO t VALUES (1, 1)");
  start();
  advance_to(Phase::switched);
  sql("INSERT INTO t VALUES (10, NULL)");
  sql("INSERT INTO t (id) VALUES (11)");
  sql("INSERT INTO t VALUES (12, 5)");
  sql("INSERT INTO t VALUES (13, 7)");
  sql("INSERT INTO t (id, b) VALUES (14, NULL), (15, 5), (16, 7), (17, 3000000000)");
  // Whole rows, copied by position.
  sql("CREATE TABLE copy AS SELECT * FROM t; DELETE FROM t WHERE id >= 14; INSERT INTO t SELECT * FROM copy"
      " WHERE id >= 14");
  const auto both = [&] {
    return value("SELECT string_agg(id || ':' || coalesce(b::text, '-') || '/' || coalesce(" + shadow() +
                 "::text, '-'), ' ' ORDER BY id) FROM t WHERE id >= 10");
  };
  EXPECT_EQ(both(), "10:-/- 11:7/7 12:5/5 13:7/7 14:-/- 15:5/5 16:7/7 17:3000000000/-");
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }), ErrorCode::rollback_refused);
  sql("DELETE FROM t WHERE id = 17");
  migrator().rollback("m");
  sql("INSERT INTO t (id) VALUES (18)");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 18"), "7");
  advance_to(Phase::switched);
  advance_to(Phase::dropped);
  sql("INSERT INTO t (id) VALUES (19)");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 19"), "7");
}

// Written while nothing carried it back: a difference until a repair makes it what it would have been.
TEST_F(SwitchCases, AValueThatDoesNotFitAndWasWrittenUnseenBecomesAMisfit) {
  make_table();
  start();
  advance_to(Phase::switched);
  const auto trigger = value(
      "SELECT quote_ident(tgname) FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname LIKE "
      "'~~~crossfade_update%'");
  sql("ALTER TABLE t DISABLE TRIGGER " + trigger);
  sql("UPDATE t SET b = 3000000000 WHERE id = 7; UPDATE t SET b = 5 WHERE id = 8");
  sql("ALTER TABLE t ENABLE ALWAYS TRIGGER " + trigger);
  migrator().recapture("m");
  EXPECT_EQ(migrator().compare("m").differences, 2);
  EXPECT_EQ(migrator().repair("m"), 2);
  EXPECT_EQ(migrator().misfits("m").size(), 1);
  EXPECT_EQ(shadow_of("id = 7"), "NULL");
  EXPECT_EQ(shadow_of("id = 8"), "5");
  EXPECT_EQ(migrator().compare("m").differences, 0);
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }), ErrorCode::rollback_refused);
  migrator().rollback("m", {.to = {}, .accept = {{"misfits_open", "a test"}}});
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 7"), "NULL");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 8"), "5");
}

// On a NOT NULL column the misfits of a one-way migration cannot be accepted: the hint is a way out that
// works.
TEST_F(SwitchCases, TheMisfitsOfAOneWayMigrationCanBeGivenTheirOldValue) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL); INSERT INTO t SELECT g, g FROM "
      "generate_series(1, 9) g");
  start(spec("b", "point", "forward = \"point(b, 0)\""));
  advance_to(Phase::switched);
  sql("UPDATE t SET b = point(5, 0) WHERE id = 2");
  EXPECT_EQ(migrator().misfits("m").size(), 1);
  std::string hint;
  try {
    migrator().rollback("m", {.to = {}, .accept = {{"one_way_rollback", "a test"}}});
    ADD_FAILURE() << "it was not refused";
  } catch (const Error& error) {
    hint = error.hint();
  }
  ASSERT_NE(hint.find("UPDATE public.t SET " + shadow() + " = "), std::string::npos) << hint;
  sql("UPDATE t SET " + shadow() + " = 5 WHERE id = 2");
  EXPECT_TRUE(migrator().misfits("m").empty());
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 2"), "(5,0)");
  migrator().rollback("m", {.to = {}, .accept = {{"one_way_rollback", "a test"}}});
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 2"), "5");
}

}  // namespace
}  // namespace crossfade::test

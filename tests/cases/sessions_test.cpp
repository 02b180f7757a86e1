// Sessions of a pool that stay open while the column's type changes and changes back: what each of them meets
// is what docs/sessions.md says.
#include <map>

#include "case_test.hpp"

namespace crossfade::test {
namespace {

class SessionCases : public CaseTest {
 protected:
  using Outcomes = std::map<std::string, std::string>;
  static std::string outcome(ApplicationSession& session, const std::string& statement) {
    try {
      session.run(statement);
      return "works";
    } catch (const ApplicationError& error) {
      return error.sqlstate();
    }
  }
  static Outcomes outcomes(ApplicationSession& session, const Outcomes& statements) {
    Outcomes all;
    for (const auto& [name, statement] : statements) all[name] = outcome(session, statement);
    return all;
  }
  static Outcomes all_work(const Outcomes& statements) {
    Outcomes all;
    for (const auto& [name, statement] : statements) all[name] = "works";
    return all;
  }
  static Outcomes but(Outcomes all, const std::vector<std::string>& names, const std::string& state) {
    for (const auto& name : names) all.at(name) = state;
    return all;
  }
};

// What is kept prepared: only what returns the column fails, and only until it is prepared anew.
TEST_F(SessionCases, PreparedStatementsFailExactlyWhereTheyReturnTheColumn) {
  make_table();
  ApplicationSession pooled(dsn());
  const std::map<std::string, std::string> prepared{
      {"star", "SELECT * FROM t WHERE id = 1"},
      {"column", "SELECT b FROM t WHERE id = 1"},
      {"others", "SELECT id FROM t WHERE b = 1"},
      {"computed", "SELECT b::text FROM t WHERE id = 1"},
      {"insert", "INSERT INTO t (id, b) SELECT max(id) + 1, 1 FROM t"},
      {"insert_returning", "INSERT INTO t (id, b) SELECT max(id) + 1, 1 FROM t RETURNING b"},
      {"update", "UPDATE t SET b = 1 WHERE id = 1"},
      {"update_returning", "UPDATE t SET b = 1 WHERE id = 1 RETURNING b"},
      {"update_returning_key", "UPDATE t SET b = 1 WHERE id = 1 RETURNING id"},
      {"delete_returning_row", "DELETE FROM t WHERE id = -1 RETURNING *"}};
  Outcomes executed;
  for (const auto& [name, statement] : prepared) {
    pooled.run("PREPARE p_" + name + " AS " + statement);
    executed[name] = "EXECUTE p_" + name;
  }
  const auto works = all_work(executed);
  const auto prepare_anew = [&](const std::vector<std::string>& names) {
    for (const auto& name : names)
      pooled.run("DEALLOCATE p_" + name + "; PREPARE p_" + name + " AS " + prepared.at(name));
  };
  const std::vector<std::string> rows{"star", "delete_returning_row"};
  const std::vector<std::string> column{"column", "star", "insert_returning", "update_returning",
                                        "delete_returning_row"};
  EXPECT_EQ(outcomes(pooled, executed), works);
  start();
  advance_to(Phase::backfill);
  EXPECT_EQ(outcomes(pooled, executed), but(works, rows, "0A000"));
  EXPECT_EQ(outcomes(pooled, executed), but(works, rows, "0A000")) << "no statement recovers by itself";
  pooled.run("DISCARD PLANS");
  EXPECT_EQ(outcome(pooled, "EXECUTE p_star"), "0A000");
  prepare_anew(rows);
  EXPECT_EQ(outcomes(pooled, executed), works);
  advance_to(Phase::compare);
  EXPECT_EQ(outcomes(pooled, executed), works);
  advance_to(Phase::switched);
  EXPECT_EQ(outcomes(pooled, executed), but(works, column, "0A000"));
  prepare_anew(column);
  EXPECT_EQ(outcomes(pooled, executed), works);
  roll_back_to(Phase::compare);
  EXPECT_EQ(outcomes(pooled, executed), but(works, column, "0A000"));
  prepare_anew(column);
  EXPECT_EQ(outcomes(pooled, executed), works);
  roll_back_to(Phase::rolled_back);
  EXPECT_EQ(outcomes(pooled, executed), but(works, rows, "0A000"));
}

TEST_F(SessionCases, InATransactionAFailingStatementTakesTheOthersWithIt) {
  make_table();
  ApplicationSession pooled(dsn(), "PREPARE q AS SELECT b FROM t WHERE id = 1");
  start();
  advance_to(Phase::switched);
  pooled.run("BEGIN; UPDATE t SET b = 9 WHERE id = 2");
  EXPECT_EQ(outcome(pooled, "EXECUTE q"), "0A000");
  EXPECT_EQ(outcome(pooled, "SELECT 1"), "25P02");
  pooled.run("ROLLBACK");
  EXPECT_EQ(outcome(pooled, "EXECUTE q"), "0A000");
  pooled.run("BEGIN; UPDATE t SET b = 9 WHERE id = 2; SAVEPOINT s");
  EXPECT_EQ(outcome(pooled, "EXECUTE q"), "0A000");
  pooled.run("ROLLBACK TO s; DEALLOCATE q; PREPARE q AS SELECT b FROM t WHERE id = 2");
  EXPECT_EQ(pooled.value("EXECUTE q"), "9");
  pooled.run("COMMIT");
}

// A parameter has the type that it was prepared with.
TEST_F(SessionCases, AParameterKeepsTheOldTypeUntilItIsPreparedAnew) {
  make_table();
  ApplicationSession pooled(dsn(), "PREPARE u AS UPDATE t SET b = $1 WHERE id = 1");
  start();
  advance_to(Phase::switched);
  pooled.run("EXECUTE u(7)");
  EXPECT_EQ(outcome(pooled, "EXECUTE u(3000000000)"), "22003");
  pooled.run("DEALLOCATE u; PREPARE u AS UPDATE t SET b = $1 WHERE id = 1; EXECUTE u(3000000000)");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 1"), "3000000000");
}

constexpr const char* kTriggerBody =
    "DECLARE r record; whole t%ROWTYPE; same t.b%TYPE; BEGIN"
    " NEW.b := NEW.b + 1 - 1; same := NEW.b; r := NEW; whole := NEW;"
    " IF r.b <> whole.b OR r.b <> same THEN RAISE EXCEPTION 'not the same'; END IF;"
    " SELECT * INTO r FROM t WHERE id = 2; NEW.note := (r.b + 0)::text; RETURN NEW; END";

TEST_F(SessionCases, TriggerFunctionsThatRanBeforeNeverFail) {
  make_table();
  sql(
      fmt::format("ALTER TABLE t ADD note text;"
                  "CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $f${}$f$;"
                  "CREATE TRIGGER seen BEFORE INSERT OR UPDATE ON t FOR EACH ROW WHEN"
                  " (coalesce(current_setting('crossfade.sweep', true), '') = '') EXECUTE FUNCTION seen()",
                  kTriggerBody));
  ApplicationSession pooled(dsn());
  int key = 5000;
  const auto write = [&](const std::string& number) {
    for (int i = 0; i < 7; ++i) {
      pooled.run(fmt::format("INSERT INTO t (id, b) VALUES ({}, 1); UPDATE t SET b = {} WHERE id = 1", ++key,
                             number));
    }
    EXPECT_EQ(pooled.value("SELECT b FROM t WHERE id = 1"), number);
  };
  write("4");
  start();
  advance_to(Phase::compare);
  write("5");
  advance_to(Phase::switched);
  write("3000000000");
  write("6");
  migrator().next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
  roll_back_to(Phase::compare);
  write("7");
  advance_to(Phase::switched);
  write("3000000000");
  advance_to(Phase::dropped);
  write("3000000001");
}

// Functions that are called otherwise: those of the migrating role are compiled anew, the others fail as the
// finding says.
TEST_F(SessionCases, PlainFunctionsThatRanBeforeWorkWhereTheRoleMayAlterThem) {
  make_table();
  Outcomes calls;
  std::string all;
  const auto function = [&](const std::string& name, const std::string& declare, const std::string& body) {
    all += fmt::format("CREATE FUNCTION {}() RETURNS text LANGUAGE plpgsql AS $f$DECLARE {} BEGIN {} END$f$;",
                       name, declare, body);
    calls[name] = "SELECT " + name + "()";
  };
  const std::string read = "SELECT * INTO r FROM t WHERE id = 1; RETURN (r.b + 1)::text;";
  function("of_record", "r record;", read);
  function("of_row", "r t%ROWTYPE;", read);
  function("of_type", "v t.b%TYPE;", "SELECT b INTO v FROM t WHERE id = 1; RETURN (v + 1)::text;");
  function("of_query", "", "RETURN (SELECT (b + 1)::text FROM t WHERE id = 1);");
  function("of_loop", "r record; n numeric := 0;",
           "FOR r IN SELECT b FROM t WHERE id < 3 LOOP n := n + r.b; END LOOP; RETURN n::text;");
  sql(all +
      "CREATE PROCEDURE a_procedure() LANGUAGE plpgsql AS $f$DECLARE r record; BEGIN"
      " SELECT * INTO r FROM t WHERE id = 1; PERFORM r.b + 1; END$f$");
  calls["procedure"] = "CALL a_procedure()";
  super_sql(
      "CREATE SCHEMA theirs; GRANT USAGE ON SCHEMA theirs TO PUBLIC; SET search_path = theirs, public;" +
      all + "SET search_path = public");
  Outcomes theirs = calls;
  theirs.erase("procedure");
  for (auto& [name, call] : theirs) call = "SELECT theirs." + name + "()";
  const auto all_of_theirs = all_work(theirs);
  const auto broken = but(all_of_theirs, {"of_record", "of_row", "of_loop"}, "42804");
  std::map<Severity, int> named;
  for (const auto& finding : migrator().plan({spec()}).findings) {
    if (finding.id == "plpgsql_cached_types") ++named[finding.severity];
  }
  EXPECT_EQ(named, (std::map<Severity, int>{{Severity::warn, 5}, {Severity::info, 6}}));
  ApplicationSession pooled(dsn());
  const auto all_of_ours = all_work(calls);
  const auto run_all = [&](const Outcomes& theirs_do) {
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(outcomes(pooled, calls), all_of_ours);
      EXPECT_EQ(outcomes(pooled, theirs), theirs_do);
    }
  };
  start();
  advance_to(Phase::compare);
  // Plans are made anew after many a change of the catalog (a new schema, of temporary tables too). Between
  // the gate and the switch nothing else comes.
  stop_at("compare_to_switched.locked");
  InBackground switching([&] { advance_to(Phase::switched); });
  wait_until_stopped();
  run_all(all_of_theirs);
  let_go();
  EXPECT_EQ(switching.end(), std::nullopt) << switching.message();
  sql("UPDATE t SET b = 3000000000 WHERE id = 1");
  run_all(but(broken, {"of_type"}, "22003"));
  ApplicationSession anew(dsn());
  EXPECT_EQ(outcomes(anew, theirs), all_of_theirs);
  pooled.run("DISCARD PLANS");
  run_all(but(all_of_theirs, {"of_type"}, "22003"));
  sql("UPDATE t SET b = 1 WHERE id = 1");
  stop_at("switched_to_compare.locked");
  InBackground back([&] { roll_back_to(Phase::compare); });
  wait_until_stopped();
  EXPECT_EQ(outcomes(pooled, calls), all_of_ours);
  let_go();
  EXPECT_EQ(back.end(), std::nullopt) << back.message();
  for (int i = 0; i < 7; ++i) EXPECT_EQ(outcomes(pooled, calls), all_of_ours);
}

// Its snapshot is older than the switch and younger than our last write.
TEST_F(SessionCases, ARepeatableReadTransactionThatIsOpenMeanwhileReadsAndWrites) {
  make_table();
  ApplicationSession reader(dsn()), writer(dsn());
  start();
  advance_to(Phase::compare);
  for (auto* session : {&reader, &writer})
    session->run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()");
  advance_to(Phase::switched);
  sql("UPDATE t SET b = 3000000000 WHERE id = 1");
  EXPECT_EQ(reader.value("SELECT b FROM t WHERE id = 1"), "1");
  EXPECT_EQ(reader.value("SELECT pg_typeof(b) FROM t LIMIT 1"), "bigint");
  reader.run("COMMIT");
  writer.run("UPDATE t SET b = 3000000001 WHERE id = 2");
  EXPECT_EQ(outcome(writer, "UPDATE t SET b = 5 WHERE id = 1"), "40001") << "as from any concurrent writer";
  writer.run("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE t SET b = 8 WHERE id = 2; COMMIT");
  EXPECT_EQ(shadow_of("id = 2"), "8");
}

}  // namespace
}  // namespace crossfade::test

// The probe under the switch lock: a trigger that would fail on the column's other type stops the change.
#include "case_test.hpp"

namespace crossfade::test {
namespace {

class TriggerProbeCases : public CaseTest {
 protected:
  // A trigger of t, on UPDATE, which the sweep passes by.
  void add_trigger(const std::string& body, const std::string& event = "BEFORE UPDATE") {
    sql("CREATE FUNCTION checked() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN " + body +
        " RETURN NEW; END$f$; CREATE TRIGGER checked " + event +
        " ON t FOR EACH ROW WHEN (coalesce(current_setting('crossfade.sweep', true), '') = '')"
        " EXECUTE FUNCTION checked()");
  }
  void replace_function(const std::string& body) {
    sql("CREATE OR REPLACE FUNCTION checked() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN " + body +
        " RETURN NEW; END$f$");
  }
  void refused_in(Phase phase, const std::function<void()>& change, const std::string& part) {
    std::string message;
    EXPECT_EQ(code_of(change, &message), ErrorCode::trigger_fails) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("checked()"), std::string::npos) << message;
    const auto status = migrator().status("m");
    EXPECT_EQ(status.phase, phase);
    EXPECT_EQ(status.status, Status::settled);
  }
  void next() { migrator().next("m", {.until = Phase::switched, .confirm = {}, .accept = {}}); }
};

TEST_F(TriggerProbeCases, AFunctionThatTakesTheOldTypeOnlyStopsTheSwitch) {
  make_table();
  sql("CREATE FUNCTION half(int) RETURNS int LANGUAGE sql AS 'SELECT $1 / 2'");
  add_trigger("PERFORM half(NEW.b);");
  start();
  advance_to(Phase::compare);
  refused_in(
      Phase::compare, [&] { next(); }, "half(bigint)");
  EXPECT_EQ(value("SELECT pg_typeof(b) FROM t LIMIT 1"), "integer");
  sql("UPDATE t SET b = 5 WHERE id = 1");
  sql("CREATE FUNCTION half(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT $1 / 2'");
  advance_to(Phase::switched);
  sql("UPDATE t SET b = 3000000000 WHERE id = 1");
}

TEST_F(TriggerProbeCases, TheWayBackIsHeldByATriggerThatNeedsTheNewType) {
  make_table();
  add_trigger("NULL;");
  start();
  advance_to(Phase::switched);
  replace_function("IF pg_typeof(NEW.b) = 'int'::regtype THEN RAISE EXCEPTION 'only the wide one'; END IF;");
  refused_in(
      Phase::switched, [&] { roll_back_to(Phase::compare); }, "only the wide one");
  EXPECT_EQ(value("SELECT pg_typeof(b) FROM t LIMIT 1"), "bigint");
  replace_function("NULL;");
  roll_back_to(Phase::compare);
}

TEST_F(TriggerProbeCases, ATriggerOnAnotherColumnIsTriedToo) {
  make_table();
  sql("ALTER TABLE t ADD note text");
  add_trigger("IF pg_typeof(NEW.b) = 'bigint'::regtype THEN RAISE EXCEPTION 'too wide'; END IF;",
              "AFTER UPDATE OF note");
  start();
  advance_to(Phase::compare);
  refused_in(
      Phase::compare, [&] { next(); }, "too wide");
}

// It needs what only the application sets, before the switch as after it.
TEST_F(TriggerProbeCases, ATriggerThatRefusesUsAnywayIsNoReason) {
  make_table();
  add_trigger("PERFORM current_setting('application.operator');");
  start();
  advance_to(Phase::switched);
  roll_back_to(Phase::compare);
  advance_to(Phase::switched);
}

TEST_F(TriggerProbeCases, WhatTheTriggersDidIsUndone) {
  make_table();
  sql("CREATE TABLE audit (id int)");
  add_trigger("INSERT INTO audit VALUES (NEW.id); NEW.b := 7;");
  sql("CREATE CONSTRAINT TRIGGER later AFTER UPDATE ON t INITIALLY DEFERRED FOR EACH ROW"
      " WHEN (coalesce(current_setting('crossfade.sweep', true), '') = '') EXECUTE FUNCTION checked()");
  start();
  advance_to(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM audit"), "0");
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE b <> id"), "0");
  roll_back_to(Phase::compare);
  EXPECT_EQ(value("SELECT count(*) FROM audit"), "0");
  EXPECT_EQ(stale(), "0");
}

TEST_F(TriggerProbeCases, AnEmptyTableIsSwitchedUntried) {
  make_table(0);
  add_trigger("IF pg_typeof(NEW.b) = 'bigint'::regtype THEN RAISE EXCEPTION 'too wide'; END IF;");
  start();
  advance_to(Phase::switched);
}

// Its sweep passes by all triggers; the probe must not.
TEST_F(TriggerProbeCases, ASuperusersProbeFiresThemAll) {
  make_table();
  sql("CREATE FUNCTION half(int) RETURNS int LANGUAGE sql AS 'SELECT $1 / 2'");
  add_trigger("PERFORM half(NEW.b);");
  super_sql("ALTER ROLE CURRENT_USER IN DATABASE " + value("SELECT quote_ident(current_database())") +
            " SET search_path = public");
  Migrator superuser({.dsn = superuser_dsn(), .redis = {}, .operator_name = "ada", .host = "lovelace"});
  superuser.init();
  superuser.start({spec()});
  const auto to_switched = [&] {
    superuser.next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
  };
  std::string message;
  EXPECT_EQ(code_of(to_switched, &message), ErrorCode::trigger_fails) << message;
  replace_function("NULL;");
  to_switched();
}

TEST_F(TriggerProbeCases, ATriggerThatWaitsForALockEndsTheAttempt) {
  make_table();
  sql("CREATE TABLE audit (id int)");
  add_trigger("INSERT INTO audit VALUES (NEW.id);");
  start(spec("b", "bigint", "[switch]\nattempts = 2\nlock_timeout = \"20ms\"\n"));
  advance_to(Phase::compare);
  ApplicationSession holder(dsn(), "BEGIN; LOCK TABLE audit");
  EXPECT_EQ(code_of([&] { next(); }), ErrorCode::lock_attempts_exhausted);
  EXPECT_EQ(migrator().status("m").phase, Phase::compare);
  holder.run("COMMIT");
  advance_to(Phase::switched);
}

}  // namespace
}  // namespace crossfade::test

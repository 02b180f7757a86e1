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

constexpr const char* kTooWide =
    "IF pg_typeof({}.b) = 'bigint'::regtype THEN RAISE EXCEPTION 'too wide'; END IF;";

TEST_F(TriggerProbeCases, InsertAndDeleteTriggersAreTriedToo) {
  for (const auto* event : {"BEFORE INSERT", "AFTER INSERT", "BEFORE DELETE", "AFTER DELETE"}) {
    SCOPED_TRACE(event);
    make_table();
    const bool insert = std::string_view(event).ends_with("INSERT");
    const auto fails = fmt::format(fmt::runtime(kTooWide), insert ? "NEW" : "OLD");
    // Both, so that BEFORE DELETE goes on.
    add_trigger(fails + (insert ? "" : " RETURN OLD;"), event);
    start();
    advance_to(Phase::compare);
    refused_in(
        Phase::compare, [&] { next(); }, "a DELETE or INSERT of public.t would fail: too wide");
    replace_function(insert ? "NULL;" : "RETURN OLD;");
    advance_to(Phase::switched);
    EXPECT_EQ(value("SELECT count(*) FROM t WHERE b <> id"), "0");
    sql("DROP TABLE t CASCADE; DROP FUNCTION checked()");
    roll_back_to(Phase::rolled_back);
  }
}

// Rows of other tables would go with it, so the row is not deleted: its unique values refuse the INSERT after
// the BEFORE triggers.
TEST_F(TriggerProbeCases, WhereAForeignKeyCascadesOnlyBeforeInsertIsTried) {
  make_table();
  sql("CREATE TABLE child (t int REFERENCES t ON DELETE CASCADE); INSERT INTO child SELECT id FROM t;"
      "CREATE TABLE audit (id int)");
  add_trigger("INSERT INTO audit VALUES (NEW.id);" + fmt::format(fmt::runtime(kTooWide), "NEW"),
              "BEFORE INSERT");
  start();
  advance_to(Phase::compare);
  refused_in(
      Phase::compare, [&] { next(); }, "an INSERT of public.t would fail: too wide");
  replace_function("INSERT INTO audit VALUES (NEW.id);");
  advance_to(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM audit"), "0");
  EXPECT_EQ(value("SELECT count(*) = (SELECT count(*) FROM t) FROM child"), "t");
}

// It is found by its key again at the end of the statement.
TEST_F(TriggerProbeCases, AForeignKeyWithoutAnActionDoesNotMind) {
  make_table();
  sql("CREATE TABLE child (t int REFERENCES t); INSERT INTO child SELECT id FROM t");
  add_trigger(fmt::format(fmt::runtime(kTooWide), "NEW"), "AFTER INSERT");
  start();
  advance_to(Phase::compare);
  refused_in(
      Phase::compare, [&] { next(); }, "a DELETE or INSERT of public.t would fail: too wide");
}

TEST_F(TriggerProbeCases, WhatCanBeHeardOutsideIsNotTried) {
  sql("CREATE FUNCTION log_it(int) RETURNS void LANGUAGE plpgsql AS $$BEGIN EXECUTE 'SELECT 1'; END$$;"
      "CREATE TABLE audit (id int);"
      "CREATE FUNCTION of_audit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_advisory_lock(1); "
      "RETURN NEW;"
      " END$$; CREATE TRIGGER a AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION of_audit()");
  // By itself, by a function that it calls, by the trigger of a table that it writes.
  for (const auto* reaches :
       {"EXECUTE 'SELECT 1';", "PERFORM log_it(NEW.id);", "INSERT INTO audit VALUES (NEW.id);"}) {
    SCOPED_TRACE(reaches);
    make_table();
    add_trigger(reaches + fmt::format(fmt::runtime(kTooWide), "NEW"), "BEFORE INSERT");
    start();
    advance_to(Phase::switched);
    sql("DROP TABLE t CASCADE; DROP FUNCTION checked()");
    roll_back_to(Phase::rolled_back);
  }
  EXPECT_EQ(super_value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "0");
}

// Its name is part of a statement that is put together under the lock.
TEST_F(TriggerProbeCases, ANameWithAPercentSignIsOnlyAName) {
  const std::string table = R"("a%s"."t%1$s'q")";
  sql(
      fmt::format("CREATE SCHEMA \"a%s\"; CREATE TABLE {0} (\"i%d\" int PRIMARY KEY, b int); INSERT INTO {0}"
                  " SELECT g, g FROM generate_series(1, 100) g; CREATE FUNCTION f() RETURNS trigger LANGUAGE"
                  " plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER g AFTER INSERT ON {0} FOR EACH ROW"
                  " EXECUTE FUNCTION f()",
                  table));
  start(
      fmt::format("[migration]\nname = \"m\"\ntable = \"\"\"{}\"\"\"\n[[column]]\nname = \"b\"\ntype = "
                  "\"bigint\"\n",
                  table));
  advance_to(Phase::switched);
}

TEST_F(TriggerProbeCases, TheSpecSaysWhatIsTried) {
  make_table();
  add_trigger(fmt::format(fmt::runtime(kTooWide), "NEW"), "BEFORE INSERT OR UPDATE");
  start(spec("b", "bigint", "[switch]\ntrigger_probe = \"update\"\n"));
  advance_to(Phase::compare);
  refused_in(
      Phase::compare, [&] { next(); }, "an UPDATE of public.t would fail: too wide");
  roll_back_to(Phase::rolled_back);
  start(spec("b", "bigint", "[switch]\ntrigger_probe = \"none\"\n"));
  advance_to(Phase::switched);
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

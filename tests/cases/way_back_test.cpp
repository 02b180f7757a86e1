// What a hostile reader of the switch and of the way back looks for.
#include "case_test.hpp"

namespace crossfade::test {
namespace {

class WayBackCases : public CaseTest {
 protected:
  void switched(const std::string& table, const std::string& text) {
    sql(table);
    start(text);
    advance_to(Phase::switched);
  }
};

// A cast back that rounds fails on nothing, and loses the application's value all the same.
TEST_F(WayBackCases, AValueThatTheWayBackRoundsIsAMisfit) {
  switched(
      "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t SELECT g, g FROM generate_series(1, 50) g",
      spec("b", "numeric(12,2)"));
  sql("UPDATE t SET b = 2.50 WHERE id = 1; UPDATE t SET b = 7.00 WHERE id = 2");
  EXPECT_EQ(migrator().status("m").misfits, 1);
  EXPECT_TRUE(migrator().status("m").rollback.loses.has_value());
  EXPECT_EQ(code_of([&] { migrator().rollback("m"); }), ErrorCode::rollback_refused);
  sql("UPDATE t SET b = 3 WHERE id = 1");
  EXPECT_EQ(migrator().misfits("m").size(), 0U);
  roll_back_to(Phase::compare);
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 1"), "3");
}

// The old column is the last copy then.
TEST_F(WayBackCases, ANewColumnThatSomebodyDroppedIsNoReasonToDropTheOldOne) {
  switched(
      "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t SELECT g, g FROM generate_series(1, 50) g",
      spec());
  EXPECT_THROW(sql("ALTER TABLE t DROP COLUMN b"), std::exception) << "the capture's trigger depends on it";
  sql("ALTER TABLE t DROP COLUMN b CASCADE");
  EXPECT_EQ(code_of([&] { migrator().next("m", {.until = {}, .confirm = "m", .accept = {}}); }),
            ErrorCode::fingerprint_changed);
  EXPECT_EQ(migrator().status("m").phase, Phase::switched);
  EXPECT_EQ(
      value("SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname LIKE 'b\\_cfold%'"),
      "1");
}

// numeric NaN to integer is 0A000, which also says "not implemented": here it speaks of a value.
TEST_F(WayBackCases, NaNIsAPoisonRowLikeAnyOther) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b numeric);"
      "INSERT INTO t SELECT g, g FROM generate_series(1, 50) g; UPDATE t SET b = 'NaN' WHERE id = 7");
  start(spec("b", "integer", "[expect]\nerrors = 1\n[tuning]\nmax_rejects = 5\n"));
  advance_to(Phase::dry_run);
  EXPECT_EQ(code_of([&] { migrator().next("m"); }), ErrorCode::rejects_open);
  EXPECT_EQ(migrator().status("m").rejects, 1);
  sql("UPDATE t SET b = 7 WHERE id = 7");
  advance_to(Phase::switched);
}

// PL/pgSQL has a variable of that name.
TEST_F(WayBackCases, AColumnNamedFoundIsReadAsAColumn) {
  sql("CREATE TABLE t (id int PRIMARY KEY, found text);"
      "INSERT INTO t SELECT g, g::text FROM generate_series(1, 50) g; UPDATE t SET found = 'bad' WHERE id = "
      "7");
  start(spec("found", "integer", "[expect]\nerrors = 1\n[tuning]\nmax_rejects = 50\n"));
  advance_to(Phase::dry_run);
  EXPECT_EQ(code_of([&] { migrator().next("m"); }), ErrorCode::rejects_open);
  EXPECT_EQ(migrator().status("m").rejects, 1);
}

// A function's parameter has the type's own collation: 'Active' = 'active' would mean something else in it.
TEST_F(WayBackCases, AnExpressionOverAColumnOfAnotherCollationIsRefused) {
  sql("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
      "CREATE TABLE t (id int PRIMARY KEY, b int, status text COLLATE ci)");
  EXPECT_EQ(code_of([&] {
              start(spec("b", "boolean", "forward = \"status = 'active'\"\nbackward = \"b::int\"\n"));
            }),
            ErrorCode::finding_refused);
}

// The hint says "correct the rows"; who does must not be shown the old report for ever.
TEST_F(WayBackCases, ADryRunThatMissedItsExpectationsIsReadAgain) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b text);"
      "INSERT INTO t SELECT g, g::text FROM generate_series(1, 50) g; UPDATE t SET b = 'bad' WHERE id = 7");
  start(spec("b", "integer"));
  EXPECT_EQ(code_of([&] { migrator().next("m"); }), ErrorCode::expectation_missed);
  sql("UPDATE t SET b = '7' WHERE id = 7");
  EXPECT_EQ(migrator().next("m").status, Status::settled);
}

// Ours pins search_path for itself; a trigger of the user's that the sweep fires expects the role's.
TEST_F(WayBackCases, AUserTriggerThatTheSweepFiresSeesTheRolesOwnPath) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t SELECT g, g FROM generate_series(1, 50) g;"
      "CREATE TABLE audit (id int);"
      "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
      " 'BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END';"
      "CREATE TRIGGER t_note AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()");
  start(spec(), {{"user_trigger_fires", "the audit may have them"}});
  advance_to(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM audit"), "50");
}

}  // namespace
}  // namespace crossfade::test

// What somebody does to the column while it is switched, and what others do on the way.
#include <fmt/format.h>

#include "ledger_case.hpp"

namespace crossfade::test {
namespace {

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

}  // namespace
}  // namespace crossfade::test

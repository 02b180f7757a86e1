// The commonest migration: an integer that outgrows its type.
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class IntToBigintTest : public DatabaseTest {};

LifecycleScenario scenario(const std::string& column) {
  LifecycleScenario s = integer_scenario();
  s.setup = "CREATE TABLE t (id int PRIMARY KEY, b " + column +
            ", n int NOT NULL DEFAULT 0, note text DEFAULT 'x');"
            "COMMENT ON COLUMN t.b IS 'counts things';"
            "CREATE INDEX t_b ON t (b);"
            "COMMENT ON INDEX t_b IS 'finds things';"
            "GRANT SELECT ON t TO PUBLIC;"
            "INSERT INTO t (id, b) SELECT g, g * 7 FROM generate_series(0, 5999) g;"
            "ANALYZE t";
  s.live.rows = 6000;
  return s;
}

TEST_F(IntToBigintTest, ANotNullColumnWithDefaultCommentAndIndexGoesThereAndBackAndThereAgain) {
  Lifecycle life(dsn(), scenario("int NOT NULL DEFAULT 42"));
  life.walk_there_and_back();
  life.finish();
}

TEST_F(IntToBigintTest, AcceptedMisfitsOfANullableColumnComeBackAsNull) {
  auto s = scenario("int");
  s.accept_rollback = {{"misfits_open", "they were tests"}};
  Lifecycle life(dsn(), s);
  life.start();
  life.advance_to(Phase::switched);
  life.roll_back();
  life.advance_to(Phase::switched);
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
  life.writers().stop();
}

TEST_F(IntToBigintTest, MisfitsOfANotNullColumnMustBeChangedBeforeTheSwitchBack) {
  auto s = scenario("int NOT NULL DEFAULT 42");
  Lifecycle life(dsn(), s);
  life.start();
  life.advance_to(Phase::switched);
  life.writers().pause();
  life.owner().run("UPDATE t SET b = 3000000000 WHERE id = 5; UPDATE t_twin SET b = 3000000000 WHERE id = 5");
  try {
    life.migrator().rollback(life.name(), {.to = {}, .accept = {{"misfits_open", "never mind"}}});
    FAIL() << "NULL in a NOT NULL column was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.what();
  }
  life.owner().run("UPDATE t SET b = 3 WHERE id = 5; UPDATE t_twin SET b = 3 WHERE id = 5");
  life.writers().resume();
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
}

TEST_F(IntToBigintTest, EveryPhaseRollsBackCompletelyInOneGo) {
  Lifecycle life(dsn(), scenario("int NOT NULL DEFAULT 42"));
  for (const auto phase :
       {Phase::dry_run, Phase::backfill, Phase::dual_write, Phase::compare, Phase::switched}) {
    life.start();
    life.advance_to(phase);
    life.migrator().rollback(life.name(), {.to = Phase::rolled_back, .accept = {}});
    life.check();
    life.check_restored();
  }
}

// With application transactions that deadlock with each other, and more of them.
TEST_F(IntToBigintTest, WritersThatDeadlockWithEachOtherLoseNothing) {
  auto s = scenario("int DEFAULT 1");
  s.writers.order = LockOrder::opposite;
  s.writers.writers = 8;
  Lifecycle life(dsn(), s);
  life.start();
  life.advance_to(Phase::compare);
  life.roll_back_to(Phase::dry_run);
  life.finish();
}

}  // namespace
}  // namespace crossfade::test

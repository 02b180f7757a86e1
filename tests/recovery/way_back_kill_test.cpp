// The way back from switched builds again what the switch took off the old column. Killed at each of its
// steps, the same command finishes it, or the next `next` takes it away; the application notices neither.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kill_points.hpp"
#include "recovery_test.hpp"

namespace crossfade::test {
namespace {

class WayBackKillTest : public RecoveryTest {
 protected:
  // What stands on the old column by now, valid or not.
  std::string owed() {
    return value(
        "SELECT coalesce(string_agg(CASE WHEN i.indisvalid THEN 'valid' ELSE 'broken' END, ' '), 'none')"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = 't'::regclass"
        " AND c.relname ~ '^t_(next|later|one)_cfold'");
  }
  std::string proof() {
    return value(
        "SELECT coalesce(string_agg(CASE WHEN convalidated THEN 'valid' ELSE 'new' END, ' '), 'none') FROM"
        " pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'");
  }
  // On the way back, at the point; what stands afterwards.
  void dies_on_the_way_back(const std::string& point, const std::string& indexes) {
    SCOPED_TRACE(point);
    killed(back(Phase::compare), point + "=abort");
    EXPECT_EQ(phase(), Phase::switched);
    EXPECT_EQ(status(), "settled");
    EXPECT_EQ(owed(), indexes);
    check_in_step();
  }
  // What a builder that died inside CREATE INDEX CONCURRENTLY leaves.
  void break_the_indexes() {
    super_sql(
        "UPDATE pg_index SET indisvalid = false FROM pg_class c WHERE c.oid = indexrelid"
        " AND indrelid = 't'::regclass AND c.relname ~ '^t_(next|later|one)_cfold'");
  }
};

// Computed with the column, so that the greatest integer would fail the write; and a replica identity, for
// which the old column must be proved NOT NULL again.
const std::string kComputed =
    "CREATE INDEX t_later ON t ((b + 1)); COMMENT ON INDEX t_later IS 'later';"
    "CREATE UNIQUE INDEX t_next ON t (id, (b + 2)) INCLUDE (n) WHERE b + 3 <> 0;"
    "CREATE UNIQUE INDEX t_identity ON t (b, id); ALTER TABLE t REPLICA IDENTITY USING INDEX t_identity";

TEST_F(WayBackKillTest, AtEveryStepOfTheRebuildTheSameCommandFinishesIt) {
  ddl_ = kComputed;
  make_table();
  start_writers();
  advance_to(Phase::switched);
  EXPECT_EQ(owed(), "none");
  dies_on_the_way_back("owed.counted", "none");
  dies_on_the_way_back("twin.intent", "none");
  dies_on_the_way_back("twin.built", "valid");
  // The builder had died inside: the leftover goes first, the other index is not begun before.
  break_the_indexes();
  dies_on_the_way_back(kAtLeftoverIndex.front(), "broken");
  dies_on_the_way_back(kAtLeftoverIndex.back(), "none");
  dies_on_the_way_back("twin.built", "valid");
  dies_on_the_way_back("twin.intent", "valid");
  dies_on_the_way_back("twin.built", "valid valid");
  EXPECT_EQ(proof(), "none");
  dies_on_the_way_back("way_back.proof", "valid valid");
  EXPECT_EQ(proof(), "new");
  dies_on_the_way_back("way_back.proof", "valid valid");
  EXPECT_EQ(proof(), "valid");
  dies_on_the_way_back("way_back.prepared", "valid valid");
  for (const auto moment : kMoments) {
    const auto point = kill_point(Phase::switched, Phase::compare, moment);
    SCOPED_TRACE(point);
    killed(back(Phase::compare), point + "=abort");
    EXPECT_EQ(phase(), moment == "sent" ? Phase::compare : Phase::switched);
    check_whole();
  }
  succeed(back(Phase::compare));
  succeed(next(Phase::compare));
  check_in_step();
  EXPECT_EQ(owed(), "none") << "they bear their own names again";
  // And there again, with nothing left of the first way back.
  succeed(next(Phase::switched));
  check_in_step();
  EXPECT_EQ(owed(), "none");
  succeed(back(Phase::rolled_back));
  check_restored();
}

// Two values may be one when they are rounded: the constraint and the index of the old column are shed.
const std::string kRounded =
    "ALTER TABLE t ADD CONSTRAINT t_one UNIQUE (b, id); COMMENT ON CONSTRAINT t_one ON t IS 'one';"
    "CREATE UNIQUE INDEX t_later ON t (id DESC, b) WHERE id > -5;"
    "ALTER TABLE t REPLICA IDENTITY USING INDEX t_one";

TEST_F(WayBackKillTest, AtEveryStepOfGivingItUpTheSameCommandTakesItAway) {
  ddl_ = kRounded;
  new_type_ = "numeric";
  make_table();
  start_writers();
  advance_to(Phase::switched);
  for (int round = 0; round < 2; ++round) {
    dies_on_the_way_back("way_back.prepared", "valid valid");
    EXPECT_EQ(proof(), "valid");
    if (round == 1) break_the_indexes();
    for (const auto& point : kInGivingUp) {
      SCOPED_TRACE(point);
      killed(next(Phase::switched), point + "=abort");
      EXPECT_EQ(phase(), Phase::switched);
      EXPECT_EQ(owed() == "none", point == "owed.dropped");
      EXPECT_EQ(proof(), "none") << "what fails most writes goes first";
      check_in_step();
    }
    succeed(next(Phase::switched));
    EXPECT_EQ(owed(), "none");
  }
  // Nothing of it is in the way of either end.
  dies_on_the_way_back("twin.built", "valid");
  succeed(back(Phase::rolled_back));
  check_restored();
  succeed({"start", spec_path()});
  succeed(next(Phase::switched));
  dies_on_the_way_back("twin.built", "valid");
  succeed(next(Phase::dropped));
  EXPECT_EQ(owed(), "none");
  EXPECT_EQ(
      value("SELECT string_agg(indexrelid::regclass::text, ' ' ORDER BY indexrelid::regclass::text) FROM"
            " pg_index WHERE indrelid = 't'::regclass AND indisvalid"),
      "t_b t_later t_one t_pkey");
  check_whole();
}

// Killed between the failed build and the dropping of what it left.
TEST_F(WayBackKillTest, WhereTheBuildFailsOnAValueTheSameCommandTakesAllOfItAwayAndTellsTheRow) {
  ddl_ = kComputed;
  make_table();
  advance_to(Phase::switched);
  // Only the second index, in the order of the ledger, fails on it.
  sql("UPDATE t SET b = 2147483646 WHERE id = 7; UPDATE t_twin SET b = 2147483646 WHERE id = 7");
  for (const auto* point : {"owed.dropping", "owed.dropped"}) {
    SCOPED_TRACE(point);
    killed(back(Phase::compare), std::string(point) + "=abort");
    EXPECT_EQ(phase(), Phase::switched);
    EXPECT_EQ(owed() == "none", std::string_view(point) == "owed.dropped");
  }
  const auto refused = crossfade(back(Phase::compare));
  EXPECT_EQ(refused.exit_status, 3);
  EXPECT_NE(refused.err.find("t_next"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("out of range"), std::string::npos) << refused.err;
  EXPECT_EQ(owed(), "none");
  sql("UPDATE t SET b = 5 WHERE id = 7; UPDATE t_twin SET b = 5 WHERE id = 7");
  succeed(back(Phase::rolled_back));
  check_restored();
}

}  // namespace
}  // namespace crossfade::test

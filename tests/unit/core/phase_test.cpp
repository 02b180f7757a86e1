#include "crossfade/core/phase.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace crossfade {
namespace {

TEST(PhaseTest, EveryPhaseHasOneTextThatReadsBack) {
  for (const Phase phase : kAllPhases) EXPECT_EQ(phase_from_text(to_text(phase)), phase) << to_text(phase);
  EXPECT_EQ(phase_from_text("Backfill"), std::nullopt);
  EXPECT_EQ(phase_from_text(""), std::nullopt);
}

TEST(PhaseTest, EveryStatusHasOneTextThatReadsBack) {
  for (const Status status : kAllStatuses)
    EXPECT_EQ(status_from_text(to_text(status)), status) << to_text(status);
  EXPECT_EQ(status_from_text("done"), std::nullopt);
}

TEST(PhaseTest, TextsAreTheWordsOfTheDesign) {
  EXPECT_EQ(to_text(Phase::dual_write), "dual_write");
  EXPECT_EQ(to_text(Phase::rolled_back), "rolled_back");
  EXPECT_EQ(to_text(Status::settled), "settled");
  EXPECT_EQ(to_text(Mode::swap), "swap");
  EXPECT_EQ(to_text(Mode::promote), "promote");
}

TEST(PhaseTest, NextWalksFromPlannedToDropped) {
  std::vector<Phase> walk{Phase::planned};
  while (const auto next = next_phase(walk.back())) walk.push_back(*next);
  EXPECT_EQ(walk, (std::vector{Phase::planned, Phase::dry_run, Phase::backfill, Phase::dual_write,
                               Phase::compare, Phase::switched, Phase::dropped}));
}

TEST(PhaseTest, RollbackWalksFromSwitchedToRolledBack) {
  std::vector<Phase> walk{Phase::switched};
  while (const auto back = rollback_phase(walk.back())) walk.push_back(*back);
  EXPECT_EQ(walk, (std::vector{Phase::switched, Phase::compare, Phase::dual_write, Phase::backfill,
                               Phase::dry_run, Phase::planned, Phase::rolled_back}));
}

TEST(PhaseTest, RollbackUndoesNextFromEveryOpenPhase) {
  for (const Phase phase : kAllPhases) {
    const auto next = next_phase(phase);
    if (!next || is_closed(*next)) continue;
    EXPECT_EQ(rollback_phase(*next), phase) << to_text(phase);
  }
}

TEST(PhaseTest, AClosedPhaseHasNoWayOut) {
  for (const Phase phase : kAllPhases) {
    EXPECT_EQ(is_closed(phase), !next_phase(phase)) << to_text(phase);
    EXPECT_EQ(is_closed(phase), !rollback_phase(phase)) << to_text(phase);
  }
}

TEST(PhaseTest, PrecedesIsTheOrderOfNext) {
  for (const Phase phase : kAllPhases) {
    if (const auto next = next_phase(phase)) {
      EXPECT_TRUE(precedes(phase, *next));
      EXPECT_FALSE(precedes(*next, phase));
    }
    EXPECT_FALSE(precedes(phase, phase));
  }
  EXPECT_TRUE(precedes(Phase::planned, Phase::dropped));
}

TEST(PhaseTest, RolledBackPrecedesNothingAndFollowsNothing) {
  for (const Phase phase : kAllPhases) {
    EXPECT_FALSE(precedes(phase, Phase::rolled_back)) << to_text(phase);
    EXPECT_FALSE(precedes(Phase::rolled_back, phase)) << to_text(phase);
  }
}

TEST(PhaseTest, CaptureExistsFromBackfillToSwitched) {
  for (const Phase phase : kAllPhases) {
    const bool expected = !precedes(phase, Phase::backfill) && !is_closed(phase);
    EXPECT_EQ(has_capture(phase), expected) << to_text(phase);
  }
}

TEST(PhaseTest, TheNewColumnIsPublicFromTheSwitchOn) {
  for (const Phase phase : kAllPhases) {
    const bool expected = phase == Phase::switched || phase == Phase::dropped;
    EXPECT_EQ(new_column_is_public(phase), expected) << to_text(phase);
  }
}

}  // namespace
}  // namespace crossfade

// The controller on a clock of its own: what it does to the rate, and what it says.
#include "pace/controller.hpp"

#include <gtest/gtest.h>

namespace crossfade::pace {
namespace {

using std::chrono::seconds;

class PaceControllerTest : public ::testing::Test {
 protected:
  // A second later, at `rate` rows per second.
  PaceOrder second(const std::vector<Reading>& readings) {
    now_ += seconds(1);
    return controller_.decide({now_, rate_, fixed_, left_}, readings);
  }
  static Reading slows(double pressure) {
    return {"probe", Response::slows, pressure, "probe p99 80 ms", "50 ms"};
  }
  static Reading waits(double pressure) {
    return {"replay_lag", Response::waits, pressure, "replay lag 14 s", "10 s"};
  }
  static Reading unreadable() {
    return {"probe", Response::slows, std::nullopt, "the probe fails: gone", ""};
  }

  Controller controller_;
  Time now_{};
  double rate_ = 10000;
  std::int64_t fixed_ = 0;
  std::optional<std::int64_t> left_;
};

TEST_F(PaceControllerTest, WithNothingToReadThereIsNoLimit) {
  const auto order = second({});
  EXPECT_EQ(order.state, PaceState::running);
  EXPECT_EQ(order.limit_rows_per_second, 0);
  EXPECT_EQ(order.reason, "");
}

TEST_F(PaceControllerTest, ABrokenLimitTakesAThirdEveryTwoSecondsAndSaysWhy) {
  auto order = second({slows(1.6)});
  EXPECT_EQ(order.state, PaceState::throttled);
  EXPECT_EQ(order.limit_rows_per_second, 6700);
  EXPECT_EQ(order.signal, "probe");
  EXPECT_EQ(order.reason, "probe p99 80 ms > 50 ms");
  EXPECT_TRUE(controller_.lowered());
  order = second({slows(1.6)});
  EXPECT_EQ(order.limit_rows_per_second, 6700) << "the effect of a step is waited for";
  EXPECT_FALSE(controller_.lowered());
  EXPECT_EQ(second({slows(1.6)}).limit_rows_per_second, 4489);
}

TEST_F(PaceControllerTest, ALimitAboveWhatIsDoneSlowsNothing) {
  second({slows(1.6)});
  rate_ = 300;
  now_ += seconds(1);
  EXPECT_EQ(second({slows(1.6)}).limit_rows_per_second, 201);
}

TEST_F(PaceControllerTest, NoSignalThatSlowsEverStopsIt) {
  PaceOrder order;
  for (int i = 0; i < 200; ++i) {
    order = second({slows(9)});
    rate_ = static_cast<double>(order.limit_rows_per_second);
  }
  EXPECT_EQ(order.state, PaceState::throttled);
  EXPECT_EQ(order.limit_rows_per_second, 10);
}

TEST_F(PaceControllerTest, BetweenTheTwoThresholdsNothingChanges) {
  const auto before = second({slows(1.6)}).limit_rows_per_second;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(second({slows(0.9)}).limit_rows_per_second, before);
  EXPECT_EQ(second({slows(0.9)}).reason, "recovering from probe p99 80 ms > 50 ms");
}

TEST_F(PaceControllerTest, WhenAllIsClearItGrowsByTheSameEverySecondUntilThereIsNoLimit) {
  second({slows(1.6)});
  EXPECT_EQ(second({slows(0.1)}).limit_rows_per_second, 7200);
  EXPECT_EQ(second({slows(0.1)}).limit_rows_per_second, 7700);
  PaceOrder order;
  for (int steps = 0; steps < 5; ++steps) order = second({slows(0.1)});
  EXPECT_EQ(order.state, PaceState::running);
  EXPECT_EQ(order.limit_rows_per_second, 0);
  EXPECT_EQ(order.reason, "");
}

TEST_F(PaceControllerTest, AFixedLimitIsTheTopOfWhatItGrowsTo) {
  fixed_ = 1000;
  rate_ = 1000;
  EXPECT_EQ(second({slows(2)}).limit_rows_per_second, 670);
  EXPECT_EQ(second({slows(0)}).limit_rows_per_second, 720);
  Tuning tuning;
  tuning.rows_per_second = 500;
  EXPECT_EQ(second({slows(0.9)}).limit(tuning), 500) << "the lesser of both is in force";
  tuning.rows_per_second = 5000;
  EXPECT_EQ(second({slows(0.9)}).limit(tuning), 720);
}

TEST_F(PaceControllerTest, ASignalThatWaitsStopsItUntilItIsWellBelowAndThenAtHalfTheRate) {
  second({waits(0.5)});
  auto order = second({waits(1.4)});
  EXPECT_EQ(order.state, PaceState::paused);
  EXPECT_EQ(order.reason, "replay lag 14 s > 10 s");
  rate_ = 0;
  order = second({{"replay_lag", Response::waits, 0.9, "replay lag 9 s", "10 s"}});
  EXPECT_EQ(order.state, PaceState::paused) << "below the limit, not clear of it";
  EXPECT_EQ(order.reason, "replay lag 9 s, waiting for 80 % of 10 s");
  order = second({waits(0.5)});
  EXPECT_EQ(order.state, PaceState::throttled);
  EXPECT_EQ(order.limit_rows_per_second, 5000);
  EXPECT_EQ(second({waits(0.9)}).state, PaceState::throttled)
      << "it does not stop before the limit is broken";
}

TEST_F(PaceControllerTest, TheWorstOfSeveralIsTold) {
  EXPECT_EQ(
      second({waits(1.1), {"slot_wal", Response::waits, 3.0, "slot s keeps 3 GB of WAL", "1 GB"}}).reason,
      "slot s keeps 3 GB of WAL > 1 GB");
  EXPECT_EQ(second({{"free_disk", Response::waits, 4.0, "free disk 1 GB", "4 GB", '<'}}).reason,
            "free disk 1 GB < 4 GB");
}

TEST_F(PaceControllerTest, WhatCannotBeReadStopsItWhateverItsKind) {
  const auto order = second({waits(0.1), unreadable()});
  EXPECT_EQ(order.state, PaceState::paused);
  EXPECT_EQ(order.signal, "probe");
  EXPECT_EQ(order.reason, "the probe fails: gone");
  EXPECT_EQ(second({waits(0.1), slows(0.1)}).state, PaceState::throttled);
}

TEST_F(PaceControllerTest, APauseThatOutlastsTheWorkIsStarvation) {
  left_ = 50'000;
  second({});
  auto order = second({waits(2)});
  rate_ = 0;
  for (int i = 0; i < 5; ++i) order = second({waits(2)});
  EXPECT_FALSE(order.starved) << "50,000 rows at 10,000 in a second are five seconds";
  order = second({waits(2)});
  ASSERT_TRUE(order.starved);
  EXPECT_EQ(*order.starved, seconds(6));
  EXPECT_EQ(order.note(), "paused: replay lag 14 s > 10 s (starved for 6 s)");
  EXPECT_FALSE(second({waits(0)}).starved);
}

TEST_F(PaceControllerTest, WhereNobodyKnowsTheWorkAnHourIsStarvation) {
  rate_ = 0;
  second({waits(2)});
  now_ += seconds(3599);
  EXPECT_FALSE(second({waits(2)}).starved);
  EXPECT_TRUE(second({waits(2)}).starved);
}

}  // namespace
}  // namespace crossfade::pace

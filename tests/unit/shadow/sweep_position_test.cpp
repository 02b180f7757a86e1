#include "sweep_position.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "support/live_writers.hpp"

namespace crossfade {
namespace {

Key key(int number) { return {{std::to_string(number)}}; }
int number(const Key& k) { return std::stoi(k.parts.at(0)); }

TEST(SweepPositionTest, WithoutAWindowTheWatermarkFollowsTheChunk) {
  SweepPosition at;
  EXPECT_FALSE(at.low(std::nullopt));
  EXPECT_EQ(at.low(key(3)), key(3));
  at = at.after(key(7));
  EXPECT_EQ(at.watermark, key(7));
  EXPECT_EQ(at.low(key(3)), key(7));
  EXPECT_FALSE(at.takes_a_share());
}

// Every line pointer has one visit before the last, or is left to the last; no two visits have the same.
TEST(SweepPositionTest, TheSharesOfAWindowAreDisjointAndLeaveOneToTheLastVisit) {
  for (const int visits : {2, 3, 8, 11, 12, 15, 64}) {
    auto at = SweepPosition{}.with_window({key(20)}, visits);
    std::vector<int> times(static_cast<std::size_t>(at.share().modulus), 0);
    EXPECT_EQ(at.share().last - at.share().first, visits < 12 ? 0 : 1);
    for (; at.takes_a_share(); at = at.after(key(20))) {
      const auto share = at.share();
      EXPECT_EQ(share.modulus, std::ssize(times));
      for (int i = share.first; i <= share.last; ++i) ++times.at(static_cast<std::size_t>(i));
    }
    EXPECT_EQ(std::ranges::count(times, 1), std::ssize(times) - 1) << visits;
    EXPECT_EQ(times.back(), 0) << visits;
  }
}

TEST(SweepPositionTest, AWindowIsSweptVisitByVisitAndTheWatermarkMovesAtItsEnd) {
  auto at = SweepPosition{}.after(key(10)).with_window({key(20), key(30)}, 2);
  EXPECT_EQ(at.low(std::nullopt), key(10));
  EXPECT_EQ(at.piece_high(), key(20));
  EXPECT_TRUE(at.takes_a_share());
  at = at.after(key(20));
  EXPECT_EQ(at.low(std::nullopt), key(20));
  at = at.after(key(25));
  EXPECT_EQ(at.low(std::nullopt), key(25));
  EXPECT_EQ(at.piece_high(), key(30));
  at = at.after(key(30));
  EXPECT_FALSE(at.takes_a_share()) << "the last visit takes every row";
  EXPECT_EQ(at.low(std::nullopt), key(10));
  EXPECT_EQ(at.watermark, key(10));
  at = at.after(key(20)).after(key(30));
  EXPECT_FALSE(at.in_window());
  EXPECT_EQ(at, SweepPosition{}.after(key(30)));
}

TEST(SweepPositionTest, AWindowThatIsGivenUpLeavesTheWatermark) {
  const auto before = SweepPosition{}.after(key(10));
  EXPECT_EQ(before.with_window({key(20), key(30)}, 8).after(key(20)).after(key(22)).without_window(), before);
  EXPECT_EQ(SweepPosition{}.with_window({key(20)}, 8).without_window(), SweepPosition{});
}

// Whatever the windows, however a piece is cut: every visit covers the window once, without a gap, and only
// keys that a visit without a share has covered lie below the watermark.
TEST(SweepPositionTest, TheLastVisitCoversWhatTheWatermarkPasses) {
  const auto seed = test::test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  for (int round = 0; round < 200; ++round) {
    const int end = 1 + below(200);
    SweepPosition at;
    int covered = 0;  // by chunks that take every row
    while (!at.watermark || number(*at.watermark) < end) {
      const int from = at.watermark ? number(*at.watermark) : 0;
      ASSERT_LE(from, covered);
      if (!at.in_window() && below(2) == 0) {
        std::vector<Key> bounds;
        for (int bound = from; bound < end && (bounds.empty() || below(6) > 0);)
          bounds.push_back(key(bound = std::min(end, bound + 1 + below(30))));
        at = at.with_window(bounds, 2 + below(5));
      } else if (at.in_window() && below(100) == 0) {
        at = at.without_window();
        ASSERT_EQ(at.watermark ? number(*at.watermark) : 0, from);
      }
      const auto low = at.low(std::nullopt);
      const int first = low ? number(*low) : 0;
      const int limit = at.in_window() ? number(at.piece_high()) : end;
      const int upper = below(2) == 0 ? limit : first + 1 + below(limit - first);
      if (!at.takes_a_share()) {
        ASSERT_LE(first, covered) << "a gap";
        covered = std::max(covered, upper);
      }
      const auto visit = std::pair(at.visit, at.piece);
      at = at.after(key(upper));
      if (at.in_window()) {
        ASSERT_GE(std::pair(at.visit, at.piece), visit);
      }
    }
    EXPECT_EQ(covered, end);
  }
}

TEST(SweepPositionTest, ABoundOfBlocksIsTheirNumber) {
  EXPECT_EQ(block_of(block_bound(4'294'967'295)), 4'294'967'295);
}

}  // namespace
}  // namespace crossfade

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "crossfade/core/tuning.hpp"

namespace crossfade {
namespace {

constexpr std::array<std::string_view, 4> kWords{"workers", "order", "interleave", "max_rejects"};

TEST(NearestTest, FindsTheWordThatWasMeant) {
  EXPECT_EQ(nearest("wokers", kWords), "workers");
  EXPECT_EQ(nearest("odrer", kWords), "order");
  EXPECT_EQ(nearest("max_reject", kWords), "max_rejects");
  EXPECT_EQ(nearest("order", kWords), "order");
}

TEST(NearestTest, ThreeEditsAreNearAndFourAreNot) {
  EXPECT_EQ(nearest("interlxxx", kWords), std::nullopt);
  EXPECT_EQ(nearest("interlexxx", kWords), "interleave");
}

TEST(NearestTest, AWordOfWhichNothingIsLeftIsNotNear) {
  constexpr std::array<std::string_view, 1> kShort{"abc"};
  EXPECT_EQ(nearest("xyz", kShort), std::nullopt);
  EXPECT_EQ(nearest("", kShort), std::nullopt);
}

TEST(NearestTest, TheFirstOfTwoEquallyNearWordsWins) {
  constexpr std::array<std::string_view, 2> kTwins{"before_x", "before_y"};
  EXPECT_EQ(nearest("before_z", kTwins), "before_x");
}

TEST(NearestTest, AHugeWordIsNearNothing) {
  EXPECT_EQ(nearest(std::string(10'000'000, 'x'), kWords), std::nullopt);
}

}  // namespace
}  // namespace crossfade

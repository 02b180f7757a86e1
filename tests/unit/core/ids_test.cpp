#include "crossfade/core/ids.hpp"

#include <gtest/gtest.h>

namespace crossfade {
namespace {

TEST(MigrationIdTest, ShortHexIsTheFirstTwelveDigitsWithoutDashes) {
  EXPECT_EQ(MigrationId{"0f8fad5b-d9cb-469f-a165-70867728950e"}.short_hex(), "0f8fad5bd9cb");
}

TEST(MigrationIdTest, ShortHexOfAShorterTextIsAllOfIt) {
  EXPECT_EQ(MigrationId{"0f8f-ad"}.short_hex(), "0f8fad");
}

TEST(KeyRangeTest, RangesAreEqualWhenBothBoundsAre) {
  const KeyRange open{std::nullopt, Key{{"1", "a"}}};
  EXPECT_EQ(open, (KeyRange{std::nullopt, Key{{"1", "a"}}}));
  EXPECT_NE(open, (KeyRange{Key{{}}, Key{{"1", "a"}}}));
}

}  // namespace
}  // namespace crossfade

#include <gtest/gtest.h>

#include "crossfade/core/tuning.hpp"

namespace crossfade {
namespace {

using std::chrono::milliseconds;

TEST(DurationTest, ReadsDigitsAndOneUnit) {
  EXPECT_EQ(parse_duration("200ms"), milliseconds(200));
  EXPECT_EQ(parse_duration("90s"), std::chrono::seconds(90));
  EXPECT_EQ(parse_duration("15min"), std::chrono::minutes(15));
  EXPECT_EQ(parse_duration("24h"), std::chrono::hours(24));
  EXPECT_EQ(parse_duration("1d"), std::chrono::hours(24));
  EXPECT_EQ(parse_duration("0ms"), milliseconds(0));
}

TEST(DurationTest, AnythingElseIsMalformed) {
  for (const char* text :
       {"", "5", "ms", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1S", "1m", "1h30min", "1e3ms", "0x1s",
        "99999999999999999999ms", "9223372036854775807s", "106751991168d"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(DurationTest, TheLargestDurationIsRead) {
  EXPECT_EQ(parse_duration("9223372036854775807ms"), milliseconds::max());
}

TEST(DurationTest, IsWrittenInTheLargestExactUnit) {
  EXPECT_EQ(format_duration(milliseconds(0)), "0ms");
  EXPECT_EQ(format_duration(milliseconds(200)), "200ms");
  EXPECT_EQ(format_duration(milliseconds(90'000)), "90s");
  EXPECT_EQ(format_duration(milliseconds(60'000)), "1min");
  EXPECT_EQ(format_duration(std::chrono::hours(1)), "1h");
  EXPECT_EQ(format_duration(std::chrono::hours(24)), "1d");
  EXPECT_EQ(format_duration(std::chrono::hours(36)), "36h");
}

TEST(DurationTest, WhatIsWrittenReadsBack) {
  for (const std::int64_t count :
       {0LL, 1LL, 999LL, 1'000LL, 61'000LL, 3'600'000LL, 86'400'001LL, 9'223'372'036'854'775'807LL}) {
    EXPECT_EQ(parse_duration(format_duration(milliseconds(count))), milliseconds(count)) << count;
  }
}

}  // namespace
}  // namespace crossfade

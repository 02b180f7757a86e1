#include "expectation.hpp"

#include <gtest/gtest.h>

namespace crossfade {
namespace {

TEST(ExpectationTest, ReadsPercentagesAndRanges) {
  const auto percent = parse_expectation("0.5%");
  ASSERT_TRUE(percent);
  EXPECT_TRUE(percent->percent);
  EXPECT_EQ(percent->low, 0.5);
  EXPECT_EQ(percent->high, 0.5);
  const auto counts = parse_expectation("10..20");
  ASSERT_TRUE(counts);
  EXPECT_FALSE(counts->percent);
  EXPECT_EQ(counts->low, 10);
  EXPECT_EQ(counts->high, 20);
  const auto percents = parse_expectation("0%..99.9%");
  ASSERT_TRUE(percents);
  EXPECT_EQ(percents->high, 99.9);
  EXPECT_EQ(percents->text, "0%..99.9%");
}

TEST(ExpectationTest, AnythingElseIsMalformed) {
  for (const char* text : {"",       "5",         "%",     "..",    "1..",
                           "..1",    "2..1",      "1..2%", "1%..2", "101%",
                           "-1%",    "+1%",       "1.%",   ".5%",   "1..2..3",
                           "1...2",  "1.5..2",    "1e3%",  "nan%",  "inf%",
                           " 1%",    "1 %",       "0x1%",  "1%%",   "0..99999999999999999999",
                           "1.2.3%", "0%..100.1%"}) {
    EXPECT_FALSE(parse_expectation(text)) << text;
  }
}

TEST(ExpectationTest, ACountIsMetByThatCountAlone) {
  const Expectation zero{0, 0, false, "0"};
  EXPECT_TRUE(zero.met_by(0, 100));
  EXPECT_FALSE(zero.met_by(1, 100));
}

TEST(ExpectationTest, BothEndsOfARangeMeetIt) {
  const auto range = parse_expectation("10..20");
  EXPECT_FALSE(range->met_by(9, 100));
  EXPECT_TRUE(range->met_by(10, 100));
  EXPECT_TRUE(range->met_by(20, 100));
  EXPECT_FALSE(range->met_by(21, 100));
}

TEST(ExpectationTest, PercentagesAreOfTheRowsRead) {
  const auto tenth = parse_expectation("0.1%");
  EXPECT_TRUE(tenth->met_by(1, 1000));
  EXPECT_TRUE(tenth->met_by(3'000'000, 3'000'000'000));
  EXPECT_FALSE(tenth->met_by(2, 1000));
  EXPECT_TRUE(parse_expectation("100%")->met_by(7, 7));
}

TEST(ExpectationTest, AnEmptyTableMeetsEveryPercentageAndNotEveryCount) {
  EXPECT_TRUE(parse_expectation("5%")->met_by(0, 0));
  EXPECT_FALSE(parse_expectation("5..6")->met_by(0, 0));
}

TEST(ExpectationTest, EqualExpectationsHaveEqualCanonicalText) {
  EXPECT_EQ(canonical_text(*parse_expectation("5%")), canonical_text(*parse_expectation("5.0%..05%")));
  EXPECT_EQ(canonical_text(Expectation{0, 0, false, "0"}), "0..0");
  EXPECT_EQ(canonical_text(*parse_expectation("0..90000000000000")), "0..90000000000000");
}

}  // namespace
}  // namespace crossfade

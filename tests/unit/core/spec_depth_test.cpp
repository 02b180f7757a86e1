#include "spec_depth.hpp"

#include <gtest/gtest.h>

namespace crossfade {
namespace {

TEST(SpecDepthTest, DotsOfKeysAndHeadersCount) {
  EXPECT_EQ(count_key_dots(""), 0U);
  EXPECT_EQ(count_key_dots("[a.b]\nc.d.e = 1\n"), 3U);
  EXPECT_EQ(count_key_dots("\"a\".'b'.c = 1"), 2U);
}

TEST(SpecDepthTest, DotsOfStringsAndCommentsDoNot) {
  EXPECT_EQ(count_key_dots("# a.b \"\nc = \"d.e\\\".f\" # g.h\ni = '.\\'"), 0U);
  EXPECT_EQ(count_key_dots("a = \"\"\"x.y\n\"\" z.\\\"\"\"\"\"\nb = '''it's.\n'''''\n"), 0U);
  EXPECT_EQ(count_key_dots("a = \"\"\nb.c = ''\n"), 1U);
}

TEST(SpecDepthTest, AStringThatNeverEndsHidesOnlyItself) {
  EXPECT_EQ(count_key_dots("a = \"x.y\nb.c = 1"), 1U);
  EXPECT_EQ(count_key_dots("a = '''x.y\nb.c = 1"), 0U);
  EXPECT_EQ(count_key_dots("a = \"x\\"), 0U);
}

}  // namespace
}  // namespace crossfade

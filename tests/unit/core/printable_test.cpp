#include "crossfade/core/printable.hpp"

#include <gtest/gtest.h>

namespace crossfade {
namespace {

TEST(PrintableTest, PlainTextIsLeftAlone) { EXPECT_EQ(printable("größe \"x\" \\"), "größe \"x\" \\"); }

TEST(PrintableTest, ControlCharactersAreSpelledOut) {
  EXPECT_EQ(printable(std::string_view("a\nb\0c\x1b[2J\x7f", 10)), R"(a\u000ab\u0000c\u001b[2J\u007f)");
  EXPECT_EQ(printable("\xC2\x9B"), R"(\u009b)");
  EXPECT_EQ(printable("\xC2\xA0"), "\xC2\xA0");
}

TEST(PrintableTest, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef…");
  EXPECT_EQ(printable("abcdeöx", 6), "abcde…");
  EXPECT_EQ(printable("abcdöx", 6), "abcdö…");
}

}  // namespace
}  // namespace crossfade

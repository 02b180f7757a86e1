#include <gtest/gtest.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"

namespace crossfade {
namespace {

using namespace std::string_literals;
using Values = std::vector<std::optional<std::string>>;

TEST(ArrayTextTest, EveryElementIsQuotedAndNullIsNot) {
  EXPECT_EQ(array_literal(Values{}), "{}");
  EXPECT_EQ(array_literal(Values{"a", std::nullopt, "NULL", ""}), R"({"a",NULL,"NULL",""})");
  EXPECT_EQ(array_literal(Values{R"(a"b)", R"(c\d)", "{e,f}"}), R"({"a\"b","c\\d","{e,f}"})");
  EXPECT_EQ(array_literal(Key{{"1", "x y"}}), R"({"1","x y"})");
}

TEST(ArrayTextTest, ReadsWhatPostgresWrites) {
  EXPECT_EQ(parse_array("{}"), Values{});
  EXPECT_EQ(parse_array("{1,2}"), (Values{"1", "2"}));
  EXPECT_EQ(parse_array(R"({a,NULL,"NULL","","a\"b","c\\d","{e,f}",größe})"),
            (Values{"a", std::nullopt, "NULL", "", R"(a"b)", R"(c\d)", "{e,f}", "größe"}));
}

TEST(ArrayTextTest, WhatIsWrittenReadsBack) {
  const Values hostile{"'; DROP TABLE t; --", "\"", "\\", "\\\"", ",", "{", "}", " ", "\n", "", "NULL",
                       std::nullopt,          "価"};
  EXPECT_EQ(parse_array(array_literal(hostile)), hostile);
  EXPECT_EQ(parse_key(array_literal(Key{{"1", "", "a,b"}})), (Key{{"1", "", "a,b"}}));
}

TEST(ArrayTextTest, MalformedTextIsAnInternalErrorThatRepeatsNoValue) {
  for (const std::string text : {"", "{", "}", "{a", "{a,", "{,}", "{a,}", "{\"a", "{\"a\\", "{\"a\"b}",
                                 "{a}b", "{{a}}", "[0:1]={a,b}", "{a b}", "a,b", "{a\\", "{a}}"}) {
    try {
      parse_array(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal_error) << text;
      EXPECT_NE(error.message().find("malformed"), std::string::npos);
    }
  }
}

TEST(ArrayTextTest, AKeyHasNoNullPart) { EXPECT_THROW(parse_key("{1,NULL}"), Error); }

TEST(ArrayTextTest, ANulByteIsRefused) { EXPECT_THROW(array_literal(Values{"a\0b"s}), Error); }

}  // namespace
}  // namespace crossfade

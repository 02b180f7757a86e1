#include "crossfade/core/identifier.hpp"

#include <set>

#include <gtest/gtest.h>

#include "crossfade/core/error.hpp"

namespace crossfade {
namespace {

using namespace std::string_literals;

const MigrationId kId{"0f8fad5b-d9cb-469f-a165-70867728950e"};

template <class Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::internal_error;
}

TEST(QuoteIdentifierTest, HostileNamesStayInsideTheirQuotes) {
  EXPECT_EQ(quote_identifier("abalance"), R"("abalance")");
  EXPECT_EQ(quote_identifier("Order"), R"("Order")");
  EXPECT_EQ(quote_identifier(R"(a"b)"), R"("a""b")");
  EXPECT_EQ(quote_identifier(R"("")"), R"("""""")");
  EXPECT_EQ(quote_identifier(R"(a\b)"), R"("a\b")");
  EXPECT_EQ(quote_identifier("it's"), R"("it's")");
  EXPECT_EQ(quote_identifier("x; DROP TABLE t; --"), R"("x; DROP TABLE t; --")");
  EXPECT_EQ(quote_identifier(R"(x"; DROP TABLE t; --)"), R"("x""; DROP TABLE t; --")");
  EXPECT_EQ(quote_identifier("größe\n価格"), "\"größe\n価格\"");
}

TEST(QuoteIdentifierTest, AnEmptyNameAndANulByteAreRefused) {
  EXPECT_EQ(code_of([] { quote_identifier(""); }), ErrorCode::spec_bad_value);
  EXPECT_EQ(code_of([] { quote_identifier("a\0b"s); }), ErrorCode::spec_bad_value);
}

TEST(QuoteLiteralTest, UsesTheEscapeFormOnlyForABackslash) {
  EXPECT_EQ(quote_literal(""), "''");
  EXPECT_EQ(quote_literal("it's"), "'it''s'");
  EXPECT_EQ(quote_literal("'; DROP TABLE t; --"), "'''; DROP TABLE t; --'");
  EXPECT_EQ(quote_literal(R"(a\b)"), R"(E'a\\b')");
  EXPECT_EQ(quote_literal(R"(\')"), R"(E'\\''')");
  EXPECT_EQ(quote_literal("價\n$$"), "'價\n$$'");
}

TEST(QuoteLiteralTest, ANulByteIsRefused) {
  EXPECT_EQ(code_of([] { quote_literal("a\0b"s); }), ErrorCode::spec_bad_value);
}

TEST(QuoteLiteralTest, AnAbsentValueIsNull) {
  EXPECT_EQ(quote_nullable(std::nullopt), "NULL");
  EXPECT_EQ(quote_nullable("NULL"), "'NULL'");
}

TEST(DisplayTest, QuotesOnlyWhereSqlNeedsIt) {
  EXPECT_EQ(display_identifier("abalance"), "abalance");
  EXPECT_EQ(display_identifier("_x1"), "_x1");
  EXPECT_EQ(display_identifier("1x"), R"("1x")");
  EXPECT_EQ(display_identifier("Abalance"), R"("Abalance")");
  EXPECT_EQ(display_identifier("a$b"), R"("a$b")");
  EXPECT_EQ(display_identifier("größe"), R"("größe")");
  EXPECT_EQ(display_identifier("order"), R"("order")");
  EXPECT_EQ(display_identifier("bigint"), R"("bigint")");
  EXPECT_EQ(display_identifier("name"), "name");
  EXPECT_EQ((QualifiedName{"public", "user"}.display()), R"(public."user")");
  EXPECT_EQ((QualifiedName{"public", "user"}.sql()), R"("public"."user")");
}

TEST(ParseIdentifierTest, FoldsUnquotedAsciiAndKeepsQuotedText) {
  EXPECT_EQ(parse_identifier("ABalance"), "abalance");
  EXPECT_EQ(parse_identifier(R"("ABalance")"), "ABalance");
  EXPECT_EQ(parse_identifier(R"( "a""b" )"), R"(a"b)");
  EXPECT_EQ(parse_identifier("GRÖSSE"), "grÖsse");
  EXPECT_EQ(parse_identifier("a$1"), "a$1");
}

TEST(ParseIdentifierTest, WhatIsNotOneNameIsRefused) {
  for (const std::string text :
       {"", " ", "a.b", "1a", "a b", "a;", R"("a)", R"("")", R"(U&"d")", "a-b", "$a"}) {
    EXPECT_EQ(code_of([&] { parse_identifier(text); }), ErrorCode::spec_bad_value) << text;
  }
}

TEST(ParseIdentifierTest, ANameThatPostgresWouldCutIsRefused) {
  EXPECT_EQ(parse_identifier(std::string(63, 'a')).size(), 63U);
  EXPECT_EQ(code_of([] { parse_identifier(std::string(64, 'a')); }), ErrorCode::spec_bad_value);
}

TEST(QualifiedNameTest, ParsesAsSqlDoes) {
  EXPECT_EQ(QualifiedName::parse("Public.Accounts"), (QualifiedName{"public", "accounts"}));
  EXPECT_EQ(QualifiedName::parse(R"("Shop"."It ""is"".odd")"), (QualifiedName{"Shop", R"(It "is".odd)"}));
  EXPECT_EQ(QualifiedName::parse(" shop . \"Items\"\t"), (QualifiedName{"shop", "Items"}));
  EXPECT_EQ(QualifiedName::parse(R"(public."x; DROP TABLE t; --")"),
            (QualifiedName{"public", "x; DROP TABLE t; --"}));
}

TEST(QualifiedNameTest, WhatIsShownReadsBack) {
  for (const QualifiedName& name : {QualifiedName{"public", "t"}, QualifiedName{"S\"s", "größe.x"},
                                    QualifiedName{"order", "Mixed Case"}}) {
    EXPECT_EQ(QualifiedName::parse(name.sql()), name);
    EXPECT_EQ(QualifiedName::parse(name.display()), name);
  }
}

TEST(QualifiedNameTest, AMissingSchemaIsRefusedNamingTheText) {
  try {
    QualifiedName::parse("accounts");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::spec_bad_value);
    EXPECT_EQ(error.message(), "The name 'accounts' lacks its schema.");
  }
}

TEST(QualifiedNameTest, WrongSyntaxIsRefused) {
  for (const std::string text :
       {"", ".", "a.", ".a", "a..b", "a.b.c", "a.b;", "a.b c", R"(a."b)", "a.1b", R"("".b)", R"(a."b"c)"}) {
    EXPECT_EQ(code_of([&] { QualifiedName::parse(text); }), ErrorCode::spec_bad_value) << text;
  }
  EXPECT_EQ(code_of([] { QualifiedName::parse("a.\"b\0c\""s); }), ErrorCode::spec_bad_value);
}

TEST(NameWithSuffixTest, AShortNameIsKeptWhole) {
  EXPECT_EQ(name_with_suffix("abalance", "_new"), "abalance_new");
}

TEST(NameWithSuffixTest, TheResultFillsSixtyThreeBytesAndNoMore) {
  EXPECT_EQ(name_with_suffix(std::string(59, 'a'), "_new"), std::string(59, 'a') + "_new");
  EXPECT_EQ(name_with_suffix(std::string(63, 'a'), "_new"), std::string(59, 'a') + "_new");
}

TEST(NameWithSuffixTest, ACharacterIsNeverSplit) {
  EXPECT_EQ(name_with_suffix(std::string(58, 'a') + "ö", "_new"), std::string(58, 'a') + "_new");
  EXPECT_EQ(name_with_suffix(std::string(57, 'a') + "öx", "_new"), std::string(57, 'a') + "ö_new");
  EXPECT_EQ(name_with_suffix(std::string(56, 'a') + "😀", "_new"), std::string(56, 'a') + "_new");
  EXPECT_EQ(name_with_suffix(std::string(55, 'a') + "😀x", "_new"), std::string(55, 'a') + "😀_new");
}

TEST(NameWithSuffixTest, EveryLengthOfMultibyteNamesStaysInBounds) {
  for (const std::string character : {"a", "ö", "価", "😀"}) {
    std::string name;
    for (int i = 0; i < 70; ++i) {
      const std::string shortened = name_with_suffix(name, "_cfnew_0f8fad5bd9cb");
      EXPECT_LE(shortened.size(), kMaxIdentifierBytes);
      EXPECT_EQ((shortened.size() - 19) % character.size(), 0U);
      name += character;
    }
  }
}

TEST(GeneratedNamesTest, NamesAreMadeFromTheObjectAndTheMigration) {
  const GeneratedNames names(kId);
  EXPECT_EQ(names.shadow_column("abalance"), "abalance_cfnew_0f8fad5bd9cb");
  EXPECT_EQ(names.retired_column("abalance"), "abalance_cfold_0f8fad5bd9cb");
  EXPECT_EQ(names.twin("accounts_idx"), "accounts_idx_cftwin_0f8fad5bd9cb");
  EXPECT_EQ(names.retired("accounts_idx"), "accounts_idx_cfold_0f8fad5bd9cb");
  EXPECT_EQ(names.not_null_check("abalance"), "abalance_cfnn_0f8fad5bd9cb");
  EXPECT_EQ(names.function("forward"), "forward_0f8fad5bd9cb");
  EXPECT_EQ(names.trigger("insert"), "~~~crossfade_insert_0f8fad5bd9cb");
  EXPECT_EQ(names.archive_table("accounts"), "accounts_cfarchive_0f8fad5bd9cb");
}

TEST(GeneratedNamesTest, LongNamesThatBeginAlikeStayApart) {
  const GeneratedNames names(kId);
  std::set<std::string> made;
  for (char last = 'a'; last <= 'z'; ++last) {
    const std::string column = std::string(62, 'x') + last;
    made.insert(names.shadow_column(column));
    EXPECT_EQ(names.shadow_column(column), names.shadow_column(column));
  }
  EXPECT_EQ(made.size(), 26U);
  for (const std::string& name : made) {
    EXPECT_EQ(name.size(), kMaxIdentifierBytes);
    EXPECT_TRUE(name.ends_with("_cfnew_0f8fad5bd9cb")) << name;
  }
}

TEST(GeneratedNamesTest, TheTriggerSortsAfterSaneNames) {
  const std::string trigger = GeneratedNames(kId).trigger("update");
  for (const std::string name : {"zzz", "~audit", "z_last", "RI_ConstraintTrigger_a_1", "_x"})
    EXPECT_LT(name, trigger);
}

}  // namespace
}  // namespace crossfade

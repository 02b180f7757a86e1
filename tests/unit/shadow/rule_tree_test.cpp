// The texts are from pg_rewrite.ev_action of PostgreSQL 15, shortened.
#include "rule_tree.hpp"

#include <gtest/gtest.h>

namespace crossfade {
namespace {

TEST(RuleTreeTest, TellsFunctionsOperatorsAndColumns) {
  const auto facts = rule_tree_facts(
      "({QUERY :commandType 1 :targetList ({TARGETENTRY :expr {OPEXPR :opno 551 :opfuncid 177 :opresulttype "
      "23 "
      ":args ({VAR :varno 1 :varattno 2 :vartype 23 :varattnosyn 2} {FUNCEXPR :funcid 1598 :funcresulttype "
      "23 "
      ":args <> :location 9}) :location 8} :resno 1 :resname cf_value})})");
  EXPECT_EQ(facts.functions, (std::set<std::uint32_t>{177, 1598}));
  EXPECT_TRUE(facts.operators.empty());
  EXPECT_EQ(facts.columns, (std::set<int>{2}));
  EXPECT_TRUE(facts.readable);
}

TEST(RuleTreeTest, AnOperatorWithoutItsFunctionIsLookedUp) {
  const auto facts = rule_tree_facts(
      "({OPEXPR :opno 551 :opfuncid 0 :args <>} {ROWCOMPAREEXPR :opnos (o 97 664) :largs <> :rargs <>})");
  EXPECT_TRUE(facts.functions.empty());
  EXPECT_EQ(facts.operators, (std::set<std::uint32_t>{97, 551, 664}));
}

TEST(RuleTreeTest, AConversionThroughTextReachesOutputAndInput) {
  const auto facts = rule_tree_facts(
      "{COERCEVIAIO :arg {CASEEXPR :casetype 1184 :args ({VAR :varattno 3 :vartype 1184}) :defresult <>} "
      ":resulttype 25 :location -1}");
  EXPECT_EQ(facts.output_types, (std::set<std::uint32_t>{1184}));
  EXPECT_EQ(facts.input_types, (std::set<std::uint32_t>{25}));
  EXPECT_TRUE(facts.readable);
  EXPECT_FALSE(rule_tree_facts("{COERCEVIAIO :arg {NEWNODE :what 1} :resulttype 25}").readable);
}

TEST(RuleTreeTest, NodesThatAreNoFunctionsCount) {
  const auto facts = rule_tree_facts(
      "({SQLVALUEFUNCTION :op 0 :type 1082} {NEXTVALUEEXPR :seqid 5 :typeId 23} {VAR :varattno 0} "
      "{VAR :varattno -6})");
  EXPECT_EQ(facts.stable, (std::set<std::string>{"CURRENT_DATE"}));
  EXPECT_EQ(facts.volatile_, (std::set<std::string>{"nextval"}));
  EXPECT_EQ(facts.columns, (std::set<int>{-6, 0}));
}

// A column may be called like anything.
TEST(RuleTreeTest, AWordWithEscapesIsOneWord) {
  const auto facts = rule_tree_facts(
      R"({ALIAS :aliasname \{FUNCEXPR\ :funcid\ 7\} :colnames ("a\)b" "\\")} {FUNCEXPR :funcid 8})");
  EXPECT_EQ(facts.functions, (std::set<std::uint32_t>{8}));
}

}  // namespace
}  // namespace crossfade

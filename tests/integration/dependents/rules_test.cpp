// Every row of the table in docs/dependents.md has its case: one that leads it through the whole life, or
// that shows it refused by name.
#include "crossfade/shadow/dependents.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <ostream>
#include <set>

namespace crossfade {
void PrintTo(const DependentRule& rule, std::ostream* out) { *out << rule.object; }
}  // namespace crossfade

namespace crossfade::test {
namespace {

using Tests = std::vector<std::string>;

std::string life(const std::string& group, const std::string& name) {
  return fmt::format("dependents_{}/LedgerLifecycleTest.ForwardSwitchedRolledBackAndDropped/{}", group, name);
}
std::string refused(const std::string& name) {
  return "dependents_refused/RefusedCasesTest.IsNamedAndTheLifeGoesOnWithoutIt/" + name;
}
std::string only_named(const std::string& group, const std::string& name) {
  return fmt::format("{}/RefusedDependentTest.IsNamed/{}", group, name);
}

// By the first column of the table, which is told apart by its words.
const std::map<std::string, Tests>& cases() {
  static const std::map<std::string, Tests> all{
      {"NOT NULL",
       {life("properties", "NotNull"), life("properties", "NotNullWhereTheExpressionMayGiveNull")}},
      {"DEFAULT",
       {life("properties", "Default"), life("properties", "DefaultThroughTheExpression"),
        life("properties", "DefaultOfEachRow"), life("properties", "DefaultFromASequenceOfItsOwn"),
        "DependentsTest.ADefaultThatForwardCannotConvertIsAMisfit"}},
      {"COMMENT on the column", {life("properties", "Comment")}},
      {"statistics target, options, storage, compression, deterministic collation",
       {life("properties", "StatisticsTarget"), life("properties", "Options"), life("properties", "Storage"),
        life("properties", "Compression"), life("properties", "Collation")}},
      {"nondeterministic collation, security label, FDW options", {refused("NondeterministicCollation")}},
      {"privileges on the column",
       {life("properties", "ColumnGrants"), life("properties", "ColumnGrantsOfAnotherGrantor")}},
      {"index of any access method, partial, on expressions, INCLUDE, operator classes, collations",
       {life("indexes", "PlainIndex"), life("indexes", "OrderedIndex"), life("indexes", "PartialIndex"),
        life("indexes", "PredicateOverTheColumn"), life("indexes", "ExpressionIndex"),
        life("indexes", "IncludingIndex"), life("indexes", "HashIndex"), life("indexes", "BrinIndex"),
        life("indexes", "GinIndex"), life("indexes", "GistIndex"), life("indexes", "OperatorClass"),
        life("indexes", "IndexCollation"), only_named("Indexes", "PredicateUnderAWrittenExpression")}},
      {"unique index, UNIQUE, PRIMARY KEY",
       {life("indexes", "UniqueIndex"), life("indexes", "NullsNotDistinct"), life("constraints", "Unique"),
        life("constraints", "UniqueIncluding"), life("constraints", "UniqueOverTwo"),
        life("keys", "PrimaryKeyThatIsTheOrder"), life("keys", "PrimaryKeyOfTwo"),
        life("keys", "PrimaryKeyBesideAnotherOrder"),
        "UniqueTest.ThePlanRefusesUntilItIsAcceptedAndTheDryRunCountsTheRows",
        only_named("Constraints", "PrimaryKeyThatIsNotProvedNotNull")}},
      {"index of the old column that could refuse what the new one takes",
       {life("shed", "UniqueIndex"), life("shed", "UniqueConstraint"),
        life("shed", "OverTwoAndReplicaIdentity"), life("shed", "IndexAsReplicaIdentity"),
        life("shed", "PrimaryKey"), life("shed", "PartialWithAnExpression"), life("shed", "VarcharUnique"),
        life("shed", "TextUniqueIndex"), life("shed", "TextUniqueConstraint"),
        life("shed", "TextUniqueOverTwo"),
        "UniqueTest.ValuesThatCollideOnlyInTheOldColumnFailNoWriteAndAreToldBeforeTheWayBack"}},
      {"DEFERRABLE unique constraint", {refused("DeferrableUnique")}},
      {"index that is not valid, reads the whole row, has a statistics target, or depends on an extension",
       {refused("IndexOfTheWholeRow"), refused("IndexWithAStatisticsTarget"),
        "DependentsTest.AnIndexThatIsNotValidIsNamed"}},
      {"replica identity, CLUSTER", {life("indexes", "ReplicaIdentity"), life("indexes", "ClusteredIndex")}},
      {"extended statistics", {life("objects", "Statistics"), life("objects", "StatisticsExpression")}},
      {"CHECK, also over several columns",
       {life("constraints", "Check"), life("constraints", "CheckOverSeveralColumns"),
        life("constraints", "CheckNotValid"), life("constraints", "CheckNoInherit")}},
      {"foreign key of the column",
       {life("constraints", "ForeignKeyOut"), life("constraints", "ForeignKeyOutNotValid"),
        life("constraints", "ForeignKeyOutOfTwo"), life("constraints", "ForeignKeyToItself")}},
      {"EXCLUDE", {refused("Exclude")}},
      {"serial sequence", {life("keys", "Serial"), life("keys", "SerialWhoseSequenceIsWide")}},
      {"identity", {life("keys", "IdentityAlways"), life("keys", "IdentityByDefault")}},
      {"generated column, partition key",
       {refused("GeneratedColumn"), "PartitionsTest.WhatAPartitionHasOfItsOwnIsRefusedByName"}},
      {"index of a partitioned table",
       {life("indexes", "IndexOfAPartitionedTable"),
        "PartitionsTest.TheWholeLifeAndEveryWayBackUnderLiveWriters"}},
      {"UNIQUE, PRIMARY KEY of a partitioned table",
       {"PartitionsTest.AUniqueConstraintUnderLiveWriters", "Kinds/PartitionedKeyTest.BecomesWide/serial",
        "Kinds/PartitionedKeyTest.BecomesWide/identity"}},
      {"foreign key of a partitioned table, or that refers to the column from one",
       {"PartitionedKeysTest.TheFamilyMovesThereAndBackUnderItsApplication",
        "PartitionsTest.AForeignKeyOfTheColumnUnderLiveWriters", "PartitionedKeysTest.WhatIsRefused"}},
      {"of a partitioned table: extended statistics, trigger with the column, publication",
       {"PartitionsTest.WhatAPartitionHasOfItsOwnIsRefusedByName"}},
      {"index, unique constraint or statistics object over several columns that move together",
       {"Kinds/SharedKindTest.ForwardSwitchedRolledBackAndDropped/0",
        "Kinds/SharedKindTest.ForwardSwitchedRolledBackAndDropped/1",
        "Kinds/SharedKindTest.ForwardSwitchedRolledBackAndDropped/4",
        "SharedTwinsTest.WhatCannotBeCarriedIsRefusedByName"}},
      {"what a partition has of its own on the column",
       {"PartitionsTest.WhatAPartitionHasOfItsOwnIsRefusedByName"}},
      {"view, and the views on it",
       {life("views", "View"), life("views", "ChainOfViews"), life("views", "ViewWithTriggerRuleAndDefault"),
        life("views", "ViewWithOptions"), life("views", "ViewWhoseRuleWritesTheTable"),
        "dependents_refused_views/RefusedByThePlanTest.ByName/DefaultOfAView",
        "dependents_refused_views/RefusedByThePlanTest.ByName/RuleOfAView",
        "dependents_refused_views/RefusedByThePlanTest.ByName/RuleThatUsesALaterView"}},
      {"materialized view", {refused("MaterializedView"), refused("MaterializedViewOfAView")}},
      {"rule", {life("objects", "Rule"), life("objects", "RuleOfAnotherTable")}},
      {"policy, also of another table", {life("objects", "Policy"), life("objects", "PolicyOfAnotherTable")}},
      {"trigger with the column in its list or WHEN",
       {life("objects", "TriggerColumnList"), life("objects", "TriggerWhen"),
        life("objects", "ConstraintTrigger")}},
      {"other row triggers in PL/pgSQL", {life("objects", "OtherRowTrigger")}},
      {"function with an SQL body",
       {life("objects", "SqlBodyFunction"), life("objects", "SqlBodyProcedure")}},
      {"function whose text names the column", {life("objects", "FunctionWhoseTextNamesTheColumn")}},
      {"publication with a column list or row filter",
       {life("objects", "PublicationColumnList"), life("objects", "PublicationWithAName"),
        life("objects", "PublicationRowFilter")}},
      {"anything that reads the whole row (CHECK, index, WHEN, policy)",
       {refused("CheckOfTheWholeRow"), refused("IndexOfTheWholeRow"), refused("WhenOverTheWholeRow"),
        refused("PolicyOverTheWholeRow")}},
      {"foreign key of another column to the column",
       {refused("ForeignKeyOfAnotherColumn"), "ForeignKeysTest.TheFamilyMovesThereAndBackUnderItsApplication",
        "ForeignKeysTest.AChildThatIsWideAlreadyStaysAndItsForeignKeyMoves",
        "ForeignKeysRefusedTest.AConversionThatMayLoseSomething"}},
  };
  return all;
}

std::set<std::string> tests_there_are() {
  std::set<std::string> names;
  const auto& unit = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < unit.total_test_suite_count(); ++i) {
    const auto& suite = *unit.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j)
      names.insert(fmt::format("{}.{}", suite.name(), suite.GetTestInfo(j)->name()));
  }
  return names;
}

// One for each row of the table.
class DependentRuleTest : public ::testing::TestWithParam<DependentRule> {};

TEST_P(DependentRuleTest, HasItsCases) {
  const auto& rule = GetParam();
  const auto found = cases().find(std::string(rule.object));
  ASSERT_NE(found, cases().end()) << rule.object << ": add its cases to the list above";
  const auto there = tests_there_are();
  bool refused = false, lives = false;
  for (const auto& test : found->second) {
    EXPECT_TRUE(there.contains(test)) << test;
    const auto has = [&](std::string_view part) { return test.find(part) != std::string::npos; };
    refused = refused || has("Refused") || has("IsNamed");
    lives = lives || has("ForwardSwitchedRolledBackAndDropped") || has("TheFamilyMovesThereAndBack") ||
            has("UnderLiveWriters");
  }
  // What is carried is seen through its whole life, what is refused has been named.
  EXPECT_TRUE(rule.answer == "refused" ? refused : lives) << rule.object;
}

std::string in_a_word(std::string_view words) {
  std::string name;
  for (const char c : words) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(dependents_rules, DependentRuleTest, ::testing::ValuesIn(dependent_rules()),
                         [](const auto& tested) { return in_a_word(tested.param.object); });

TEST(DependentRulesTest, NoCasesAreOfARuleThatIsGone) {
  std::set<std::string> rules;
  for (const auto& rule : dependent_rules()) rules.emplace(rule.object);
  EXPECT_EQ(rules.size(), dependent_rules().size()) << "two rows with the same words";
  for (const auto& [rule, unused] : cases()) EXPECT_TRUE(rules.contains(rule)) << rule;
}

}  // namespace
}  // namespace crossfade::test

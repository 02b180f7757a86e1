// An expression is judged together with its coercion to the column's type.
#include <gtest/gtest.h>

#include "crossfade/core/state_schema.hpp"
#include "crossfade/shadow/transform.hpp"
#include "support/database_test.hpp"

namespace crossfade::test {
namespace {

class ExpressionJudgementTest : public DatabaseTest {
 protected:
  std::vector<Finding> judge(const std::string& ddl, const ColumnSpec& column) {
    sql(ddl);
    auto door = SqlSession::connect({dsn(), "test", std::chrono::milliseconds(10000)});
    install_schema(door);
    Transaction transaction(door);
    std::vector<Finding> findings;
    const auto table = read_table(door, QualifiedName{"public", "t"});
    bind_column(door, *table, column, GeneratedNames(StateStore(door).new_id()), findings);
    return findings;
  }
};

ColumnSpec written(const std::string& type, const std::string& forward) {
  ColumnSpec column;
  column.name = "b";
  column.type = type;
  column.forward = forward;
  return column;
}

TEST_F(ExpressionJudgementTest, ACoercionThatDependsOnTheTimeZoneIsNotImmutable) {
  const auto findings =
      judge("CREATE TABLE t (id int PRIMARY KEY, b timestamptz)", written("timestamp", "b"));
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].id, "expression_not_immutable");
}

TEST_F(ExpressionJudgementTest, ACoercionThatDependsOnNothingIs) {
  auto column = written("timestamp(3)", "b AT TIME ZONE 'UTC'");
  column.backward = "b AT TIME ZONE 'UTC'";
  for (const auto& finding : judge("CREATE TABLE t (id int PRIMARY KEY, b timestamptz)", column)) {
    ADD_FAILURE() << finding.message;
  }
}

}  // namespace
}  // namespace crossfade::test

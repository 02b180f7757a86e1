// The same life cycle over keys of every shape.
#include <fmt/format.h>

#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class KeysTest : public DatabaseTest {};

void live(const std::string& dsn, const LifecycleScenario& scenario) {
  Lifecycle life(dsn, scenario);
  life.start();
  life.advance_to(Phase::dry_run);
  life.roll_back_in_the_middle_of_the_sweep();
  life.advance_to(Phase::switched);
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
  life.finish();
}

// https://github.com/ExtendDB/extenddb/issues/357: sorted in one collation and filtered in another.
TEST_F(KeysTest, ATextKeyUnderAnIcuCollationWithAUuidBesideIt) {
  auto s = integer_scenario();
  constexpr const char* kWord = "(ARRAY['a_z','ab','B','a','Z','_x'])[1 + {0} % 6] || {0} / 60";
  s.setup = fmt::format(
      "CREATE TABLE t (k text COLLATE \"en-x-icu\", u uuid, b int DEFAULT 1, n int NOT NULL DEFAULT 0,"
      " PRIMARY KEY (k, u));"
      "INSERT INTO t (k, u, b) SELECT {}, md5(g::text)::uuid, g FROM generate_series(0, 2999) g",
      fmt::format(fmt::runtime(kWord), "g"));
  s.live.rows = 3000;
  s.live.key = {"k", "u"};
  s.live.key_of = [&](std::int64_t n) {
    return std::vector<std::string>{fmt::format(fmt::runtime(kWord), n), fmt::format("md5('{}')::uuid", n)};
  };
  live(dsn(), s);
}

TEST_F(KeysTest, AUuidKey) {
  auto s = integer_scenario("smallint", "integer");
  s.setup =
      "CREATE TABLE t (id uuid PRIMARY KEY, b smallint NOT NULL DEFAULT 3, n int NOT NULL DEFAULT 0);"
      "INSERT INTO t (id, b) SELECT md5(g::text)::uuid, g FROM generate_series(0, 2999) g";
  s.live.rows = 3000;
  s.live.key_of = [](std::int64_t n) { return std::vector<std::string>{fmt::format("md5('{}')::uuid", n)}; };
  live(dsn(), s);
}

// By blocks and in several visits, under the same application.
TEST_F(KeysTest, AUuidKeySweptInPhysicalOrderAndInWindows) {
  auto s = integer_scenario("smallint", "integer");
  s.spec.replace(s.spec.find("[tuning]\n"), 9, "[tuning]\norder = \"physical\"\ninterleave = 8\n");
  s.setup =
      "CREATE TABLE t (id uuid PRIMARY KEY, b smallint NOT NULL DEFAULT 3, n int NOT NULL DEFAULT 0);"
      "INSERT INTO t (id, b) SELECT md5(g::text)::uuid, g FROM generate_series(0, 5999) g";
  s.live.rows = 6000;
  s.live.key_of = [](std::int64_t n) { return std::vector<std::string>{fmt::format("md5('{}')::uuid", n)}; };
  Lifecycle life(dsn(), s);
  life.start();
  life.advance_to(Phase::dry_run);
  life.roll_back_in_the_middle_of_the_sweep();
  life.advance_to(Phase::backfill);
  const auto status = life.status();
  ASSERT_TRUE(status.sweep);
  EXPECT_EQ(status.sweep->order, "physical");
  EXPECT_EQ(status.sweep->interleave, 8);
  EXPECT_TRUE(status.sweep->hot_ratio);
  EXPECT_NE(to_json(status).find("\"sweep\":{\"order\":\"physical\",\"order_reason\":\"tuned\""),
            std::string::npos);
  life.check();
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
  life.finish();
}

// The only order is that of an index whose columns run both ways.
TEST_F(KeysTest, AKeyWhoseColumnsRunBothWays) {
  auto s = integer_scenario();
  s.setup =
      "CREATE TABLE t (tenant int NOT NULL, id int NOT NULL, b int DEFAULT 1, n int NOT NULL DEFAULT 0);"
      "CREATE UNIQUE INDEX ON t (tenant DESC NULLS LAST, id);"
      "INSERT INTO t (tenant, id, b) SELECT g % 3, g, g FROM generate_series(0, 2999) g";
  s.live.rows = 3000;
  s.live.key = {"tenant", "id"};
  s.live.key_of = [](std::int64_t n) {
    return std::vector<std::string>{std::to_string(n % 3), std::to_string(n)};
  };
  live(dsn(), s);
}

// GitLab's BATCH_MIN_VALUE = 1: a sweep that begins at one.
TEST_F(KeysTest, NegativeAndExtremeIntegerKeys) {
  auto s = integer_scenario();
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT 1, n int NOT NULL DEFAULT 0);"
      "INSERT INTO t (id, b) SELECT CASE g WHEN 0 THEN -2147483648 WHEN 1 THEN 2147483647 ELSE (g / 2) * (1 "
      "- g % 2 * 2)"
      " - 1 END, g FROM generate_series(0, 2999) g";
  s.live.rows = 3000;
  s.live.key_of = [](std::int64_t n) -> std::vector<std::string> {
    if (n == 0) return {"-2147483648"};
    if (n == 1) return {"2147483647"};
    return {std::to_string((n / 2) * (1 - n % 2 * 2) - 1)};
  };
  live(dsn(), s);
}

TEST_F(KeysTest, ATableThatIsEmptyAtTheStart) {
  auto s = integer_scenario();
  s.setup = "CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT 1, n int NOT NULL DEFAULT 0)";
  s.live.rows = 300;
  // Rows that always exist are not there.
  s.operations = standard_operations({"insert or nothing", "update the column", "update a hot row",
                                      "update another column", "update both", "set the default",
                                      "update several", "update many at once"});
  Lifecycle life(dsn(), s);
  life.walk_there_and_back();
  life.finish();
}

}  // namespace
}  // namespace crossfade::test

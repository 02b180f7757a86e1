// Identifiers that break careless SQL, and writers that own nothing.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class NamesAndRolesTest : public DatabaseTest {
 protected:
  // Another role than the owner, with what the table's owner grants and nothing else.
  std::string writer_dsn() {
    super_sql("DO $$ BEGIN CREATE ROLE app_writer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    return server().dsn(database().name(), "app_writer");
  }
};

void live(const std::string& dsn, const LifecycleScenario& scenario) {
  Lifecycle life(dsn, scenario);
  life.start();
  life.advance_to(Phase::backfill);
  life.roll_back();
  life.advance_to(Phase::switched);
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
  life.finish();
}

std::string spec(const std::string& table, const std::string& column) {
  return fmt::format(
      "[migration]\nname = \"m\"\ntable = '''{}'''\n[[column]]\nname = '''{}'''\ntype = \"bigint\"\n"
      "[tuning]\nchunk_target = \"10ms\"\n[drop]\nsoak = \"0s\"\n",
      table, column);
}

// https://github.com/xataio/pgroll/pull/831, https://github.com/xataio/pgroll/pull/254: mixed case, reserved
// words, hyphens, quotes.
TEST_F(NamesAndRolesTest, ReservedWordsQuotesAndMixedCaseAreOnlyNames) {
  auto s = integer_scenario();
  s.setup =
      "CREATE SCHEMA \"my-app\";"
      "CREATE TABLE \"my-app\".\"Order\" (\"Id\" int PRIMARY KEY, \"b'x\" int NOT NULL DEFAULT 5, \"user\" "
      "int"
      " DEFAULT 0, \"q\"\"q\" text DEFAULT '{}');"
      "CREATE INDEX \"select\" ON \"my-app\".\"Order\" (\"b'x\", \"user\");"
      "INSERT INTO \"my-app\".\"Order\" SELECT g, g, g FROM generate_series(0, 1999) g";
  s.spec = spec("\"my-app\".\"Order\"", "\"b'x\"");
  s.live.name = "\"my-app\".\"Order\"";
  s.live.twin = "\"my-app\".\"Order twin\"";
  s.twin_setup = "ALTER TABLE \"my-app\".\"Order twin\" ALTER \"b'x\" TYPE bigint";
  s.live.key = {"\"Id\""};
  s.live.column = "\"b'x\"";
  s.live.other = "\"user\"";
  s.live.rows = 2000;
  live(dsn(), s);
}

// https://github.com/reorg/pg_repack: a crafted name that is executed.
TEST_F(NamesAndRolesTest, ANameThatIsAStatementIsNeverExecuted) {
  auto s = integer_scenario();
  const std::string table = "public.\"x; DROP TABLE t; --\"", column = "\"q\"\"q', 1); DROP TABLE t; --\"";
  s.setup = fmt::format(
      "CREATE TABLE t (id int);"
      "CREATE TABLE {0} (id int PRIMARY KEY, {1} int DEFAULT 5, \"key\" int DEFAULT 0);"
      "CREATE INDEX ON {0} ({1});"
      "INSERT INTO {0} SELECT g, g, g FROM generate_series(0, 1999) g",
      table, column);
  s.spec = spec(table, column);
  s.live.name = table;
  s.twin_setup = fmt::format("ALTER TABLE t_twin ALTER {} TYPE bigint", column);
  s.live.column = column;
  s.live.other = "\"key\"";
  s.live.rows = 2000;
  live(dsn(), s);
  EXPECT_EQ(value("SELECT to_regclass('public.t')"), "t");
}

// What a finding names can be copied into a statement.
TEST_F(NamesAndRolesTest, AFindingShowsAReservedWordAsSqlDoes) {
  sql("CREATE TABLE t (id int PRIMARY KEY, \"order\" text COLLATE \"C\")");
  Migrator migrator({.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
  migrator.init();
  const auto plan = migrator.plan(
      {"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = '\"order\"'\ntype = \"integer\"\n"
       "forward = '\"order\"::integer'\nbackward = '\"order\"::text'\n"});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_EQ(plan.refusals[0].object, "public.t.\"order\"");
  EXPECT_NE(plan.refusals[0].message.find("column \"order\" reads column \"order\""), std::string::npos)
      << plan.refusals[0].message;
}

TEST_F(NamesAndRolesTest, WritersWithNothingButGrantsOnTheTableNeverNoticeTheMigration) {
  auto s = integer_scenario();
  s.writer_dsn = writer_dsn();
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL DEFAULT 5, n int DEFAULT 0);"
      "CREATE INDEX t_b ON t (b);"
      "INSERT INTO t SELECT g, g, g FROM generate_series(0, 1999) g;"
      "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO app_writer";
  s.twin_setup += ";GRANT SELECT, INSERT, UPDATE, DELETE ON t_twin TO app_writer";
  s.live.rows = 2000;
  live(dsn(), s);
}

TEST_F(NamesAndRolesTest, ARoleThatMayNotReadTheStateIsToldWhoseItIs) {
  Migrator({.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"}).init();
  try {
    Migrator({.dsn = writer_dsn(), .redis = "", .operator_name = "bob", .host = "lovelace"}).list();
    ADD_FAILURE() << "read by a role without a privilege";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::permission_denied);
    EXPECT_NE(error.message().find("belongs to role app_owner"), std::string::npos) << error.message();
    EXPECT_NE(error.hint().find("GRANT app_owner TO app_writer"), std::string::npos) << error.hint();
  }
}

// https://github.com/LanternOps/breeze/issues/4483: rows that a policy hides are migrated like all others.
TEST_F(NamesAndRolesTest, RowsThatAPolicyHidesFromTheApplicationAreMigratedToo) {
  auto s = integer_scenario();
  s.writer_dsn = writer_dsn();
  s.writers.settings = "SET app.tenant = '1'";
  s.operations = standard_operations({"copy"});  // PostgreSQL has no COPY FROM under row security
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL DEFAULT 5, n int DEFAULT 0, tenant int NOT NULL "
      "DEFAULT 1);"
      "INSERT INTO t SELECT g, g, g FROM generate_series(0, 1999) g;"
      "INSERT INTO t SELECT -g, g, g, 2 FROM generate_series(1, 500) g;"
      "ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
      "CREATE POLICY mine ON t USING (tenant = current_setting('app.tenant')::int);"
      "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO app_writer";
  s.twin_setup += ";GRANT SELECT, INSERT, UPDATE, DELETE ON t_twin TO app_writer";
  s.live.rows = 2000;
  live(dsn(), s);
}

}  // namespace
}  // namespace crossfade::test

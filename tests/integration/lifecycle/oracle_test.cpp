// The judge is judged: what it must find, it finds.
#include <fmt/format.h>

#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class OracleTest : public DatabaseTest {
 protected:
  static LifecycleScenario scenario() {
    auto s = integer_scenario();
    s.setup =
        "CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT 1, n int NOT NULL DEFAULT 0);"
        "INSERT INTO t SELECT g, g FROM generate_series(0, 999) g";
    s.live.rows = 1000;
    return s;
  }

  // The complaint of check(), empty when there is none. The writers stand still, so that they repair nothing.
  static std::string complaint(Lifecycle& life) {
    try {
      life.check();
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }
};

TEST_F(OracleTest, ALostWriteIsFound) {
  Lifecycle life(dsn(), scenario());
  life.start();
  life.writers().pause();
  EXPECT_EQ(complaint(life), "");
  sql("UPDATE t SET b = b + 1 WHERE id = 7");
  EXPECT_NE(complaint(life).find("in the table | 7"), std::string::npos) << complaint(life);
  life.writers().resume();
}

TEST_F(OracleTest, ARowThatIsThereTwiceOrNotAtAllIsFound) {
  Lifecycle life(dsn(), scenario());
  life.start();
  life.writers().pause();
  sql("DELETE FROM t WHERE id = 7");
  EXPECT_NE(complaint(life).find("in the twin | 7"), std::string::npos) << complaint(life);
  life.writers().resume();
}

TEST_F(OracleTest, AStaleShadowIsFoundBeforeAndAfterTheSwitch) {
  Lifecycle life(dsn(), scenario());
  life.start();
  for (const auto phase : {Phase::backfill, Phase::switched}) {
    life.advance_to(phase);
    life.writers().pause();
    super_sql("SET session_replication_role = replica; ALTER TABLE t DISABLE TRIGGER USER; UPDATE t SET " +
              life.shadow_column() + " = -1 WHERE id = 7");
    EXPECT_NE(complaint(life).find("the two sides differ"), std::string::npos) << complaint(life);
    life.writers().resume();
    if (phase == Phase::backfill) life.roll_back_to(Phase::dry_run);
  }
}

TEST_F(OracleTest, AnErrorOfTheApplicationIsNotOverlooked) {
  Lifecycle life(dsn(), scenario());
  sql("ALTER TABLE t RENAME b TO c");
  EXPECT_THROW(life.writers().let_write(1000), std::runtime_error);
  EXPECT_NE(complaint(life).find("42703"), std::string::npos) << complaint(life);
}

TEST_F(OracleTest, ADeadlockIsAnErrorOnlyWhenWritersCannotDeadlockWithEachOther) {
  auto s = scenario();
  s.operations = {{"update", [](Draw& draw) {
                     return LiveTransaction{{fmt::format("UPDATE {{table}} SET n = n + 1 WHERE {}",
                                                         draw.key_is(draw.stable()))}};
                   }}};
  const std::string often =
      "CREATE SEQUENCE turns; GRANT USAGE ON SEQUENCE turns TO PUBLIC;"
      "CREATE FUNCTION victim() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF nextval(''turns'') % 3 = 0 THEN"
      " RAISE EXCEPTION USING ERRCODE = ''40P01''; END IF; RETURN NEW; END';"
      "CREATE TRIGGER victim BEFORE UPDATE ON t_twin FOR EACH ROW EXECUTE FUNCTION victim()";
  s.writers.order = LockOrder::opposite;
  {
    Lifecycle life(dsn(), s);
    life.start();
    sql(often);
    life.writers().let_write(100);
    EXPECT_GT(life.writers().deadlocks(), 0);
    EXPECT_EQ(complaint(life), "");
    life.roll_back();
  }
  sql("DROP TABLE t, t_twin; DROP FUNCTION victim(); DROP SEQUENCE turns");
  s.writers.order = LockOrder::consistent;
  Lifecycle life(dsn(), s);
  sql(often);
  EXPECT_THROW(life.writers().let_write(100'000), std::runtime_error);
  EXPECT_NE(complaint(life).find("40P01"), std::string::npos) << complaint(life);
}

}  // namespace
}  // namespace crossfade::test

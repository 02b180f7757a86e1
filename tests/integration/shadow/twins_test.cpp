// Twins: built online, found again after a death, never taken from a living builder.
#include "crossfade/shadow/twins.hpp"

#include <chrono>
#include <filesystem>
#include <future>

#include "crossfade/core/failpoint.hpp"
#include "support/database_test.hpp"
#include "support/files.hpp"
#include "support/migration_fixture.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatient{5000}, kShort{50};

class TwinsTest : public DatabaseTest {
 protected:
  ~TwinsTest() override { failpoint::configure(""); }

  SqlSession door() const { return SqlSession::connect({dsn(), "test", milliseconds(10000)}); }

  // Phase dual_write of t.b, with the ledger of what `ddl` made.
  void prepare(const std::string& ddl, const std::string& type = "bigint",
               const std::optional<std::string>& forward = std::nullopt) {
    ColumnSpec column;
    column.name = "b";
    column.type = type;
    column.forward = forward;
    fixture_.emplace(session_, ddl, column);
    Transaction transaction(session_);
    std::vector<Finding> findings;
    ledger_ = take_inventory(session_, *read_table(session_, fixture_->table()),
                             fixture_->migration().binding.column, findings);
    for (const auto& finding : unaccepted(findings, {})) ADD_FAILURE() << finding.message;
    store_ledger(session_, fixture_->migration().row.id, ledger_);
    transaction.commit();
    fixture_->install_capture();
    fixture_->fill_shadow();
    fixture_->set_phase(Phase::dual_write);
  }

  TwinBuilder builder() { return {fixture_->migration(), fixture_->table(), ledger_}; }

  // Steps until all is done; the number of steps that did something.
  int build(SqlSession& session) {
    int steps = 0;
    auto twins = builder();
    while (!twins.step(session, kPatient)) ++steps;
    return steps;
  }

  std::string twin(const std::string& index) { return fixture_->migration().generated.twin(index); }
  std::string check() { return fixture_->migration().generated.not_null_check("b"); }

  std::string oid_of(const std::string& relation) {
    return value("SELECT coalesce(to_regclass($1)::oid::text, 'absent')", {quote_identifier(relation)});
  }
  std::string valid(const std::string& index) {
    return value("SELECT indisvalid FROM pg_index WHERE indexrelid = $1::regclass",
                 {quote_identifier(index)});
  }

  SqlSession session_ = door();
  std::optional<MigrationFixture> fixture_;
  Ledger ledger_;
};

const std::string kPlain =
    "CREATE TABLE t (id int PRIMARY KEY, b int, c int); INSERT INTO t SELECT g, g FROM generate_series(1, "
    "100) g;"
    "CREATE INDEX i ON t (b);";

TEST_F(TwinsTest, ATwinIsTheIndexOnTheNewColumn) {
  prepare(
      "CREATE TABLE t (id int PRIMARY KEY, b int, \"C c\" text);"
      "CREATE UNIQUE INDEX i ON t (\"C c\" DESC NULLS LAST, b, id ASC NULLS FIRST) WITH (fillfactor = 55)");
  auto expected = value("SELECT pg_get_indexdef('i'::regclass)");
  EXPECT_EQ(builder().missing(session_), std::vector<std::string>{"the twin of index i is not built yet"});
  EXPECT_EQ(build(session_), 1);
  EXPECT_TRUE(builder().missing(session_).empty());
  const auto replace = [&](const std::string& from, const std::string& to) {
    const auto at = expected.find(from);
    ASSERT_NE(at, std::string::npos);
    expected.replace(at, from.size(), to);
  };
  replace("INDEX i ON", "INDEX " + twin("i") + " ON");
  replace(", b, id", ", " + fixture_->migration().names.new_column + ", id");
  EXPECT_EQ(value("SELECT pg_get_indexdef($1::regclass)", {quote_identifier(twin("i"))}), expected);
}

TEST_F(TwinsTest, EachStepDoesOneThing) {
  prepare(kPlain + "CREATE INDEX j ON t (c, b); ALTER TABLE t ALTER b SET NOT NULL");
  EXPECT_EQ(builder().missing(session_).size(), 3u);
  EXPECT_EQ(build(session_), 4);  // two indexes, the check, its validation
  EXPECT_EQ(build(session_), 0);
}

TEST_F(TwinsTest, TheRolesDefaultTablespaceDoesNotDecide) {
  prepare(kPlain);
  super_sql("SET allow_in_place_tablespaces = on");
  super_sql("CREATE TABLESPACE forbidden LOCATION ''");
  session_.exec("SET default_tablespace = 'forbidden'");
  build(session_);
  EXPECT_EQ(valid(twin("i")), "t");
  super_sql("DROP TABLESPACE forbidden");
}

TEST_F(TwinsTest, DyingBeforeTheBuildLeavesNothing) {
  prepare(kPlain);
  failpoint::configure("twin.intent=error:57014");
  EXPECT_THROW(builder().step(session_, kPatient), Error);
  EXPECT_EQ(oid_of(twin("i")), "absent");
  failpoint::configure("");
  EXPECT_EQ(build(session_), 1);
}

TEST_F(TwinsTest, DyingAfterTheBuildLeavesATwinThatIsFoundAgain) {
  prepare(kPlain);
  failpoint::configure("twin.built=error:57014");
  EXPECT_THROW(builder().step(session_, kPatient), Error);
  failpoint::configure("");
  const auto oid = oid_of(twin("i"));
  EXPECT_EQ(build(session_), 0);
  EXPECT_EQ(oid_of(twin("i")), oid);
}

// A builder in a thread of its own, held inside CREATE INDEX CONCURRENTLY by an open transaction.
class BuildingTest : public TwinsTest {
 protected:
  void release() { writer_.script("ROLLBACK"); }

  void SetUp() override {
    prepare(kPlain);
    builder_of_thread_.emplace(builder());
    writer_.script("BEGIN; INSERT INTO t VALUES (1000, 1000)");
    building_ =
        std::async(std::launch::async, [this] { return builder_of_thread_->step(living_, kPatient); });
    wait_until_blocked(living_.backend_pid());
    wait_until([&] { return oid_of(twin("i")) != "absent"; }, "the index that is being built");
    EXPECT_EQ(valid(twin("i")), "f");
  }

  SqlSession writer_ = session(), living_ = door();
  std::optional<TwinBuilder> builder_of_thread_;
  std::future<bool> building_;
};

TEST_F(BuildingTest, AKilledBuildersLeftoverIsDroppedAndBuiltAgain) {
  const auto leftover = oid_of(twin("i"));
  super_sql("SELECT pg_terminate_backend(" + std::to_string(living_.backend_pid()) + ")");
  EXPECT_THROW(building_.get(), Error);
  release();
  EXPECT_EQ(builder().missing(session_), std::vector<std::string>{"the twin of index i is not valid yet"});
  EXPECT_EQ(build(session_), 2);
  EXPECT_EQ(valid(twin("i")), "t");
  EXPECT_NE(oid_of(twin("i")), leftover);
}

TEST_F(BuildingTest, ALivingBuildersIndexIsNotTouched) {
  const auto oid = oid_of(twin("i"));
  try {
    builder().step(session_, kShort);
    ADD_FAILURE() << "the lock was granted beside a living builder";
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_lock_not_available()) << error.message();
  }
  EXPECT_EQ(oid_of(twin("i")), oid);
  release();
  EXPECT_FALSE(building_.get());
  EXPECT_EQ(build(session_), 0);
  EXPECT_EQ(oid_of(twin("i")), oid);
}

TEST_F(BuildingTest, ACancelledBuildersLeftoverToo) {
  living_.cancel();
  EXPECT_THROW(building_.get(), Error);
  release();
  EXPECT_EQ(build(living_), 2);
  EXPECT_EQ(valid(twin("i")), "t");
}

// --- Two runners
// ----------------------------------------------------------------------------------------------------

TEST_F(TwinsTest, WhoWasSupersededBuildsNothingAndPutsNoCheckOnTheTable) {
  for (const auto* ddl : {"CREATE TABLE t (id int PRIMARY KEY, b int); CREATE INDEX i ON t (b)",
                          "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL)"}) {
    prepare(ddl);
    auto late = builder();
    sql("UPDATE crossfade.migration SET token = gen_random_uuid()");
    try {
      late.step(session_, kPatient);
      ADD_FAILURE() << "done under another runner's token";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::superseded) << error.message();
    }
    EXPECT_FALSE(session_.in_transaction());
    EXPECT_EQ(oid_of(twin("i")), "absent");
    EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'"),
              "0");
    EXPECT_GT(build(session_), 0);
    sql("DROP SCHEMA crossfade CASCADE; DROP TABLE t");
  }
}

TEST_F(TwinsTest, ATokenThatMovesWhileTheTableIsWaitedForIsSeen) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL)");
  auto late = builder();
  auto reader = session();
  auto waiting = door();
  reader.script("BEGIN; SELECT count(*) FROM t");
  auto step = std::async(std::launch::async, [&] { return late.step(waiting, kPatient); });
  wait_until_blocked(waiting.backend_pid());
  sql("UPDATE crossfade.migration SET token = gen_random_uuid()");
  reader.script("ROLLBACK");
  try {
    step.get();
    ADD_FAILURE() << "done under another runner's token";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::superseded) << error.message();
  }
  EXPECT_EQ(build(session_), 2);
}

// Whoever changes the migration's row right now is not waited for with the table locked.
TEST_F(TwinsTest, TheFenceNeverWaitsForTheMigrationsRow) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL)");
  auto another = session();
  another.script("BEGIN; UPDATE crossfade.migration SET lease_until = now()");
  try {
    builder().step(session_, kPatient);
    ADD_FAILURE() << "the row of the migration was not locked";
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_lock_not_available()) << error.message();
  }
  another.script("ROLLBACK");
  EXPECT_EQ(build(session_), 2);
}

TEST_F(TwinsTest, ABuilderThatWaitsForTheTableIsLeftToIt) {
  prepare(kPlain);
  auto vacuum = session();
  vacuum.script("BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE");
  auto living = door();
  auto first = builder();
  auto building = std::async(std::launch::async, [&] { return first.step(living, kPatient); });
  wait_until_blocked(living.backend_pid());
  EXPECT_FALSE(builder().step(session_, kShort));
  EXPECT_EQ(oid_of(twin("i")), "absent");
  vacuum.script("ROLLBACK");
  EXPECT_FALSE(building.get());
  EXPECT_EQ(build(session_), 0);
}

TEST_F(TwinsTest, WhoFindsTheNameTakenLooksAgain) {
  prepare(kPlain);
  const PrivateFolder folder("twins");
  const auto gate = (folder.path() / "gate").string();
  failpoint::configure("twin.intent=wait:" + gate);
  auto slow = door();
  auto first = builder();
  auto building = std::async(std::launch::async, [&] { return first.step(slow, kPatient); });
  wait_until([&] { return std::filesystem::exists(gate + ".reached"); }, "the first builder");
  failpoint::configure("");
  EXPECT_EQ(
      value("SELECT count(*) FROM crossfade.dependent d JOIN crossfade.migration m ON m.token = d.builder"),
      value("SELECT count(*) FROM crossfade.dependent WHERE kind = 'index'"));
  EXPECT_EQ(build(session_), 1);
  write_text(gate, "");
  EXPECT_FALSE(building.get());
  EXPECT_EQ(build(session_), 0);
  EXPECT_EQ(valid(twin("i")), "t");
}

TEST_F(TwinsTest, DroppingALeftoverWaitsNoLongerThanItsDeadline) {
  prepare(kPlain);
  failpoint::configure("twin.built=error:57014");
  EXPECT_THROW(builder().step(session_, kPatient), Error);
  failpoint::configure("");
  super_sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = '" + twin("i") + "'::regclass");
  auto reader = session();
  reader.script("BEGIN; SELECT count(*) FROM t");
  try {
    builder().step(session_, kShort);
    ADD_FAILURE() << "an index was dropped under a reader";
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_lock_not_available()) << error.message();
  }
  EXPECT_FALSE(session_.in_transaction());
  reader.script("ROLLBACK");
  EXPECT_EQ(build(session_), 2);
}

TEST_F(TwinsTest, AnIndexOnOtherColumnsUnderTheTwinsNameIsNotTakenForIt) {
  prepare(kPlain);
  sql("CREATE INDEX " + twin("i") + " ON t (c)");
  try {
    builder().step(session_, kPatient);
    ADD_FAILURE() << "an index on other columns was taken for the twin";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal_error);
    EXPECT_NE(error.message().find(twin("i")), std::string::npos);
  }
}

TEST_F(TwinsTest, SoIsATableOfThatName) {
  prepare(kPlain);
  sql("CREATE TABLE " + twin("i") + " (a int)");
  EXPECT_THROW(builder().step(session_, kPatient), Error);
  EXPECT_NE(oid_of(twin("i")), "absent");
}

// --- NOT NULL
// ----------------------------------------------------------------------------------------------------

TEST_F(TwinsTest, ATotalExpressionProvesNotNullBeforeTheSwitch) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL); INSERT INTO t VALUES (1, 1)");
  EXPECT_FALSE(builder().not_null_check_valid(session_));
  EXPECT_EQ(builder().missing(session_),
            std::vector<std::string>{"NOT NULL of the new b is not validated yet"});
  EXPECT_EQ(build(session_), 2);
  EXPECT_TRUE(builder().not_null_check_valid(session_));
}

TEST_F(TwinsTest, AnExpressionThatMayFailPutsNoConstraintOnTheShadow) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b text NOT NULL); INSERT INTO t VALUES (1, '1')", "integer",
          "b::integer");
  EXPECT_EQ(build(session_), 0);
  EXPECT_FALSE(builder().not_null_check_valid(session_));
  sql("INSERT INTO t VALUES (2, 'not a number')");
}

TEST_F(TwinsTest, AColumnThatMayBeNullGetsNone) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b int)");
  EXPECT_EQ(build(session_), 0);
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'"),
            "0");
}

TEST_F(TwinsTest, TheCheckWaitsNoLongerThanItsDeadline) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL)");
  auto reader = session();
  reader.script("BEGIN; SELECT count(*) FROM t");
  try {
    builder().step(session_, kShort);
    ADD_FAILURE() << "a check was added under a reader";
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_lock_not_available()) << error.message();
  }
  EXPECT_EQ(session_.exec("SHOW lock_timeout")[0][0], "0");
  reader.script("ROLLBACK");
  EXPECT_EQ(build(session_), 2);
}

TEST_F(TwinsTest, SettlingGoesOnWhereItStopped) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b text NOT NULL); INSERT INTO t VALUES (1, '1')", "integer",
          "b::integer");
  fixture_->switch_over();
  const auto m = fixture_->migration();
  sql("ALTER TABLE t ADD CONSTRAINT " + check() + " CHECK (b IS NOT NULL) NOT VALID");
  const auto settle = [&](SqlSession& session) {
    return settle_not_null(session, m, fixture_->table(), "b", kPatient);
  };
  EXPECT_FALSE(settle(session_));
  EXPECT_EQ(value("SELECT convalidated FROM pg_constraint WHERE conname = $1", {check()}), "t");
  auto another = door();
  EXPECT_FALSE(settle(another));
  EXPECT_TRUE(settle(another));
  EXPECT_EQ(value("SELECT attnotnull FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'b'"),
            "t");
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'"),
            "0");
}

TEST_F(TwinsTest, SettlingFailsOnARowThatIsNull) {
  prepare("CREATE TABLE t (id int PRIMARY KEY, b text NOT NULL); INSERT INTO t VALUES (1, 'none')", "integer",
          "b::integer");
  fixture_->switch_over();
  sql("ALTER TABLE t ADD CONSTRAINT " + check() + " CHECK (b IS NOT NULL) NOT VALID");
  try {
    settle_not_null(session_, fixture_->migration(), fixture_->table(), "b", kPatient);
    ADD_FAILURE() << "a NULL passed for NOT NULL";
  } catch (const Error& error) {
    EXPECT_EQ(error.sqlstate(), "23514");
  }
  EXPECT_FALSE(session_.in_transaction());
}

TEST_F(TwinsTest, DroppingTheTwinsLeavesTheTableAsBefore) {
  prepare(kPlain + "ALTER TABLE t ALTER b SET NOT NULL");
  const auto all = [&] {
    return session_
        .exec(
            "SELECT relname FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid"
            " WHERE i.indrelid = 'public.t'::regclass UNION ALL SELECT conname FROM pg_constraint"
            " WHERE conrelid = 'public.t'::regclass ORDER BY 1")
        .rows;
  };
  const auto before = all();
  build(session_);
  EXPECT_NE(all(), before);
  const auto drop = drop_twins_sql(fixture_->migration(), fixture_->table(), ledger_);
  session_.script("BEGIN;" + drop + "COMMIT");
  EXPECT_EQ(all(), before);
  session_.script("BEGIN;" + drop + "COMMIT");
}

}  // namespace
}  // namespace crossfade::test

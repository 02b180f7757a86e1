// Unique indexes whose values are not proved to stay apart: on the new column they may refuse what is valid
// today, on the old one what is valid after the switch. Nobody finds that out by a write that fails.
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"
#include "support/files.hpp"
#include "support/lifecycle.hpp"
#include "support/program.hpp"

namespace crossfade::test {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class UniqueTest : public DatabaseTest {
 protected:
  ~UniqueTest() override { failpoint::configure(""); }

  void prepare(const std::string& ddl, const std::string& column,
               const std::vector<Acceptance>& accept = {{"twin_unique_may_reject", "the dry run counts"}}) {
    sql(ddl);
    owner_.emplace(dsn());
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
    before_ = lines();
    spec_ = "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\n" + column +
            "[drop]\nsoak = \"0s\"\n[switch]\nattempts = 1000\n";
    migrator_->start({spec_}, accept);
  }

  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    options.wait = std::chrono::seconds(60);
    if (phase == Phase::dropped) options.confirm = "m";
    migrator_->next("m", options);
  }

  template <typename Work>
  Error refused(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "not refused";
    return Error(ErrorCode::internal_error, "");
  }
  Error rollback_refused() {
    return refused([&] { migrator_->rollback("m"); });
  }

  std::vector<std::string> lines() { return describe_catalog(*owner_, "public.t"); }
  // Of what hangs on the table.
  std::string indexes() {
    return value(
        "SELECT string_agg(regexp_replace(c.relname, '_[0-9a-f]{12}$', '_ID') || CASE WHEN i.indisvalid THEN "
        "''"
        " ELSE ' broken' END, ' ' ORDER BY c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = 't'::regclass");
  }
  std::string violation(const std::string& statement) {
    try {
      owner_->run(statement);
      return "none";
    } catch (const ApplicationError& error) {
      return error.sqlstate();
    }
  }

  std::optional<ApplicationSession> owner_;
  std::optional<Migrator> migrator_;
  std::vector<std::string> before_;
  std::string spec_;
};

const std::string kNumbers =
    "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL, CONSTRAINT one UNIQUE (v));"
    "INSERT INTO t SELECT g, g::text FROM generate_series(1, 20) g;";
const std::string kToInteger =
    "name = \"v\"\ntype = \"integer\"\nforward = \"v::integer\"\nbackward = \"v::text\"\n";

// --- Before the switch: the new column
// ----------------------------------------------------------------------------------------------------

TEST_F(UniqueTest, ThePlanRefusesUntilItIsAcceptedAndTheDryRunCountsTheRows) {
  sql(kNumbers + "UPDATE t SET v = '07' WHERE id = 17");
  const PrivateFolder folder("unique");
  const auto spec = (folder.path() / "spec.toml").string();
  write_text(spec, "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\n" + kToInteger);
  const auto crossfade = [&](const std::vector<std::string>& words) {
    return Program::run(crossfade_binary(), words, {{"CROSSFADE_DSN", dsn()}});
  };
  EXPECT_EQ(crossfade({"init"}).exit_status, 0);
  const auto plan = crossfade({"plan", spec});
  EXPECT_EQ(plan.exit_status, 3);
  EXPECT_TRUE(contains(plan.out, "twin_unique_may_reject")) << plan.out;
  EXPECT_EQ(crossfade({"start", spec}).exit_status, 3);
  EXPECT_EQ(crossfade({"start", spec, "--accept", "twin_unique_may_reject", "--reason", "no such rows"})
                .exit_status,
            0);
  const auto next = crossfade({"next", "m", "--until", "switched"});
  EXPECT_EQ(next.exit_status, 3);
  EXPECT_TRUE(contains(next.err, "2 rows in 1 groups")) << next.err;
  EXPECT_TRUE(contains(next.err, "keys {\"17\"} and {\"7\"}")) << next.err;
  EXPECT_EQ(indexes(), "one t_pkey");
  sql("UPDATE t SET v = '17' WHERE id = 17");
  const auto again = crossfade({"next", "m", "--until", "switched"});
  EXPECT_EQ(again.exit_status, 0) << again.err;
}

TEST_F(UniqueTest, AWriterThatMakesACollisionAfterTheDryRunFailsTheBuildWhichNamesTheRows) {
  prepare(kNumbers, kToInteger);
  advance(Phase::backfill);
  sql("INSERT INTO t VALUES (100, '07')");
  const auto error = refused([&] { advance(Phase::dual_write); });
  EXPECT_EQ(error.code(), ErrorCode::phase_failed) << error.message();
  EXPECT_TRUE(contains(error.message(), "index public.one")) << error.message();
  EXPECT_TRUE(contains(error.message(), "keys {\"100\"} and {\"7\"}")) << error.message();
  EXPECT_TRUE(contains(error.hint(), "crossfade next m")) << error.hint();
  EXPECT_EQ(indexes(), "one t_pkey") << "a leftover would go on refusing writes";
  EXPECT_EQ(violation("INSERT INTO t VALUES (101, '08')"), "none");
  EXPECT_EQ(migrator_->status("m").status, Status::failed);
  sql("DELETE FROM t WHERE id >= 100");
  advance(Phase::dual_write);
  EXPECT_EQ(violation("INSERT INTO t VALUES (101, '08')"), "23505") << "accepted at the start";
  advance(Phase::switched);
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_);
}

// --- After it: the old column
// ----------------------------------------------------------------------------------------------------

const std::string kWords =
    "CREATE TABLE t (id int PRIMARY KEY, v text, CONSTRAINT one UNIQUE (v));"
    "COMMENT ON CONSTRAINT one ON t IS 'c'; COMMENT ON INDEX one IS 'i';"
    "CREATE UNIQUE INDEX two ON t (v DESC, (id % 2)) WHERE id > 0; COMMENT ON INDEX two IS 't';"
    "INSERT INTO t SELECT g, 'w' || g FROM generate_series(10, 40) g;";
// Two words may be one when they are cut.
const std::string kCut = "name = \"v\"\ntype = \"text\"\nforward = \"v\"\nbackward = \"left(v, 3)\"\n";

TEST_F(UniqueTest, ValuesThatCollideOnlyInTheOldColumnFailNoWriteAndAreToldBeforeTheWayBack) {
  prepare(kWords, kCut);
  advance(Phase::switched);
  EXPECT_EQ(indexes(), "one t_pkey two");
  const auto builds = migrator_->status("m").rollback.does_first;
  EXPECT_EQ(std::set<std::string>(builds.begin(), builds.end()),
            (std::set<std::string>{"the old column's index for constraint one is not built yet",
                                   "the old column's index two is not built yet"}));
  std::atomic<bool> stop{false};
  std::atomic<int> written{0}, failed{0};
  std::jthread writer([&] {
    ApplicationSession session(dsn());
    for (int id = 1000; !stop; ++id) {
      try {
        session.run(fmt::format("INSERT INTO t (id, v) VALUES ({0}, 'same{0}')", id));
        ++written;
      } catch (const ApplicationError&) {
        ++failed;
      }
    }
  });
  wait_until([&] { return written > 20; }, "some writes");
  const auto error = rollback_refused();
  stop = true;
  writer.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.message();
  EXPECT_TRUE(contains(error.message(), "unique index public.one")) << error.message();
  EXPECT_TRUE(contains(error.message(), "unique index public.two")) << error.message();
  EXPECT_TRUE(contains(error.message(), "keys {\"1000\"} and {")) << error.message();
  EXPECT_EQ(indexes(), "one t_pkey two") << "nothing is begun for a way back that is refused";
  sql("DELETE FROM t WHERE id > 1000");
  migrator_->rollback("m");
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (2000, 'sam')"), "23505");
  advance(Phase::switched);
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_);
  EXPECT_EQ(value("SELECT v FROM t WHERE id = 1000"), "sam");
}

// The count found nothing, and then somebody writes while the indexes are built.
TEST_F(UniqueTest, ACollisionDuringTheBuildTakesAllOfItAwayAgain) {
  prepare(kWords, kCut);
  advance(Phase::switched);
  const PrivateFolder folder("unique");
  const auto gate = (folder.path() / "gate").string();
  failpoint::configure("twin.built=wait:" + gate);
  auto way_back = std::async(std::launch::async, [&] { return rollback_refused().message(); });
  wait_until([&] { return std::filesystem::exists(gate + ".reached"); }, "the first index");
  failpoint::configure("");
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (1000, 'w10x')"), "23505") << "the first index stands";
  // For a moment it lets a row through, which the second one meets.
  super_sql(
      "UPDATE pg_index SET indisready = false WHERE indrelid = 't'::regclass AND indexrelid::regclass::text"
      " LIKE '%cfold%'");
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (1000, 'w10x')"), "none");
  super_sql("UPDATE pg_index SET indisready = true WHERE indrelid = 't'::regclass");
  write_text(gate, "");
  const auto message = way_back.get();
  EXPECT_TRUE(contains(message, "keys {\"10\"} and {\"1000\"}")) << message;
  EXPECT_EQ(indexes(), "one t_pkey two");
  sql("DELETE FROM t WHERE id = 1000");
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_);
}

TEST_F(UniqueTest, AWayBackThatDiesAnywhereIsFinishedByTheNextOne) {
  prepare(kWords, kCut);
  advance(Phase::switched);
  for (const auto* point : {"twin.intent=error:XX000", "twin.built=error:XX000", "twin.built=error:XX000"}) {
    failpoint::configure(point);
    EXPECT_THROW(migrator_->rollback("m"), Error);
    failpoint::configure("");
    // What a builder that died inside leaves.
    super_sql(
        "UPDATE pg_index SET indisvalid = false WHERE indrelid = 't'::regclass AND indexrelid::regclass::text"
        " LIKE '%cfold%'");
  }
  EXPECT_TRUE(contains(indexes(), "broken")) << indexes();
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_);
}

TEST_F(UniqueTest, AWayBackThatWasGivenUpIsTakenAway) {
  prepare(kWords, kCut);
  advance(Phase::switched);
  failpoint::configure("twin.built=error:XX000");
  EXPECT_THROW(migrator_->rollback("m"), Error);
  failpoint::configure("");
  EXPECT_NE(indexes(), "one t_pkey two");
  const auto warnings = migrator_->status("m").warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "a way back was begun")) << warnings[0];
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (1000, 'w10x')"), "23505");
  advance(Phase::dropped);
  EXPECT_EQ(indexes(), "one t_pkey two");
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (1000, 'w10x')"), "none");
}

// A value that the old type just holds, and that an expression of the old index fails on.
TEST_F(UniqueTest, AnExpressionOverTheOldColumnFailsNoWriteEither) {
  prepare(
      "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE INDEX more ON t ((v + 1));"
      "INSERT INTO t SELECT g, g FROM generate_series(1, 20) g;",
      "name = \"v\"\ntype = \"bigint\"\n", {});
  advance(Phase::switched);
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (100, 2147483647)"), "none");
  const auto error = rollback_refused();
  EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.message();
  EXPECT_TRUE(contains(error.message(), "more")) << error.message();
  EXPECT_TRUE(contains(error.message(), "out of range")) << error.message();
  EXPECT_EQ(indexes(), "more t_pkey");
  sql("DELETE FROM t WHERE id = 100");
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(lines(), before_);
}

// Misfits are NULL in the old column, and this index takes one.
TEST_F(UniqueTest, MisfitsDoNotCollideAsNulls) {
  if (session().identity().version_num < 150000) return;
  prepare(
      "CREATE TABLE t (id int PRIMARY KEY, v int); CREATE UNIQUE INDEX one ON t (v) NULLS NOT DISTINCT;"
      "INSERT INTO t SELECT g, g FROM generate_series(1, 20) g;",
      "name = \"v\"\ntype = \"bigint\"\n", {});
  advance(Phase::switched);
  EXPECT_EQ(violation("INSERT INTO t (id, v) VALUES (100, 3000000000), (101, 3000000001)"), "none");
  const auto error = refused([&] {
    migrator_->rollback("m", {.to = {}, .accept = {{"misfits_open", "lost"}}});
  });
  EXPECT_TRUE(contains(error.message(), "keys {\"100\"} and {\"101\"}")) << error.message();
  sql("DELETE FROM t WHERE id = 101");
  migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {{"misfits_open", "lost"}}});
  EXPECT_EQ(lines(), before_);
}

}  // namespace
}  // namespace crossfade::test

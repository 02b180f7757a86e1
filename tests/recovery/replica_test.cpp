// Dry run and comparison on a standby: one that lags, is lost, is promoted, or is no standby of this primary.
#include <fmt/format.h>

#include <future>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/replica.hpp"
#include "support/database_test.hpp"
#include "support/files.hpp"
#include "support/migration_fixture.hpp"
#include "support/program.hpp"
#include "support/standby.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

constexpr auto kPatient = milliseconds(60000);

class ReplicaTest : public DatabaseTest {
 protected:
  // Of all tests but those that break theirs.
  static Standby& standby() {
    static Standby one(server());
    return one;
  }
  ~ReplicaTest() override { failpoint::configure(""); }

  Migrator migrator(const std::string& read_dsn, milliseconds patience = kPatient) {
    MigratorOptions options{.dsn = dsn(), .redis = {}, .operator_name = "ada", .host = "lovelace"};
    options.read_dsn = read_dsn;
    options.read_patience = patience;
    return Migrator(options);
  }
  Migrator reading(Standby& there, milliseconds patience = kPatient) {
    there.wait_replayed();
    return migrator(there.dsn(database()), patience);
  }

  // 3000 rows, settled in compare; everything until there was read on the primary.
  void reach_compare() {
    sql("CREATE TABLE t (id int PRIMARY KEY, b int)");
    sql("INSERT INTO t SELECT g, g FROM generate_series(1, 3000) g");
    Migrator here = migrator("");
    here.init();
    here.start(
        {"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\n"
         "type = \"bigint\"\n[drop]\nsoak = \"0s\"\n"});
    here.next("m", {.until = Phase::compare, .confirm = {}, .accept = {}});
  }

  ErrorCode error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_FALSE(error.message().empty());
      return error.code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::internal_error;
  }
  std::string newest_pass_sql(const std::string& what) {
    return value(
        fmt::format("SELECT {} FROM crossfade.pass WHERE kind = 'compare' ORDER BY id DESC LIMIT 1", what));
  }
  std::string phase_and_status() { return value("SELECT phase || ' ' || status FROM crossfade.migration"); }
  void wait_for_mark(const std::string& before) {
    wait_until([&] { return newest_pass_sql("coalesce(result->>'mark', '')") != before; },
               "a mark on the primary");
  }
  // Writes a value past the capture.
  void corrupt(int id) {
    const auto row = sql("SELECT mark, id FROM crossfade.migration")[0];
    const auto column = value(
        "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND NOT attisdropped"
        " ORDER BY attnum DESC LIMIT 1");
    sql(fmt::format(
        "BEGIN; SELECT set_config('crossfade.sweep', {}, true); UPDATE t SET {} = -1 WHERE id = {}; COMMIT",
        quote_literal(text_of(row[0])), quote_identifier(column), id));
  }
};

TEST_F(ReplicaTest, AWholeMigrationReadsOnTheStandby) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int UNIQUE)");
  sql("INSERT INTO t SELECT g, g FROM generate_series(1, 3000) g");
  migrator("").init();
  Migrator there = reading(standby());
  there.start(
      {"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"});
  there.next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
  there.rollback("m");
  EXPECT_EQ(
      value("SELECT count(*) FROM crossfade.pass WHERE kind IN ('profile', 'compare') AND state = 'ended'"
            " AND (result->>'read_on' IS DISTINCT FROM 'standby' OR rows_read <> 3000)"),
      "0");
  EXPECT_EQ(value("SELECT count(*) > 2 FROM crossfade.pass WHERE result->>'read_on' = 'standby'"), "t");
}

TEST_F(ReplicaTest, WhatThePrimaryCommittedBeforeThePassIsWaitedFor) {
  reach_compare();
  Migrator there = reading(standby());
  standby().pause_replay();
  sql("INSERT INTO t SELECT g, g FROM generate_series(3001, 3500) g");
  auto compared = std::async(std::launch::async, [&] { return there.compare("m"); });
  wait_for_mark("");
  standby().resume_replay();
  EXPECT_EQ(compared.get().rows_read, 3500);
}

TEST_F(ReplicaTest, AStandbyThatDoesNotReplayIsAnErrorAndNothingElse) {
  reach_compare();
  Migrator there = reading(standby(), milliseconds(300));
  standby().pause_replay();
  EXPECT_EQ(error_of([&] { there.compare("m"); }), ErrorCode::standby_behind);
  EXPECT_EQ(phase_and_status(), "compare settled");
  EXPECT_EQ(newest_pass_sql("state"), "running");
  standby().resume_replay();
  Migrator patient = reading(standby());
  EXPECT_EQ(patient.compare("m").rows_read, 3000);
}

TEST_F(ReplicaTest, AServerThatIsNoStandbyOfThisPrimaryIsRefused) {
  reach_compare();
  Migrator itself = migrator(dsn());
  EXPECT_EQ(error_of([&] { itself.compare("m"); }), ErrorCode::standby_mismatch);
  PostgresServer stranger({.settings = {}, .role = PostgresOptions::Role::standby});
  Migrator strange = migrator(stranger.dsn("postgres", "postgres"));
  EXPECT_EQ(error_of([&] { strange.compare("m"); }), ErrorCode::standby_mismatch);
  Migrator other_role = migrator(standby().dsn(database(), "postgres"));
  EXPECT_EQ(error_of([&] { other_role.compare("m"); }), ErrorCode::standby_mismatch);
  EXPECT_EQ(phase_and_status(), "compare settled");
}

TEST_F(ReplicaTest, WhatWasReadOnAStandbyThatWasPromotedIsNotStored) {
  reach_compare();
  Standby doomed(server());
  Migrator there = reading(doomed);
  PrivateFolder folder("gate");
  const auto gate = folder.path() / "open";
  failpoint::configure("compare.range=wait:" + gate.string());
  auto compared = std::async(std::launch::async, [&] { return error_of([&] { there.compare("m"); }); });
  wait_for_mark("");
  wait_until(
      [&] {
        const auto readers = doomed.server().admin().exec(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crossfade/m/reader'"
            " AND state = 'idle' AND query LIKE '%cf verdict%'");
        return text_of(readers.one("readers")[0]) == "1";
      },
      "the first range to be read");
  doomed.server().promote();
  write_text(gate, "");
  EXPECT_EQ(compared.get(), ErrorCode::standby_mismatch);
  EXPECT_EQ(newest_pass_sql("(SELECT count(*) FROM crossfade.comparison c WHERE c.pass_id = pass.id)"), "0");
  failpoint::configure("");
  // The pass goes on where it was, on the primary.
  const auto pass = newest_pass_sql("id");
  EXPECT_EQ(std::to_string(migrator("").compare("m").id), pass);
  EXPECT_EQ(newest_pass_sql("state || ' ' || rows_read"), "ended 3000");
}

TEST_F(ReplicaTest, AStandbyThatComesBackIsReadAgain) {
  reach_compare();
  Standby shaky(server());
  Migrator there = reading(shaky);
  PrivateFolder folder("gate");
  const auto gate = folder.path() / "open";
  failpoint::configure("compare.range=wait:" + gate.string());
  auto compared = std::async(std::launch::async, [&] { return there.compare("m"); });
  wait_for_mark("");
  shaky.server().stop_immediate();
  failpoint::configure("");
  write_text(gate, "");
  shaky.server().restart();
  const auto pass = compared.get();
  EXPECT_EQ(pass.rows_read, 3000);
  EXPECT_EQ(pass.differences, 0);
}

TEST_F(ReplicaTest, AStandbyThatStaysAwayEndsTheCommandAndNothingElse) {
  reach_compare();
  auto gone = std::make_unique<Standby>(server());
  Migrator there = reading(*gone, milliseconds(500));
  gone.reset();
  EXPECT_EQ(error_of([&] { there.compare("m"); }), ErrorCode::server_unreachable);
  EXPECT_EQ(phase_and_status(), "compare settled");
  EXPECT_EQ(migrator("").compare("m").rows_read, 3000);
}

TEST_F(ReplicaTest, TheCommandTakesItAsAnOptionAndFromTheEnvironment) {
  reach_compare();
  standby().wait_replayed();
  const auto there = standby().dsn(database());
  const auto compare = [&](std::vector<std::string> words, const std::string& variable) {
    words.insert(words.begin(), {"compare", "m", "--json"});
    return Program::run(crossfade_binary(), words,
                        {{"CROSSFADE_DSN", dsn()}, {"CROSSFADE_READ_DSN", variable}});
  };
  const auto read_on = [&] { return newest_pass_sql("coalesce(result->>'read_on', 'primary')"); };
  EXPECT_EQ(compare({}, "").exit_status, 0);
  EXPECT_EQ(read_on(), "primary");
  EXPECT_EQ(compare({}, there).exit_status, 0);
  EXPECT_EQ(read_on(), "standby");
  const auto refused = compare({}, dsn());
  EXPECT_EQ(refused.exit_status, 4);
  EXPECT_NE(refused.out.find("\"standby_mismatch\""), std::string::npos) << refused.out;
  // The option wins.
  EXPECT_EQ(compare({"--read-dsn", there}, dsn()).exit_status, 0);
}

// Ranges of fifty rows, so that there is something to share.
TEST_F(ReplicaTest, SeveralWorkersReadOnSessionsThatAreAllProved) {
  auto primary = SqlSession::connect({dsn(), "test"});
  MigrationFixture fixture(primary,
                           "CREATE TABLE t(id int PRIMARY KEY, b int);"
                           "INSERT INTO t SELECT g, g FROM generate_series(1, 3000) g",
                           column_spec("b", "bigint"));
  fixture.prepare_compare();
  corrupt(1234);
  standby().wait_replayed();
  std::atomic<int> connected{0};
  bool lost = false;
  Replica replica({[&] {
    ++connected;
    return SqlSession::connect({standby().dsn(database()), "crossfade/m/reader"},
                               SqlSession::Target::allow_standby);
  }});
  CursorCache cache("");
  const std::atomic<bool> stop{false};
  Comparator comparator(fixture.migration(), fixture.table(), CompareDirection::forward,
                        RangePace{50, 0, 50});
  const auto pass = comparator.open_pass(primary);
  ReadCrew crew;
  crew.workers = 3;
  crew.replica = &replica;
  const auto told = [&](std::int64_t) {
    if (lost || connected < 3) return;
    lost = true;
    standby().server().admin().exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
        "'crossfade/m/reader'");
  };
  while (!comparator.run(primary, cache, pass, milliseconds(200), stop, told, crew)) {
  }
  EXPECT_TRUE(lost);
  EXPECT_GE(connected, 6) << "all of them, and all of them once more";
  EXPECT_EQ(newest_pass_sql("state || ' ' || rows_read || ' ' || differences || ' ' || (result->>'read_on')"),
            "ended 3000 1 standby");
}

// The standby shows everything a second late, so that what was mended on the primary is still wrong there.
TEST_F(ReplicaTest, ADifferenceIsLookedAtOnThePrimaryBeforeItIsReported) {
  reach_compare();
  Standby late(server(), {"recovery_min_apply_delay=1s"});
  Migrator there = reading(late);
  corrupt(7);
  EXPECT_EQ(there.compare("m").differences, 1);
  const auto before = newest_pass_sql("result->>'mark'");
  auto compared = std::async(std::launch::async, [&] { return there.compare("m"); });
  wait_for_mark(before);
  sql("UPDATE t SET b = b WHERE id = 7");
  EXPECT_EQ(compared.get().differences, 0);
}

}  // namespace
}  // namespace crossfade::test

// Several runners at once, runners that lose a session, and runners that wake up late.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "kill_points.hpp"
#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

constexpr int kBusy = 6;

class RunnersTest : public RecoveryTest {};

TEST_F(RunnersTest, OfFiveStartedAtOnceOneWorksAndNobodyUndoesIt) {
  make_table();
  start_writers();
  advance_to(Phase::planned);
  const auto place = [&] { return std::ranges::find(kThere, phase()) - kThere.begin(); };
  for (auto before = place(); phase() != Phase::dropped; before = place()) {
    SCOPED_TRACE(to_text(phase()));
    std::vector<Program> programs;
    for (int n = 0; n < 5; ++n) programs.push_back(launch({"next", "m", "--confirm", "m"}));
    int done = 0;
    for (auto& program : programs) {
      const auto result = program.wait();
      if (result.exit_status == 0) ++done;
      // A closed migration is no longer to be moved.
      const bool closed = result.exit_status == 3 && phase() == Phase::dropped;
      EXPECT_TRUE(result.exit_status == 0 || result.exit_status == kBusy || closed) << result.err;
    }
    // One that came when another had ended may go on from there: never more than a step for each success.
    EXPECT_GE(place() - before, 1);
    EXPECT_LE(place() - before, done);
    EXPECT_EQ(status(), "settled");
    EXPECT_EQ(transitions(), static_cast<int>(place()));
    check_in_step();
    if (HasFailure()) return;
  }
}

TEST_F(RunnersTest, OfFiveRollbacksAtOnceNobodyGoesFurtherThanWasAskedFor) {
  make_table();
  start_writers();
  advance_to(Phase::dual_write);
  std::vector<Program> programs;
  for (int n = 0; n < 5; ++n) programs.push_back(launch(back(Phase::backfill)));
  int done = 0;
  for (auto& program : programs) {
    const auto result = program.wait();
    if (result.exit_status == 0) ++done;
    EXPECT_TRUE(result.exit_status == 0 || result.exit_status == kBusy) << result.err;
  }
  EXPECT_GE(done, 1);
  EXPECT_EQ(phase(), Phase::backfill);
  check_whole();
}

TEST_F(RunnersTest, ARollbackThatComesTooLateForItsAimStopsWhereItFindsTheMigration) {
  make_table();
  advance_to(Phase::backfill);
  const auto stop = gate("locked");
  auto far = launch(back(Phase::planned), "backfill_to_dry_run.locked=wait:" + stop);
  wait_until_reached(stop, far);
  // It saw backfill; when it gets its turn, the other one is past what it wants.
  auto near = launch(back(Phase::dry_run));
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'crossfade/m/rollback'"
      " AND wait_event_type = 'Lock'");
  open(stop);
  // It asked the first one to end, which may or may not have come to its own aim before.
  const auto came_far = far.wait().exit_status;
  EXPECT_TRUE(came_far == 0 || came_far == kBusy);
  EXPECT_EQ(near.wait().exit_status, came_far == 0 ? kBusy : 0);
  EXPECT_EQ(phase(), came_far == 0 ? Phase::planned : Phase::dry_run);
  check_whole();
}

TEST_F(RunnersTest, OneThatIsStoppedForLongerThanItsLeaseWritesNothingWhenItWakes) {
  make_table({.rows = 4000, .tuning = "rows_per_second = 400", .switching = {}});
  advance_to(Phase::dry_run);
  auto sleeper = launch(next(Phase::backfill));
  wait_until([&] { return value("SELECT coalesce(sum(chunks), 0) > 0 FROM crossfade.unit") == "t"; },
             "a chunk");
  sleeper.signal(SIGSTOP);
  const auto token = value("SELECT token FROM crossfade.migration");
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  EXPECT_EQ(status(), "settled");
  EXPECT_NE(value("SELECT token FROM crossfade.migration"), token);
  check_in_step();
  const auto before = versions_of_rows();
  sleeper.signal(SIGCONT);
  const auto result = sleeper.wait();
  EXPECT_EQ(result.exit_status, kBusy) << result.err;
  EXPECT_NE(result.err.find("took the migration over"), std::string::npos) << result.err;
  EXPECT_EQ(versions_of_rows(), before);
  EXPECT_EQ(status(), "settled");
  EXPECT_EQ(value("SELECT lease_until FROM crossfade.migration"), "NULL");
}

// Frozen with the migration row locked, before it sent anything that touches the table.
TEST_F(RunnersTest, OneThatIsStoppedBeforeTheMessageHoldsNobodyUpForLongerThanALease) {
  make_table();
  start_writers();
  advance_to(Phase::compare);
  const auto stop = gate("locked");
  auto frozen = launch(next(Phase::switched), "compare_to_switched.locked=wait:" + stop);
  wait_until_reached(stop, frozen);
  frozen.signal(SIGSTOP);
  // Neither readers nor writers notice.
  EXPECT_EQ(
      value("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'AccessExclusiveLock'"),
      "0");
  writers().let_write(200);
  succeed({"status", "m"});
  // Its lease has run out; the row that it locked is freed by the server.
  super_sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'crossfade/m/lease'");
  const auto began = std::chrono::steady_clock::now();
  succeed(next(Phase::switched));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
  EXPECT_EQ(phase(), Phase::switched);
  open(stop);
  frozen.signal(SIGCONT);
  const auto result = frozen.wait();
  EXPECT_TRUE(result.exit_status == 5 || result.exit_status == kBusy) << result.exit_status << result.err;
  EXPECT_EQ(transitions(), 5);
  check_in_step();
}

TEST_F(RunnersTest, OneThatLosesAnyOfItsSessionsInTheMiddleOfASweepLosesNoRow) {
  make_table({.rows = 6000, .tuning = "rows_per_second = 20000", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  for (const auto* role : {"worker-1", "worker-2", "lease", "runner"}) {
    SCOPED_TRACE(role);
    const auto stop = gate(role);
    auto program = launch(next(Phase::backfill), "chunk.bounded=wait:" + stop);
    wait_until_reached(stop, program);
    const auto sessions = fmt::format("pg_stat_activity WHERE application_name = 'crossfade/m/{}'", role);
    wait_until_true("SELECT count(*) = 1 FROM " + sessions);
    super_sql("SELECT pg_terminate_backend(pid) FROM " + sessions);
    open(stop);
    const auto result = program.wait();
    check_whole();
    // The runner's own session is not replaced: the command ends, and the next one goes on.
    const bool ends = std::string_view(role) == "runner";
    EXPECT_EQ(result.exit_status, ends ? 5 : 0) << result.err;
    succeed(next(Phase::backfill));
    check_in_step();
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE kind = 'backfill' AND state <> 'void'"), "1");
    succeed(back(Phase::dry_run));
  }
}

// The phase change had not been sent: nothing happened, and that is found out.
TEST_F(RunnersTest, OneWhoseSessionEndsInsideAPhaseChangeFindsOutThatNothingHappened) {
  make_table();
  start_writers();
  advance_to(Phase::compare);
  const auto stop = gate("locked");
  auto program = launch(next(Phase::switched), "compare_to_switched.locked=wait:" + stop);
  wait_until_reached(stop, program);
  super_sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'crossfade/m/runner'");
  open(stop);
  EXPECT_EQ(program.wait().exit_status, 5);
  EXPECT_EQ(phase(), Phase::compare);
  check_in_step();
  succeed(next(Phase::switched));
  check_in_step();
}

// Somebody holds the row that would tell: it is not guessed.
TEST_F(RunnersTest, OneThatCannotFindOutWhatBecameOfAPhaseChangeSaysSo) {
  make_table();
  advance_to(Phase::compare);
  const auto stop = gate("locked");
  auto program = launch(next(Phase::switched), "compare_to_switched.locked=wait:" + stop);
  wait_until_reached(stop, program);
  const auto pid = value("SELECT pid FROM pg_stat_activity WHERE application_name = 'crossfade/m/runner'");
  ApplicationSession holder(dsn());
  holder.run("BEGIN");
  holder.send("SELECT 1 FROM crossfade.migration FOR UPDATE");
  wait_until_blocked(holder.backend_pid());
  super_sql(fmt::format("SELECT pg_terminate_backend({})", pid));
  holder.finish();
  open(stop);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_status, 7) << result.err;
  EXPECT_NE(result.err.find("pid " + pid), std::string::npos) << result.err;
  check_in_step();
  holder.run("COMMIT");
  succeed(next(Phase::switched));
  EXPECT_EQ(transitions(), 5);
  check_in_step();
}

TEST_F(RunnersTest, OneThatWakesUpInAComparisonAfterTheSwitchChangesNothing) {
  make_table();
  advance_to(Phase::dual_write);
  const auto stop = gate("range");
  auto sleeper = launch(next(Phase::compare), "compare.range=wait:" + stop);
  wait_until_reached(stop, sleeper);
  sleeper.signal(SIGSTOP);
  // As if the lease had run out.
  sql("UPDATE crossfade.migration SET lease_until = clock_timestamp() - interval '1 s'");
  succeed(next(Phase::switched));
  const auto state = value("SELECT format('%s %s', phase_since, epoch) FROM crossfade.migration");
  const auto rows = versions_of_rows();
  open(stop);
  sleeper.signal(SIGCONT);
  EXPECT_EQ(sleeper.wait().exit_status, kBusy);
  EXPECT_EQ(value("SELECT format('%s %s', phase_since, epoch) FROM crossfade.migration"), state);
  EXPECT_EQ(versions_of_rows(), rows);
  EXPECT_EQ(status(), "settled");
  check_in_step();
}

// It was about to build an index for a column that is not there any more.
TEST_F(RunnersTest, OneThatWakesUpBeforeAnIndexBuildAfterARollbackLeavesNothing) {
  make_table();
  advance_to(Phase::backfill);
  const auto stop = gate("intent");
  auto sleeper = launch(next(Phase::dual_write), "twin.intent=wait:" + stop);
  wait_until_reached(stop, sleeper);
  sleeper.signal(SIGSTOP);
  sql("UPDATE crossfade.migration SET lease_until = clock_timestamp() - interval '1 s'");
  succeed(back(Phase::dry_run));
  open(stop);
  sleeper.signal(SIGCONT);
  EXPECT_EQ(sleeper.wait().exit_status, kBusy);
  EXPECT_EQ(phase(), Phase::dry_run);
  succeed(back(Phase::rolled_back));
  check_restored();
}

// While its lease is gone with its session, a second one may take it; then the first one stops.
TEST_F(RunnersTest, OneThatLosesItsLeaseSessionStopsWhenAnotherTookIt) {
  make_table({.rows = 4000, .tuning = "rows_per_second = 400", .switching = {}});
  advance_to(Phase::dry_run);
  auto first = launch(next(Phase::backfill));
  wait_until([&] { return value("SELECT coalesce(sum(chunks), 0) > 0 FROM crossfade.unit") == "t"; },
             "a chunk");
  first.signal(SIGSTOP);
  // With those that hold its units, which would else be waited for.
  const std::string sessions = "pg_stat_activity WHERE application_name ~ '^crossfade/m/(lease|worker)'";
  super_sql("SELECT pg_terminate_backend(pid) FROM " + sessions);
  wait_until_true("SELECT count(*) = 0 FROM " + sessions);
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  const auto before = versions_of_rows();
  first.signal(SIGCONT);
  EXPECT_EQ(first.wait().exit_status, kBusy);
  EXPECT_EQ(versions_of_rows(), before);
  check_in_step();
}

// Its workers are frozen and connected, and hold units for an hour: they are free under a new token.
TEST_F(RunnersTest, AFrozenOnesUnitsAreTakenAtOnce) {
  make_table({.rows = 4000, .tuning = "rows_per_second = 400", .switching = {}});
  advance_to(Phase::dry_run);
  auto first = launch(next(Phase::backfill));
  wait_until(
      [&] { return value("SELECT count(*) > 0 FROM crossfade.unit WHERE chunks > 0 AND NOT done") == "t"; },
      "a chunk");
  first.signal(SIGSTOP);
  super_sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'crossfade/m/lease'");
  wait_until_true("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'crossfade/m/lease'");
  wait_until_true(
      "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'crossfade/m/worker%'"
      " AND state <> 'idle'");
  sql("UPDATE crossfade.unit SET lease_until = clock_timestamp() + interval '1 h' WHERE NOT done");
  EXPECT_EQ(value("SELECT count(*) > 0 FROM crossfade.unit u WHERE NOT done AND EXISTS (SELECT FROM"
                  " pg_stat_activity a WHERE a.pid = u.lease_pid)"),
            "t");
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit WHERE NOT done"), "0");
  const auto before = versions_of_rows();
  const auto units = value("SELECT string_agg(u::text, ' ' ORDER BY number) FROM crossfade.unit u");
  first.signal(SIGCONT);
  EXPECT_EQ(first.wait().exit_status, kBusy);
  EXPECT_EQ(versions_of_rows(), before);
  EXPECT_EQ(value("SELECT string_agg(u::text, ' ' ORDER BY number) FROM crossfade.unit u"), units);
  check_in_step();
}

}  // namespace
}  // namespace crossfade::test

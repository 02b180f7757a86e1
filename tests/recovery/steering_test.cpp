// What people do to a run that goes on: rollback, pause, resume, tune, and signals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <random>

#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 130;
constexpr int kBusy = 6;

// Of the package libfaketime.
std::string fake_clock_library() {
  for (const auto& folder : std::filesystem::directory_iterator("/usr/lib")) {
    const auto found = folder.path() / "faketime" / "libfaketime.so.1";
    if (std::filesystem::exists(found)) return found;
  }
  throw std::runtime_error("there is no libfaketime: install the package libfaketime");
}

class SteeringTest : public RecoveryTest {
 protected:
  std::int64_t rows_swept() {
    return std::stoll(value("SELECT coalesce(sum(rows_read), 0) FROM crossfade.unit"));
  }
  // A sweep that would take a minute.
  Program launch_slow_sweep() {
    make_table({.rows = 6000, .tuning = "rows_per_second = 100", .switching = {}});
    start_writers();
    advance_to(Phase::dry_run);
    auto program = launch(next(Phase::backfill));
    wait_until([&] { return phase() == Phase::backfill && rows_swept() > 0; }, "a chunk of the sweep",
               std::chrono::seconds(60));
    return program;
  }
};

TEST_F(SteeringTest, ARollbackEndsTheRunnerAndGoesBack) {
  auto runner = launch_slow_sweep();
  succeed({"rollback", "m"});
  EXPECT_EQ(phase(), Phase::dry_run);
  EXPECT_EQ(runner.wait().exit_status, kBusy);
  check_whole();
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  check_in_step();
}

TEST_F(SteeringTest, ARollbackTakesOverFromARunnerThatDoesNotAnswer) {
  auto runner = launch_slow_sweep();
  runner.signal(SIGSTOP);
  const auto began = Clock::now();
  succeed({"rollback", "m"});
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(60));
  EXPECT_EQ(phase(), Phase::dry_run);
  const auto before = transitions();
  runner.signal(SIGCONT);
  EXPECT_EQ(runner.wait().exit_status, kBusy);
  EXPECT_EQ(phase(), Phase::dry_run);
  EXPECT_EQ(transitions(), before);
  check_whole();
}

TEST_F(SteeringTest, APauseStopsTheWritesAndAResumeLetsThemGoOn) {
  auto runner = launch_slow_sweep();
  succeed({"pause", "m", "--reason", "lunch"});
  EXPECT_EQ(status(), "paused");
  // A chunk that had begun may still end; the next one that looks finds the fence empty.
  wait_until_true(
      "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'crossfade/m/worker%'"
      " AND state = 'active'");
  const auto swept = rows_swept();
  succeed({"tune", "m", "rows_per_second=0"});
  EXPECT_EQ(crossfade({"next", "m"}).exit_status, 3) << "a paused migration is not moved";
  writers().let_write(300);
  EXPECT_EQ(rows_swept(), swept);
  EXPECT_TRUE(runner.is_running());
  succeed({"resume", "m"});
  EXPECT_EQ(runner.wait().exit_status, 0);
  EXPECT_EQ(status(), "settled");
  check_in_step();
}

// The phase was settled when the runner looked, and is paused when it locks the row.
TEST_F(SteeringTest, APauseBetweenTheLookAndTheLockKeepsThePhase) {
  make_table();
  advance_to(Phase::backfill);
  const auto stop = gate("pause");
  auto runner = launch(next(Phase::dual_write), "backfill_to_dual_write.before=wait:" + stop);
  wait_until_reached(stop, runner);
  succeed({"pause", "m", "--reason", "lunch"});
  open(stop);
  const auto result = runner.wait();
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_NE(result.err.find("migration m is paused: lunch"), std::string::npos) << result.err;
  EXPECT_EQ(phase(), Phase::backfill);
  EXPECT_EQ(status(), "paused");
  EXPECT_EQ(crossfade({"rollback", "m"}).exit_status, 0) << "a way back is open from every status";
  EXPECT_EQ(phase(), Phase::dry_run);
}

TEST_F(SteeringTest, ATunedRateIsInForceAtOnce) {
  auto runner = launch_slow_sweep();
  const auto began = Clock::now();
  succeed({"tune", "m", "rows_per_second=0"});
  EXPECT_EQ(runner.wait().exit_status, 0);
  // At the old rate a minute would be left.
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30));
  check_in_step();
}

TEST_F(SteeringTest, ALoweredRateIsInForceWithinTwoSeconds) {
  make_table({.rows = 20000, .tuning = "rows_per_second = 2000", .switching = {}});
  advance_to(Phase::dry_run);
  auto runner = launch(next(Phase::backfill));
  wait_until([&] { return phase() == Phase::backfill && rows_swept() > 0; }, "a chunk of the sweep");
  succeed({"tune", "m", "rows_per_second=50"});
  const auto tuned = Clock::now();
  wait_until([&] { return Clock::now() - tuned >= std::chrono::seconds(2); }, "the promised time to be over");
  const auto swept = rows_swept();
  const auto began = Clock::now();
  wait_until([&] { return rows_swept() >= swept + 100; }, "a hundred more rows");
  EXPECT_GT(Clock::now() - began, std::chrono::seconds(1))
      << "at the old rate they take a twentieth of a second";
  runner.signal(SIGINT);
  EXPECT_EQ(runner.wait().exit_status, kInterrupted);
}

TEST_F(SteeringTest, EverySignalEndsItAfterTheChunkWithNothingLost) {
  auto runner = launch_slow_sweep();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(number);
    runner.signal(number);
    const auto result = runner.wait();
    EXPECT_EQ(result.exit_status, kInterrupted) << result.err;
    EXPECT_EQ(status(), "running");
    EXPECT_EQ(value("SELECT lease_until FROM crossfade.migration"), "NULL") << "the lease is free at once";
    check_whole();
    const auto swept = rows_swept();
    runner = launch(next(Phase::backfill));
    wait_until([&] { return rows_swept() > swept; }, "it to go on");
  }
  succeed({"tune", "m", "rows_per_second=0"});
  EXPECT_EQ(runner.wait().exit_status, 0);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE kind = 'backfill'"), "1");
  check_in_step();
}

TEST_F(SteeringTest, AnInterruptEndsAnIndexBuildThatWaits) {
  make_table();
  advance_to(Phase::backfill);
  ApplicationSession old(dsn());
  old.run("BEGIN; UPDATE t SET n = n WHERE id = 1");
  auto runner = launch(next(Phase::dual_write));
  const std::string building =
      "pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%' AND state = 'active'";
  wait_until_true("SELECT count(*) > 0 FROM " + building + " AND wait_event_type = 'Lock'");
  runner.signal(SIGINT);
  const auto result = runner.wait();
  EXPECT_EQ(result.exit_status, kInterrupted) << result.err;
  EXPECT_EQ(value("SELECT count(*) FROM " + building), "0");
  EXPECT_EQ(status(), "running");
  old.run("COMMIT");
  succeed(next(Phase::dual_write));
  EXPECT_EQ(value("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND NOT indisvalid"), "0");
  check_in_step();
}

// Obeyed after it, because a phase change is never cut in two.
TEST_F(SteeringTest, AnInterruptInsideASwitchIsObeyedAfterIt) {
  make_table();  // without an application: with one the attempt may miss the lock, and the next is not made
  advance_to(Phase::compare);
  const auto stop = gate("locked");
  auto runner = launch(next(Phase::switched), "compare_to_switched.locked=wait:" + stop);
  wait_until_reached(stop, runner);
  runner.signal(SIGINT);
  open(stop);
  EXPECT_EQ(runner.wait().exit_status, kInterrupted);
  EXPECT_EQ(phase(), Phase::switched);
  EXPECT_EQ(status(), "running");
  check_in_step();
  succeed(next(Phase::switched));
  check_in_step();
}

// Case 103, https://github.com/reorg/pg_repack/issues/55: an interrupted clean-up dropped in another order
// than the application's writes lock, and was in a deadlock with them. The application must never be told of
// one.
TEST_F(SteeringTest, AnInterruptAtAnyMomentOfTheWayBackFailsNoWriter) {
  make_table({.rows = 300, .tuning = {}, .switching = {}});
  start_writers(3);
  advance_to(Phase::planned);
  // How long one takes that nobody interrupts: a sanitizer build is several times slower.
  succeed(next(Phase::backfill));
  const auto began = Clock::now();
  succeed(back(Phase::dry_run));
  const std::chrono::milliseconds whole = std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - began);
  std::mt19937 random(20);  // any moments will do
  int interrupted = 0;
  for (int round = 0; round < 20; ++round) {
    succeed(next(Phase::backfill));
    auto program = launch(back(Phase::dry_run));
    const auto after = static_cast<std::int64_t>(random()) % whole.count();
    const auto moment = Clock::now() + std::chrono::milliseconds(after);
    wait_until([&] { return Clock::now() >= moment; }, "a moment");
    program.signal(SIGINT);
    const auto result = program.wait();
    // Before it could say how it wants to be interrupted the signal ends it.
    EXPECT_TRUE(result.exit_status == 0 || result.exit_status == kInterrupted || result.signal == SIGINT)
        << result.err;
    if (result.exit_status == kInterrupted) ++interrupted;
    const auto now = phase();
    EXPECT_TRUE(now == Phase::backfill || now == Phase::dry_run);
    if (HasFailure()) return;
  }
  check_whole();
  EXPECT_GE(interrupted, 3);
}

// Case 119, https://github.com/johanhaleby/occurrent/issues/659: a lease that is judged by the clock of
// whoever looks has two owners. Ours knows PostgreSQL's clock only.
TEST_F(SteeringTest, ClocksThatAreAnHourApartGiveNoSecondOwner) {
  const std::string library = fake_clock_library();
  const auto clock = [&](const std::string& shift) {
    more_ = {{"LD_PRELOAD", library},
             {"FAKETIME", shift},
             {"FAKETIME_DONT_FAKE_MONOTONIC", "1"},
             {"ASAN_OPTIONS", "verify_asan_link_order=0"}};
    return std::stoll(Program::run("/bin/date", {"+%s"}, more_).out) - std::time(nullptr);
  };
  auto runner = launch_slow_sweep();
  runner.signal(SIGKILL);
  runner.wait();
  ASSERT_GT(clock("+1h"), 3000) << "the clock is not shifted";
  auto ahead = launch(next(Phase::backfill));
  const auto before = rows_swept();
  wait_until([&] { return rows_swept() > before; }, "a chunk of the one whose clock is ahead",
             std::chrono::seconds(60));
  ASSERT_LT(clock("-1h"), -3000);
  EXPECT_EQ(crossfade(next(Phase::backfill)).exit_status, kBusy);
  ASSERT_GT(clock("+2h"), 6000);
  EXPECT_EQ(crossfade(next(Phase::backfill)).exit_status, kBusy);
  EXPECT_TRUE(ahead.is_running());
  ahead.signal(SIGKILL);
  ahead.wait();
  ASSERT_LT(clock("-1h"), -3000);
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  more_.clear();
  check_in_step();
}

}  // namespace
}  // namespace crossfade::test

// The server crashes. A chunk commits asynchronously: rows and watermark are there together, or gone
// together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kill_points.hpp"
#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

constexpr int kUnavailable = 5;

class ServerCrashTest : public RecoveryTest {
 protected:
  // The application ends before, because its transactions are not to be found wrong for what they never knew.
  void crash(Program& program) {
    stop_writers();
    server().stop_immediate();
    const auto result = program.wait();
    EXPECT_EQ(result.exit_status, kUnavailable) << result.err;
    server().restart();
    check_whole();
  }
  void crash_at(const std::string& point, const Arguments& command) {
    SCOPED_TRACE(point);
    const auto stop = gate(point);
    auto program = launch(command, point + "=wait:" + stop);
    wait_until_reached(stop, program);
    stop_writers();
    server().stop_immediate();
    open(stop);
    EXPECT_EQ(program.wait().exit_status, kUnavailable);
    server().restart();
    check_whole();
  }
};

TEST_F(ServerCrashTest, InTheMiddleOfASweepCostsTimeAndNoRow) {
  make_table({.rows = 10000, .tuning = "rows_per_second = 2000", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  for (const int chunks : {2, 6}) {
    auto program = launch(next(Phase::backfill));
    wait_until(
        [&] { return std::stoi(value("SELECT coalesce(sum(chunks), 0) FROM crossfade.unit")) >= chunks; },
        "chunks");
    crash(program);
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE kind = 'backfill'"), "1");
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  check_in_step();
}

TEST_F(ServerCrashTest, AtAChunkAComparisonAndASwitchIsFollowedByTheSameEnd) {
  make_table();
  start_writers();
  advance_to(Phase::dry_run);
  crash_at("chunk.after", next(Phase::backfill));
  crash_at("twin.intent", next(Phase::dual_write));
  crash_at("compare.range", next(Phase::compare));
  crash_at("compare_to_switched.locked", next(Phase::switched));
  EXPECT_EQ(phase(), Phase::compare);
  succeed(next(Phase::switched));
  check_in_step();
  crash_at("switched_to_compare.sent", back(Phase::compare));
  EXPECT_EQ(phase(), Phase::compare);
  succeed(back(Phase::rolled_back));
  check_restored();
}

}  // namespace
}  // namespace crossfade::test

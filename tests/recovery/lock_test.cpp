// The switch and the application's locks: who waits for whom, and for how long.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Several test programs share the machine: a reader that waits for us waits for seconds, not for a
// scheduler's turn.
constexpr milliseconds kSlack{1500};
constexpr milliseconds kBudget{200};

// A reader that never stops, and the longest that it waited.
class Reader {
 public:
  Reader(const std::string& dsn, std::string query)
      : session_(dsn), thread_([this, query = std::move(query)](const std::stop_token& token) {
          while (!token.stop_requested()) {
            const auto began = Clock::now();
            session_.run(query);
            longest_ = std::max<Clock::rep>(longest_, (Clock::now() - began).count());
            ++reads_;
          }
        }) {}
  milliseconds longest() const { return std::chrono::ceil<milliseconds>(Clock::duration(longest_)); }
  int reads() const { return reads_; }

 private:
  ApplicationSession session_;
  std::atomic<Clock::rep> longest_ = 0;
  std::atomic<int> reads_ = 0;
  std::jthread thread_;
};

class LockTest : public RecoveryTest {
 protected:
  void prepare(int attempts) {
    make_table({.rows = 2000, .tuning = {}, .switching = fmt::format("attempts = {}", attempts)});
    advance_to(Phase::compare);
  }
};

TEST_F(LockTest, AnIdleReaderIsNamedAndDelaysNobodyElse) {
  prepare(12);
  ApplicationSession idle(dsn());
  idle.run("BEGIN; SELECT count(*) FROM t");
  // Younger than a second it might end while an attempt waits.
  wait_until_true(
      fmt::format("SELECT clock_timestamp() - xact_start > '1 s' FROM pg_stat_activity WHERE pid = {}",
                  idle.backend_pid()));
  Reader reader(dsn(), "SELECT b FROM t WHERE id = 1");
  const auto result = crossfade(next(Phase::switched));
  EXPECT_EQ(result.exit_status, 3) << result.err;
  EXPECT_NE(result.err.find(fmt::format("pid {} ", idle.backend_pid())), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("idle in transaction"), std::string::npos) << result.err;
  EXPECT_EQ(phase(), Phase::compare);
  EXPECT_EQ(status(), "settled");
  EXPECT_GT(reader.reads(), 0);
  EXPECT_LT(reader.longest(), kBudget + kSlack);
  EXPECT_EQ(value("SELECT count(*) = 12 FROM crossfade.switch_attempt WHERE outcome = 'older holder'"), "t");
  idle.run("COMMIT");
  succeed(next(Phase::switched));
  check_in_step();
}

// Young holders, one after the other: an attempt that stands in the queue stands there for the budget at
// most.
TEST_F(LockTest, ATableThatIsNeverFreeHoldsUpItsReadersForNoLongerThanTheBudget) {
  prepare(14);
  const std::string hold = "SELECT pg_sleep(0.12) FROM t WHERE id = 1";
  Reader first(dsn(), hold), second(dsn(), hold), third(dsn(), hold);
  Reader reader(dsn(), "SELECT b FROM t WHERE id = 1");
  const auto result = crossfade(next(Phase::switched));
  EXPECT_TRUE(result.exit_status == 0 || result.exit_status == 3) << result.err;
  EXPECT_EQ(phase(), result.exit_status == 0 ? Phase::switched : Phase::compare);
  EXPECT_LT(reader.longest(), kBudget + kSlack);
  EXPECT_EQ(value("SELECT count(*) >= 8 FROM crossfade.switch_attempt WHERE outcome = 'lock not available'"
                  " AND to_phase = 'switched'"),
            "t")
      << "the table was free";
}

TEST_F(LockTest, BlockersAreEndedOnlyWhenTheOperatorSaysSo) {
  prepare(50);
  ApplicationSession idle(dsn()), busy(dsn());
  idle.run("BEGIN; SELECT count(*) FROM t");
  const auto end = [&](const char* option, Phase to) {
    auto command = to == Phase::switched ? next(to) : back(to);
    command.push_back(option);
    succeed(command);
    EXPECT_EQ(phase(), to);
  };
  end("--terminate-blockers", Phase::switched);
  EXPECT_THROW(idle.run("SELECT 1"), ApplicationError);
  // A statement is cancelled, and its session lives.
  busy.send("SELECT pg_sleep(600) FROM t WHERE id = 1");
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%'"
      " AND wait_event = 'PgSleep'");
  end("--cancel-blockers", Phase::compare);
  try {
    busy.finish();
    ADD_FAILURE() << "the statement was not cancelled";
  } catch (const ApplicationError& error) {
    EXPECT_EQ(error.sqlstate(), "57014");
  }
  busy.run("SELECT 1");
  check_whole();
}

}  // namespace
}  // namespace crossfade::test

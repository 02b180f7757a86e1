// A client that is frozen at the worst moment: what it holds, and for how long the application waits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBudget{1500};
// For a machine that runs other tests at the same time.
constexpr milliseconds kSlack{2500};

// A change that locks the table, from the phase that the one before it leads to.
struct Change {
  Arguments command;
  std::string failpoint;
  Phase to;
};

class FrozenTest : public RecoveryTest {
 protected:
  void prepare() {
    make_table({.rows = 500,
                .tuning = {},
                .switching = fmt::format("attempts = 500\nlock_timeout = \"{}ms\"", kBudget.count())});
    advance_to(Phase::dry_run);
  }
  static std::vector<Change> changes() {
    return {{next(Phase::backfill), "dry_run_to_backfill", Phase::backfill},
            {back(Phase::dry_run), "backfill_to_dry_run", Phase::dry_run},
            {next(Phase::switched), "compare_to_switched", Phase::switched},
            {back(Phase::compare), "switched_to_compare", Phase::compare},
            {next(Phase::switched), "compare_to_switched", Phase::switched},
            {{"next", "m", "--until", "dropped", "--confirm", "m"}, "switched_to_dropped", Phase::dropped}};
  }
  // A read and a write, each of which would end with an error if it had to wait for longer.
  void application_goes_on() {
    ApplicationSession application(dsn(),
                                   fmt::format("SET statement_timeout = {}", (kBudget + kSlack).count()));
    EXPECT_NO_THROW(application.run("SELECT b FROM t WHERE id = 1"));
    EXPECT_NO_THROW(application.run("UPDATE t SET n = n + 1 WHERE id = 1"));
  }
  static std::string runner_locks(const char* more) {
    return fmt::format(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.application_name ="
        " 'crossfade/m/runner' AND l.relation = 't'::regclass {}",
        more);
  }
};

TEST_F(FrozenTest, RightBeforeItSendsItHoldsNothingOfTheTable) {
  prepare();
  int number = 0;
  for (const auto& change : changes()) {
    SCOPED_TRACE(fmt::format("{} {}", change.failpoint, ++number));
    const auto stop = gate(fmt::format("stop_{}", number));
    auto program = launch(change.command, fmt::format("{}.locked=wait:{}", change.failpoint, stop));
    wait_until_reached(stop, program);
    program.signal(SIGSTOP);
    EXPECT_EQ(super_value(runner_locks("")), "0");
    application_goes_on();
    // What it does hold, the row of the migration, the server takes back by itself.
    EXPECT_EQ(super_value("SELECT state FROM pg_stat_activity WHERE application_name = 'crossfade/m/runner'"),
              "idle in transaction");
    open(stop);
    program.signal(SIGCONT);
    const auto result = program.wait();
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(phase(), change.to);
  }
}

// Transactions that hold the table one after the other, none of them old: an attempt has to wait.
class Holders {
 public:
  explicit Holders(const std::string& dsn) {
    for (int i = 0; i < 3; ++i) {
      threads_.emplace_back([dsn](const std::stop_token& token) {
        ApplicationSession session(dsn);
        while (!token.stop_requested()) session.run("SELECT pg_sleep(0.4) FROM t WHERE id = 1");
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

TEST_F(FrozenTest, WhileItWaitsForTheLockItHoldsNobodyUpForLongerThanTheBudget) {
  prepare();
  for (const auto& change : changes()) {
    SCOPED_TRACE(change.failpoint);
    auto holders = std::make_unique<Holders>(dsn());
    // Only the attempts that wait for long are of interest: those that come late.
    auto program = launch(change.command);
    wait_until([&] { return super_value(runner_locks("AND NOT l.granted")) != "0"; }, "a waiting attempt");
    program.signal(SIGSTOP);
    // The server has the whole message: it gives up in time, or does all of it.
    application_goes_on();
    holders.reset();
    EXPECT_EQ(super_value(runner_locks("")), "0");
    program.signal(SIGCONT);
    const auto result = program.wait();
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(phase(), change.to);
  }
}

}  // namespace
}  // namespace crossfade::test

// The switch and the application's locks: who waits for whom, and for how long.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
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
  void prepare(int attempts, Phase phase = Phase::compare) {
    make_table({.rows = 2000, .tuning = {}, .switching = fmt::format("attempts = {}", attempts)});
    advance_to(phase);
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

TEST_F(LockTest, APreparedTransactionIsNamedByItsGid) {
  prepare(2);
  ApplicationSession session(dsn());
  session.run("BEGIN; UPDATE t SET n = n + 1 WHERE id = 1; PREPARE TRANSACTION 'it''s prepared'");
  const auto refused = crossfade({"next", "m", "--until", "switched", "--json"});
  EXPECT_EQ(refused.exit_status, 3);
  const auto error = nlohmann::json::parse(refused.out.substr(refused.out.find("{\"error\"")))["error"];
  EXPECT_NE(error["message"].get<std::string>().find("a prepared transaction 'it''s prepared' (app_owner, "),
            std::string::npos)
      << refused.out;
  EXPECT_NE(error["hint"].get<std::string>().find("ROLLBACK PREPARED"), std::string::npos) << refused.out;
  ASSERT_EQ(error["blockers"].size(), 1u) << refused.out;
  EXPECT_EQ(error["blockers"][0]["gid"], "it's prepared");
  EXPECT_EQ(error["blockers"][0]["kind"], "prepared transaction");
  EXPECT_TRUE(error["blockers"][0]["pid"].is_null());
  EXPECT_EQ(phase(), Phase::compare);
  session.run("COMMIT PREPARED 'it''s prepared'");
  sql("UPDATE t_twin SET n = n + 1 WHERE id = 1");
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
  // Whoever stood behind a waiting attempt was seen by the second connection, and for how long.
  EXPECT_EQ(value(fmt::format("SELECT max(waiting_sessions) > 0 AND max(longest_wait_ms) > 0"
                              " AND max(longest_wait_ms) < {0} AND bool_and(total_wait_ms >= longest_wait_ms)"
                              " AND max(lock_wait_ms) < {0} FROM crossfade.switch_attempt"
                              " WHERE to_phase = 'switched' AND outcome <> 'older holder'",
                              (kBudget + kSlack).count())),
            "t");
  const auto history = nlohmann::json::parse(crossfade({"history", "m", "--json"}).out);
  const auto& attempts = history["lock_attempts"];
  EXPECT_TRUE(std::ranges::any_of(attempts, [](const auto& a) { return a["sessions_waited"] > 0; }))
      << attempts;
  const auto installed = std::ranges::find_if(
      attempts, [](const auto& a) { return a["to"] == "backfill" && a["outcome"] == "done"; });
  ASSERT_NE(installed, attempts.end());
  EXPECT_EQ((*installed)["transition"], 2);
  EXPECT_GE((*installed)["lock_held_ms"], 0.0);
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

// Each place that locks the table: installing and removing the capture, the checks of the twins and their
// removal, the drop.
TEST_F(LockTest, EveryPlaceThatLocksTheTableEndsBlockersWhenTheOperatorSaysSo) {
  prepare(50, Phase::dry_run);
  const auto past = [&](Arguments command, Phase to) {
    SCOPED_TRACE(to_text(to));
    ApplicationSession idle(dsn());
    idle.run("BEGIN; SELECT count(*) FROM t");
    command.emplace_back("--terminate-blockers");
    succeed(command);
    EXPECT_EQ(phase(), to);
    EXPECT_THROW(idle.run("SELECT 1"), ApplicationError);
  };
  past(next(Phase::backfill), Phase::backfill);
  past(back(Phase::dry_run), Phase::dry_run);
  succeed(next(Phase::backfill));
  past(next(Phase::dual_write), Phase::dual_write);
  past(back(Phase::backfill), Phase::backfill);
  succeed(next(Phase::switched));
  past({"next", "m", "--until", "dropped", "--confirm", "m"}, Phase::dropped);
}

// A plain owner sees neither age nor state nor query of another role's session; that it holds the table it
// sees.
class StrangerTest : public LockTest {
 protected:
  StrangerTest() {
    super_sql("DO 'BEGIN CREATE ROLE stranger LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END'");
  }
  ~StrangerTest() override { super_sql("REVOKE pg_signal_backend FROM app_owner"); }
  std::string stranger_dsn() const {
    auto dsn = this->dsn();
    return dsn.replace(dsn.find("app_owner"), std::string_view("app_owner").size(), "stranger");
  }
};

TEST_F(StrangerTest, AnotherRolesHolderIsNamedWaitedForAndEndedOnlyWithTheRight) {
  prepare(25);
  sql("GRANT SELECT ON t TO stranger");
  ApplicationSession stranger(stranger_dsn());
  stranger.run("BEGIN; SELECT count(*) FROM t");
  ASSERT_EQ(
      value(fmt::format("SELECT xact_start FROM pg_stat_activity WHERE pid = {}", stranger.backend_pid())),
      "NULL")
      << "the owner sees everything";
  Reader reader(dsn(), "SELECT b FROM t WHERE id = 1");
  auto command = next(Phase::switched);
  command.insert(command.end(), {"--terminate-blockers", "--json"});
  const auto refused = crossfade(command);
  EXPECT_EQ(refused.exit_status, 3) << refused.out;
  const auto lines = refused.out.substr(refused.out.find("{\"error\""));
  const auto error = nlohmann::json::parse(lines)["error"];
  EXPECT_EQ(error["name"], "lock_attempts_exhausted");
  ASSERT_GE(error["blockers"].size(), 1) << error;
  EXPECT_EQ(error["blockers"][0]["pid"], stranger.backend_pid());
  EXPECT_EQ(error["blockers"][0]["user"], "stranger");
  EXPECT_GE(error["blockers"][0]["age_seconds"], 1.0);
  EXPECT_EQ(error["blockers"][0]["query"], nullptr);
  EXPECT_NE(error["hint"].get<std::string>().find("GRANT pg_signal_backend TO app_owner"), std::string::npos)
      << error;
  EXPECT_LT(reader.longest(), kBudget + kSlack);
  // Once it is known to be old no attempt is made any more.
  EXPECT_EQ(value(fmt::format("SELECT bool_and(outcome = 'older holder') FROM crossfade.switch_attempt"
                              " WHERE to_phase = 'switched' AND id >= (SELECT min(id) FROM"
                              " crossfade.switch_attempt WHERE blockers @> '[{{\"pid\": {}}}]')",
                              stranger.backend_pid())),
            "t");
  EXPECT_EQ(phase(), Phase::compare);
  stranger.run("SELECT 1");
  super_sql("GRANT pg_signal_backend TO app_owner");
  succeed(command);
  EXPECT_EQ(phase(), Phase::switched);
  EXPECT_THROW(stranger.run("SELECT 1"), ApplicationError);
}

// It must not be ended, whatever the operator says; and a plain owner has to recognise it by the table's age.
TEST_F(LockTest, AnAutovacuumToPreventWraparoundIsNamedAndLeftAlone) {
  make_table({.rows = 60000, .tuning = {}, .switching = "attempts = 12"});
  sql("ALTER TABLE t SET (autovacuum_freeze_max_age = 100000, autovacuum_vacuum_cost_delay = 100,"
      " autovacuum_vacuum_cost_limit = 1, autovacuum_enabled = false)");
  advance_to(Phase::dry_run);
  super_sql("ALTER SYSTEM SET autovacuum_naptime = '1s'");
  super_sql("SELECT pg_reload_conf()");
  ApplicationSession(dsn(), "SET synchronous_commit = off")
      .run("DO 'BEGIN FOR i IN 1..101000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END'");
  const std::string worker =
      "pg_stat_activity WHERE query LIKE 'autovacuum: VACUUM%public.t (to prevent wraparound)%'";
  wait_until([&] { return super_value("SELECT count(*) = 1 FROM " + worker) == "t"; }, "the autovacuum",
             std::chrono::seconds(60));
  wait_until_true("SELECT clock_timestamp() - xact_start > '1 s' FROM " + worker);
  const auto pid = super_value("SELECT pid FROM " + worker);
  auto command = next(Phase::backfill);
  command.insert(command.end(), {"--terminate-blockers", "--cancel-blockers"});
  const auto result = crossfade(command);
  EXPECT_EQ(result.exit_status, 3) << result.err;
  EXPECT_NE(result.err.find("pid " + pid + " (autovacuum to prevent wraparound"), std::string::npos)
      << result.err;
  EXPECT_EQ(super_value("SELECT pid FROM " + worker), pid);
  super_sql("ALTER SYSTEM RESET autovacuum_naptime");
  super_sql("SELECT pg_reload_conf()");
  super_sql("SELECT pg_terminate_backend(" + pid + ")");
}

}  // namespace
}  // namespace crossfade::test

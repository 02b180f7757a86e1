// A phase change that waits: seen and cancelled from another terminal, with real processes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using nlohmann::json;

constexpr int kRefused = 3;

class RequestTest : public RecoveryTest {
 protected:
  // In compare, with a snapshot open that is too old for a switch.
  void prepare(int attempts = 50) {
    make_table({.rows = 300, .tuning = {}, .switching = fmt::format("attempts = {}", attempts)});
    advance_to(Phase::dual_write);
    old_.emplace(dsn());
    old_->run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    succeed(next(Phase::compare));
  }
  static Arguments patient(std::string_view wait = "--wait") {
    auto command = next(Phase::switched);
    command.emplace_back(wait);
    return command;
  }
  json request() { return json::parse(crossfade({"status", "m", "--json"}).out)["request"]; }
  void wait_for_request(const std::string& text) {
    wait_until(
        [&] {
          const auto now = request();
          return now.is_object() && now["waiting_for"].is_string() &&
                 now["waiting_for"].get<std::string>().find(text) != std::string::npos;
        },
        "a request that waits for " + text, std::chrono::seconds(60));
  }
  std::string old_pid() const { return fmt::format("pid {} ", old_->backend_pid()); }

  std::optional<ApplicationSession> old_;
};

TEST_F(RequestTest, IsShownWhileItWaitsAndGoesThroughWhenTimeHasBroughtIt) {
  prepare();
  EXPECT_EQ(request(), nullptr);
  auto waiting = launch(patient());
  wait_for_request(old_pid());
  const auto shown = request();
  EXPECT_EQ(shown["to"], "switched");
  EXPECT_EQ(shown["event"], "advance");
  EXPECT_EQ(shown["alive"], true);
  EXPECT_EQ(shown["until"], nullptr);
  EXPECT_NE(crossfade({"status", "m"}).out.find("waiting for"), std::string::npos);
  EXPECT_EQ(phase(), Phase::compare);
  old_->run("COMMIT");
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(phase(), Phase::switched);
  EXPECT_EQ(request(), nullptr);
}

TEST_F(RequestTest, IsCancelledFromAnotherTerminalWhichIsNamed) {
  prepare();
  auto waiting = launch(patient());
  wait_for_request(old_pid());
  const auto paused = crossfade({"pause", "m", "--operator", "bob", "--json"});
  EXPECT_EQ(paused.exit_status, 0) << paused.out;
  EXPECT_EQ(json::parse(paused.out)["request_cancelled"], true);
  EXPECT_EQ(json::parse(paused.out)["status"], "paused");
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_status, kRefused);
  EXPECT_NE(result.err.find("cancelled by bob on "), std::string::npos) << result.err;
  EXPECT_EQ(request(), nullptr);
  EXPECT_EQ(phase(), Phase::compare);
  EXPECT_EQ(status(), "paused") << "and nobody enters the phase until resume";
}

TEST_F(RequestTest, WaitsNoLongerThanItWasTold) {
  prepare();
  const auto impatient = crossfade(next(Phase::switched));
  EXPECT_EQ(impatient.exit_status, kRefused);
  const auto result = crossfade(patient("--wait=300ms"));
  EXPECT_EQ(result.exit_status, kRefused);
  EXPECT_NE(result.err.find(old_pid()), std::string::npos) << result.err;
  EXPECT_EQ(request(), nullptr);
  EXPECT_EQ(crossfade(patient("--wait=soon")).exit_status, 2);
}

TEST_F(RequestTest, OfACommandThatDiedIsNotTakenForAlive) {
  prepare();
  auto waiting = launch(patient());
  wait_for_request(old_pid());
  waiting.signal(SIGKILL);
  waiting.wait();
  wait_until([&] { return request()["alive"] == false; }, "its end to be noticed");
  EXPECT_NE(crossfade({"status", "m"}).out.find("has ended without an answer"), std::string::npos);
  EXPECT_EQ(json::parse(crossfade({"pause", "m", "--json"}).out)["request_cancelled"], false)
      << "the dead cannot be cancelled";
  succeed({"resume", "m"});
  old_->run("COMMIT");
  succeed(patient());
  EXPECT_EQ(phase(), Phase::switched);
  EXPECT_EQ(request(), nullptr);
}

TEST_F(RequestTest, ForALockShowsAttemptAndBlockersAndCanBeCancelled) {
  prepare(10000);
  old_->run("COMMIT; BEGIN; SELECT count(*) FROM t");
  auto waiting = launch(next(Phase::switched));
  wait_for_request(old_pid());
  const auto shown = request();
  EXPECT_GE(shown["attempt"], 1);
  EXPECT_EQ(shown["attempts"], 10000);
  ASSERT_EQ(shown["blockers"].size(), 1) << shown;
  EXPECT_EQ(shown["blockers"][0]["pid"], old_->backend_pid());
  EXPECT_EQ(shown["blockers"][0]["state"], "idle in transaction");
  EXPECT_EQ(shown["blockers"][0]["query"], "COMMIT; BEGIN; SELECT count(*) FROM t");
  succeed({"pause", "m", "--operator", "bob"});
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_status, kRefused);
  EXPECT_NE(result.err.find("cancelled by bob"), std::string::npos) << result.err;
  EXPECT_EQ(phase(), Phase::compare);
}

// The worst moment: nothing asks any more, and the message is not sent yet. Cancelled is cancelled.
TEST_F(RequestTest, ThatIsCancelledRightBeforeTheMessageIsNotFulfilled) {
  prepare();
  old_->run("COMMIT");
  const auto stop = gate("locked");
  auto program = launch(next(Phase::switched), "compare_to_switched.locked=wait:" + stop);
  wait_until_reached(stop, program);
  // It marks the request, and waits for the row of the migration, which the change has locked.
  auto pause = launch({"pause", "m", "--operator", "bob"});
  wait_until_true("SELECT cancelled_by LIKE 'bob on %' FROM crossfade.request");
  open(stop);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_status, kRefused) << result.err;
  EXPECT_NE(result.err.find("cancelled by bob"), std::string::npos) << result.err;
  EXPECT_EQ(pause.wait().exit_status, 0);
  EXPECT_EQ(phase(), Phase::compare);
  succeed({"resume", "m"});
  succeed(next(Phase::switched));
}

TEST_F(RequestTest, DoesNotWaitForWhatNoTimeBrings) {
  prepare();
  old_->run("COMMIT");
  succeed(next(Phase::switched));
  const auto result = crossfade({"next", "m", "--until", "dropped", "--wait"});
  EXPECT_EQ(result.exit_status, kRefused);
  EXPECT_NE(result.err.find("--confirm m"), std::string::npos) << result.err;
}

TEST_F(RequestTest, GivesWayToARollback) {
  prepare();
  auto waiting = launch(patient());
  wait_for_request(old_pid());
  succeed(back(Phase::dual_write));
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_status, 6) << result.err;
  EXPECT_EQ(phase(), Phase::dual_write);
  EXPECT_EQ(request(), nullptr);
}

TEST_F(RequestTest, WaitsOutTheSoak) {
  make_table();
  auto spec = read_text(spec_path());
  spec.replace(spec.find("soak = \"0s\""), 11, "soak = \"4s\"");
  write_text(spec_path(), spec);
  advance_to(Phase::switched);
  const Arguments drop{"next", "m", "--confirm", "m"};
  EXPECT_EQ(crossfade(drop).exit_status, kRefused);
  auto command = drop;
  command.emplace_back("--wait");
  auto waiting = launch(command);
  wait_for_request("soak");
  EXPECT_EQ(phase(), Phase::switched);
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(phase(), Phase::dropped);
}

// The checks of the twins are short locks of the phase's own work.
TEST_F(RequestTest, WaitsForTheShortLocksOfAPhaseToo) {
  make_table({.rows = 300, .tuning = {}, .switching = "attempts = 2"});
  advance_to(Phase::backfill);
  ApplicationSession holder(dsn());
  holder.run("BEGIN; SELECT count(*) FROM t");
  wait_until_true(
      fmt::format("SELECT clock_timestamp() - xact_start > '1 s' FROM pg_stat_activity WHERE pid = {}",
                  holder.backend_pid()));
  const auto refused = crossfade(next(Phase::dual_write));
  EXPECT_EQ(refused.exit_status, kRefused);
  EXPECT_NE(refused.err.find(fmt::format("pid {} ", holder.backend_pid())), std::string::npos) << refused.err;
  EXPECT_EQ(phase(), Phase::dual_write);
  auto command = next(Phase::dual_write);
  command.emplace_back("--wait");
  auto waiting = launch(command);
  wait_until([&] { return waiting.err().find("waiting: table public.t") != std::string::npos; }, "the notice",
             std::chrono::seconds(60));
  holder.run("COMMIT");
  const auto result = waiting.wait();
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(status(), "settled");
}

}  // namespace
}  // namespace crossfade::test

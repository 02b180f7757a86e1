// The answer to a COMMIT is lost, or the COMMIT itself: what was asked for is done once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kill_points.hpp"
#include "recovery_test.hpp"
#include "support/lossy_proxy.hpp"

namespace crossfade::test {
namespace {

using namespace std::string_view_literals;

// The end of a message; ON COMMIT DROP is none.
constexpr auto kCommit = "COMMIT\0"sv;

class LostAnswerTest : public RecoveryTest {
 protected:
  void connect_through_proxy() { binary_dsn_ = proxy_.dsn(database().name(), "app_owner"); }
  // The text that only the message of this phase change has.
  static std::string change_to(Phase phase) {
    return fmt::format("UPDATE crossfade.migration SET phase = '{}'", to_text(phase));
  }
  int losses() const { return proxy_.losses(); }

  // First the message, then the answer to it.
  void lose_on_the_way(Phase from, Phase to, const Arguments& command) {
    SCOPED_TRACE(fmt::format("{} to {}", to_text(from), to_text(to)));
    const auto before = transitions();
    const auto lost = losses();
    proxy_.lose_message(change_to(to));
    const auto undone = crossfade(command);
    EXPECT_EQ(losses(), lost + 1);
    EXPECT_EQ(undone.exit_status, 5) << undone.err;
    EXPECT_EQ(phase(), from);
    EXPECT_EQ(transitions(), before);
    check_whole();

    // An attempt that did not get the lock was not committed, and says so; the next one is asked to lose its
    // answer.
    for (int tries = 0; tries < 50 && phase() == from; ++tries) {
      proxy_.lose_answer_to(change_to(to));
      const auto answered = crossfade(command);
      EXPECT_TRUE(answered.exit_status == 0 || phase() == from) << answered.err;
      EXPECT_TRUE(answered.exit_status == 0 || answered.exit_status == 5) << answered.err;
    }
    EXPECT_GE(losses(), lost + 2);
    EXPECT_EQ(phase(), to);
    EXPECT_EQ(transitions(), before + 1);
    check_whole();
    succeed(command);
    EXPECT_EQ(transitions(), before + 1) << "a rerun finds it done";
  }

  LossyProxy proxy_{server()};
};

TEST_F(LostAnswerTest, OfEveryStepForwardActsOnce) {
  make_table();
  connect_through_proxy();
  start_writers();
  advance_to(Phase::planned);
  for (std::size_t i = 1; i < kThere.size(); ++i) {
    lose_on_the_way(kThere[i - 1], kThere[i], next(kThere[i]));
    check_in_step();
  }
}

TEST_F(LostAnswerTest, OfEveryStepBackActsOnce) {
  make_table();
  connect_through_proxy();
  start_writers();
  advance_to(Phase::switched);
  for (std::size_t i = 1; i < kBack.size(); ++i) {
    lose_on_the_way(kBack[i - 1], kBack[i], back(kBack[i]));
  }
  check_restored();
}

TEST_F(LostAnswerTest, OfTheStartRegistersOnce) {
  make_table();
  connect_through_proxy();
  proxy_.lose_message(kCommit);
  EXPECT_EQ(crossfade({"start", spec_path()}).exit_status, 5);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "0");
  proxy_.lose_answer_to(kCommit);
  EXPECT_EQ(crossfade({"start", spec_path()}).exit_status, 5);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "1");
  succeed({"start", spec_path()});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "1");
  EXPECT_EQ(losses(), 2);
}

TEST_F(LostAnswerTest, OfASettlingIsFoundByTheNextRun) {
  make_table();
  connect_through_proxy();
  advance_to(Phase::planned);
  const auto lose = [&](bool message) {
    const auto stop = gate(message ? "message" : "answer");
    auto program = launch(next(Phase::dry_run), "settle.before=wait:" + stop);
    wait_until_reached(stop, program);
    message ? proxy_.lose_message(kCommit) : proxy_.lose_answer_to(kCommit);
    open(stop);
    EXPECT_EQ(program.wait().exit_status, 5);
    EXPECT_EQ(status(), message ? "running" : "settled");
    EXPECT_EQ(phase(), Phase::dry_run);
  };
  lose(true);
  lose(false);
  succeed(next(Phase::dry_run));
  EXPECT_EQ(transitions(), 1);
}

// Without an application, what was written can be counted: each row once.
TEST_F(LostAnswerTest, OfAChunkWritesNoRowTwice) {
  make_table({.rows = 6000, .tuning = "rows_per_second = 20000", .switching = {}});
  connect_through_proxy();
  advance_to(Phase::planned);
  const auto mark = value("SELECT mark FROM crossfade.migration");
  for (const bool message : {true, false}) {
    SCOPED_TRACE(message ? "message" : "answer");
    succeed(next(Phase::dry_run));
    // The capture's own text holds the mark, too.
    killed(next(Phase::backfill), "units.planned=abort");
    const auto lost = losses();
    message ? proxy_.lose_message(mark) : proxy_.lose_answer_to(mark);
    succeed(next(Phase::backfill));
    EXPECT_EQ(losses(), lost + 1);
    EXPECT_EQ(
        value("SELECT sum(u.rows_written) FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id"
              " WHERE p.kind = 'backfill' AND p.state = 'ended'"),
        "6000");
    check_in_step();
    succeed(back(Phase::dry_run));
  }
}

}  // namespace
}  // namespace crossfade::test

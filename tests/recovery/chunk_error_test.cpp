// Errors inside a chunk: undone, smaller, careful, again; never taken for the end of the rows, and never a
// reject.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "recovery_test.hpp"

namespace crossfade::test {
namespace {

class ChunkErrorTest : public RecoveryTest {
 protected:
  // At every `every`-th arrival at `point`, up to the twentieth.
  static std::string error_at(const std::string& point, const std::string& sqlstate, int every) {
    std::string text;
    for (int hit = every; hit <= 20; hit += every)
      text += fmt::format("{}=error:{}@{};", point, sqlstate, hit);
    return text;
  }
  void expect_all_migrated(const std::string& failpoints, const std::string& event) {
    SCOPED_TRACE(failpoints);
    auto command = next(Phase::backfill);
    command.push_back("-v");
    const auto result = crossfade(command, failpoints);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.err.find(event), std::string::npos) << "nothing was undone\n" << result.err;
    EXPECT_EQ(status(), "settled");
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id"
                    " WHERE p.kind = 'backfill' AND p.state <> 'void' AND NOT u.done"),
              "0");
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.reject"), "0");
    check_in_step();
  }
};

TEST_F(ChunkErrorTest, ATransientOneAtEveryNthChunkLeavesNoRowBehind) {
  make_table({.rows = 6000, .tuning = "chunk_target = \"10ms\"", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  for (const auto* sqlstate : {"40P01", "55P03", "57014", "40001"}) {
    for (const int every : {2, 3}) {
      expect_all_migrated(error_at("chunk.bounded", sqlstate, every), "event=chunk_undone");
      succeed(back(Phase::dry_run));
    }
  }
}

TEST_F(ChunkErrorTest, ABrokenConnectionAtEveryNthChunkIsReplaced) {
  make_table({.rows = 6000, .tuning = "chunk_target = \"10ms\"", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  for (const auto* point : {"chunk.before", "chunk.bounded", "chunk.after"}) {
    expect_all_migrated(error_at(point, "08006", 3), "event=worker_reconnects");
    succeed(back(Phase::dry_run));
  }
}

TEST_F(ChunkErrorTest, AnErrorThatNobodyExpectsFailsThePhaseAndNothingElse) {
  make_table();
  start_writers();
  advance_to(Phase::dry_run);
  const auto result = crossfade(next(Phase::backfill), "chunk.bounded=error:42883@2");
  EXPECT_EQ(result.exit_status, 4) << result.err;
  EXPECT_EQ(status(), "failed");
  check_whole();
  succeed(next(Phase::backfill));
  check_in_step();
}

}  // namespace
}  // namespace crossfade::test

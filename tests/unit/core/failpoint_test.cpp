#include "crossfade/core/failpoint.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossfade/core/error.hpp"

namespace crossfade::failpoint {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void TearDown() override {
    configure("");
    unsetenv("CROSSFADE_FAILPOINTS");
  }
};
using FailpointDeathTest = FailpointTest;

Error refused(std::string_view text) {
  try {
    configure(text);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << text << " was accepted";
  return {ErrorCode::internal_error, ""};
}

TEST_F(FailpointTest, NamesAreSortedAndUnique) {
  EXPECT_TRUE(std::ranges::is_sorted(all()));
  EXPECT_EQ(std::ranges::adjacent_find(all()), all().end());
}

TEST_F(FailpointTest, EveryTransitionHasThreeMomentsBothWays) {
  for (const std::string transition :
       {"planned_to_dry_run", "dry_run_to_backfill", "backfill_to_dual_write", "dual_write_to_compare",
        "compare_to_switched", "switched_to_dropped", "switched_to_compare", "compare_to_dual_write",
        "dual_write_to_backfill", "backfill_to_dry_run", "dry_run_to_planned", "planned_to_rolled_back"}) {
    for (const std::string moment : {".before", ".locked", ".sent"}) {
      EXPECT_TRUE(std::ranges::binary_search(all(), transition + moment)) << transition << moment;
    }
  }
  EXPECT_TRUE(std::ranges::binary_search(all(), "chunk.before"));
  EXPECT_TRUE(std::ranges::binary_search(all(), "lease.acquired"));
}

TEST_F(FailpointTest, AnUnconfiguredPointIsPassed) {
  for (const std::string& name : all()) hit(name);
}

TEST_F(FailpointTest, OnlyTheNamedPointFires) {
  configure("chunk.after=error:40001");
  hit("chunk.before");
  EXPECT_THROW(hit("chunk.after"), Error);
  EXPECT_THROW(hit("chunk.after"), Error);
}

TEST_F(FailpointTest, ErrorThrowsWhatTheDoorWouldMakeOfTheSqlstate) {
  configure("chunk.after=error:40P01");
  try {
    hit("chunk.after");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.sqlstate(), "40P01");
    EXPECT_TRUE(error.is_transient());
  }
}

TEST_F(FailpointTest, AnActionWithACountFiresAtThatHitAlone) {
  configure("chunk.after=error:40001@2;chunk.after=error:57014@3");
  hit("chunk.after");
  EXPECT_THROW(hit("chunk.after"), Error);
  EXPECT_THROW(hit("chunk.after"), Error);
  hit("chunk.after");
}

TEST_F(FailpointTest, ConfiguringAgainForgetsWhatWas) {
  configure("chunk.after=error:40001");
  configure(";units.planned=sleep:0;");
  hit("chunk.after");
}

TEST_F(FailpointTest, SleepPausesAndGoesOn) {
  configure("chunk.after=sleep:30");
  const auto start = std::chrono::steady_clock::now();
  hit("chunk.after");
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
}

TEST_F(FailpointTest, WaitSaysThatItArrivedAndGoesOnOnceTheFileExists) {
  const std::string file = testing::TempDir() + "crossfade_failpoint_" + std::to_string(getpid()) + "@1";
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".reached");
  configure("chunk.after=wait:" + file);
  std::atomic<bool> passed{false};
  std::jthread waiter([&] {
    hit("chunk.after");
    passed = true;
  });
  while (!std::filesystem::exists(file + ".reached")) std::this_thread::yield();
  EXPECT_FALSE(passed);
  std::ofstream(file).flush();
  waiter.join();
  EXPECT_TRUE(passed);
  std::filesystem::remove(file);
  std::filesystem::remove(file + ".reached");
}

TEST_F(FailpointTest, TheEnvironmentConfigures) {
  setenv("CROSSFADE_FAILPOINTS", "chunk.after=error:22003", 1);
  configure_from_environment();
  EXPECT_THROW(hit("chunk.after"), Error);
  unsetenv("CROSSFADE_FAILPOINTS");
  configure_from_environment();
  hit("chunk.after");
}

TEST_F(FailpointTest, AnUnknownNameIsRefusedWithTheListAndTheNearest) {
  const Error error = refused("chunk.befor=abort");
  EXPECT_EQ(error.code(), ErrorCode::failpoint_syntax);
  EXPECT_EQ(error.exit_status(), 2);
  EXPECT_NE(error.message().find("units.planned"), std::string::npos);
  EXPECT_EQ(error.hint(), "Did you mean \"chunk.before\"?");
}

TEST_F(FailpointTest, MalformedTextIsRefusedAndChangesNothing) {
  configure("chunk.after=error:40001");
  for (const char* text :
       {"chunk.after", "chunk.after=", "=abort", "chunk.after=abort@", "chunk.after=abort@0",
        "chunk.after=abort@x", "chunk.after=abort@-1", "chunk.after=explode",
        "chunk.after=error:", "chunk.after=error:4000", "chunk.after=error:4000a",
        "chunk.after=sleep:", "chunk.after=sleep:-1", "chunk.after=sleep:1s",
        "chunk.after=wait:", "units.planned=sleep:0;nonsense", "chunk.after=abort@1@2"}) {
    EXPECT_EQ(refused(text).code(), ErrorCode::failpoint_syntax) << text;
  }
  EXPECT_THROW(hit("chunk.after"), Error);
}

TEST_F(FailpointDeathTest, AbortKillsTheProcessAsKillNineWould) {
  EXPECT_EXIT(
      {
        configure("chunk.after=abort@2");
        hit("chunk.after");
        hit("chunk.after");
      },
      testing::KilledBySignal(SIGKILL), "");
}

TEST_F(FailpointDeathTest, AnUnregisteredNameAborts) {
  EXPECT_EXIT(
      {
        configure("chunk.after=sleep:0");
        hit("no.such.point");
      },
      testing::KilledBySignal(SIGABRT), "no.such.point is not registered");
}

}  // namespace
}  // namespace crossfade::failpoint

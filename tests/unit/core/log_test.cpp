#include "crossfade/core/log.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossfade/core/error.hpp"

namespace crossfade::log {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = testing::TempDir() + "crossfade_log_" + std::to_string(getpid()) + ".log";
    std::filesystem::remove(file_);
    configure({Level::debug, file_});
  }
  void TearDown() override {
    set_before_write_hook(nullptr);
    configure({});
    std::filesystem::remove(file_);
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> read;
    std::ifstream stream(file_);
    for (std::string line; std::getline(stream, line);) read.push_back(line);
    return read;
  }
  // The only line, without its timestamp.
  std::string only_line() const {
    const auto all = lines();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? std::string() : all.front().substr(25);
  }

  std::string file_;
};

TEST_F(LogTest, ALineIsTimeLevelEventAndFields) {
  write(Level::info, "chunk_done", {{"unit", "3"}, {"rows", "1000"}});
  ASSERT_EQ(lines().size(), 1U);
  std::string line = lines().front();
  for (char& c : line) {
    if (c >= '0' && c <= '9') c = '9';
  }
  EXPECT_EQ(line, "9999-99-99T99:99:99.999Z info event=chunk_done unit=9 rows=9999");
}

TEST_F(LogTest, EveryLevelHasItsWord) {
  for (const Level level : {Level::error, Level::warn, Level::info, Level::debug}) write(level, "x");
  const auto all = lines();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].substr(25), "error event=x");
  EXPECT_EQ(all[1].substr(25), "warn event=x");
  EXPECT_EQ(all[2].substr(25), "info event=x");
  EXPECT_EQ(all[3].substr(25), "debug event=x");
}

TEST_F(LogTest, OddValuesAreQuotedAndEscaped) {
  write(Level::warn, "odd",
        {{"a", "two words"},
         {"b", R"(say "hi" \)"},
         {"c", "l1\nl2\t\r\x1b[2J\x7f"},
         {"d", ""},
         {"e", "größe"}});
  EXPECT_EQ(only_line(),
            R"(warn event=odd a="two words" b="say \"hi\" \\" c="l1\nl2\t\r\u001b[2J\u007f" d="" e=größe)");
}

TEST_F(LogTest, ATerminalControlCharacterInUtf8IsEscaped) {
  write(Level::warn, "odd",
        {{"a",
          "\xC2\x9B"
          "2J"}});
  EXPECT_EQ(only_line(), R"(warn event=odd a="\u009b2J")");
}

TEST_F(LogTest, BracesInValuesAreNoFormat) {
  write(Level::warn, "odd", {{"a", "{}{0}%v"}});
  EXPECT_EQ(only_line(), "warn event=odd a={}{0}%v");
}

TEST_F(LogTest, LinesBelowTheLevelAreNotWritten) {
  configure({Level::warn, file_});
  write(Level::info, "quiet");
  write(Level::debug, "quiet");
  write(Level::warn, "loud");
  EXPECT_EQ(only_line(), "warn event=loud");
}

TEST_F(LogTest, AFileIsAppendedTo) {
  write(Level::warn, "first");
  configure({Level::warn, file_});
  write(Level::warn, "second");
  EXPECT_EQ(lines().size(), 2U);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAUsageErrorAndTheLogGoesOn) {
  try {
    configure({Level::debug, "/proc/nowhere/x.log"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage_error);
  }
  write(Level::warn, "still_here");
  EXPECT_EQ(only_line(), "warn event=still_here");
}

std::atomic<int> hook_calls{0};

TEST_F(LogTest, TheHookIsCalledOncePerWrittenLine) {
  hook_calls = 0;
  set_before_write_hook([] { ++hook_calls; });
  configure({Level::warn, file_});
  write(Level::warn, "a");
  write(Level::debug, "b");
  write(Level::error, "c");
  EXPECT_EQ(hook_calls, 2);
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) write(Level::info, "tick", {{"text", std::string(200, 'x')}});
    });
  }
  threads.clear();
  const auto all = lines();
  EXPECT_EQ(all.size(), 400U);
  for (const std::string& line : all) EXPECT_EQ(line.size(), all.front().size());
}

TEST(LogToStderrTest, WithoutAFileLinesGoToStderr) {
  configure({});
  testing::internal::CaptureStderr();
  write(Level::warn, "shown");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("Z warn event=shown\n"), std::string::npos);
}

}  // namespace
}  // namespace crossfade::log

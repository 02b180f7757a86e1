// The supports themselves: everything else rests on them.
#include <gtest/gtest.h>
#include <signal.h>

#include "support/database_test.hpp"
#include "support/program.hpp"
#include "support/redis_server.hpp"

namespace crossfade::test {
namespace {

using SupportTest = DatabaseTest;

TEST_F(SupportTest, OwnerIsNoSuperuserAndMayCreateSchemas) {
  EXPECT_EQ(value("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"), "f");
  sql("CREATE SCHEMA crossfade");
  sql("CREATE TABLE t(a int)");
  EXPECT_EQ(super_value("SELECT tableowner FROM pg_tables WHERE tablename = 't'"), "app_owner");
}

TEST_F(SupportTest, ACrashKeepsWhatWasCommitted) {
  sql("CREATE TABLE t(a int); INSERT INTO t VALUES (7)");
  server().stop_immediate();
  EXPECT_FALSE(server().is_running());
  server().restart();
  EXPECT_EQ(value("SELECT a FROM t"), "7");
}

TEST(WaitUntilTest, NamesWhatDidNotHappen) {
  try {
    wait_until([] { return false; }, "the sun to set twice", std::chrono::milliseconds(10));
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("the sun to set twice"), std::string::npos);
  }
}

TEST(ProgramTest, ReportsOutputStatusAndSignal) {
  const ProgramResult exited =
      Program::run("/bin/sh", {"-c", "echo out; echo $A >&2; exit 3"}, {{"A", "err"}});
  EXPECT_EQ(exited.exit_status, 3);
  EXPECT_EQ(exited.signal, 0);
  EXPECT_EQ(exited.out, "out\n");
  EXPECT_EQ(exited.err, "err\n");

  Program killed("/bin/sh", {"-c", "echo begun; exec sleep 100"});
  wait_until([&] { return killed.out() == "begun\n"; }, "the program to begin");
  killed.signal(SIGTERM);
  EXPECT_EQ(killed.wait().signal, SIGTERM);
}

TEST(ProgramTest, StandardInputIsAtItsEnd) {
  EXPECT_EQ(Program::run("/bin/sh", {"-c", "cat; echo done"}).out, "done\n");
}

TEST(RedisServerTest, ForgetsEverythingWhenRestarted) {
  RedisServer redis;
  redis.command({"SET", "a", "1"});
  EXPECT_EQ(redis.command({"GET", "a"}), "1");
  redis.restart();
  EXPECT_EQ(redis.command({"EXISTS", "a"}), "0");
}

}  // namespace
}  // namespace crossfade::test

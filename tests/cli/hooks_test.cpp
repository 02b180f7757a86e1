// [hooks] with real scripts: vetoes, facts, debts, signals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/database_test.hpp"
#include "support/files.hpp"
#include "support/program.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class HooksTest : public DatabaseTest {
 protected:
  void SetUp() override {
    sql("CREATE TABLE t (id int PRIMARY KEY, b int);"
        "INSERT INTO t SELECT g, g FROM generate_series(1, 100) g");
  }
  Program::Environment environment() const { return {{"CROSSFADE_DSN", dsn()}, {"PGPASSWORD", "a secret"}}; }
  ProgramResult crossfade(const Words& words) const {
    return Program::run(crossfade_binary(), words, environment());
  }
  ProgramResult done(const Words& words) const {
    const ProgramResult result = crossfade(words);
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    return result;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string told(const std::string& name) const {
    return std::filesystem::exists(path(name)) ? read_text(path(name)) : "";
  }
  // hooks: lines of the section.
  void write_spec(const std::string& hooks) const {
    write_text(path("spec.toml"),
               "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = "
               "\"bigint\"\n[drop]\nsoak = \"0ms\"\n[hooks]\n" +
                   hooks);
  }
  void start(const std::string& hooks) const {
    write_spec(hooks);
    done({"init"});
    done({"start", path("spec.toml")});
  }
  std::string phase() const { return json::parse(done({"status", "m", "--json"}).out)["phase"]; }
  // hook and result of each that the history tells of.
  Words history() const {
    Words list;
    const json all = json::parse(done({"history", "m", "--json"}).out);
    for (const json& action : all["actions"]) {
      if (action["action"] != "hook") continue;
      list.push_back(action["detail"]["hook"].get<std::string>() + ": " +
                     action["detail"]["result"].get<std::string>());
    }
    return list;
  }

  PrivateFolder folder_{"hooks"};
};

TEST_F(HooksTest, EachPhaseChangeRunsItsTwoAndTheyAreToldTheFacts) {
  std::string hooks;
  for (const char* phase : {"planned", "dry_run", "rolled_back"}) {
    for (const char* when : {"before", "after"}) {
      hooks += fmt::format(
          "{0}_{1} = '''echo $CROSSFADE_HOOK $CROSSFADE_EVENT from=$CROSSFADE_FROM to=$CROSSFADE_TO"
          " $CROSSFADE_MIGRATION $CROSSFADE_TABLE $CROSSFADE_COLUMN id=${{#CROSSFADE_ID}} >> {2}'''\n",
          when, phase, path("log"));
    }
  }
  start(hooks);
  const json plan = json::parse(done({"plan", path("spec.toml"), "--json"}).out);
  EXPECT_EQ(plan["hooks"].size(), 6U);
  EXPECT_TRUE(contains(done({"plan", path("spec.toml")}).out, "before_dry_run: echo"));
  done({"next", "m"});
  done({"rollback", "m", "--to", "rolled_back"});
  const std::string facts = " m public.t b id=36\n";
  EXPECT_EQ(told("log"),
            "before_planned start from= to=planned m public.t b id=0\n"
            "after_planned start from= to=planned" +
                facts + "before_dry_run advance from=planned to=dry_run" + facts +
                "after_dry_run advance from=planned to=dry_run" + facts +
                "before_planned rollback from=dry_run to=planned" + facts +
                "after_planned rollback from=dry_run to=planned" + facts +
                "before_rolled_back rollback from=planned to=rolled_back" + facts +
                "after_rolled_back rollback from=planned to=rolled_back" + facts);
  EXPECT_EQ(history().size(), 7U);  // the first of all had no migration yet
}

TEST_F(HooksTest, AFailingBeforeHookIsAVetoThatSaysWhy) {
  start(
      fmt::format("before_dry_run = 'echo checking; echo the door is shut >&2; test -e {}'\n", path("open")));
  const auto vetoed = crossfade({"next", "m"});
  EXPECT_EQ(vetoed.exit_status, 3);
  for (const char* part : {"hook before_dry_run", "echo checking", "exit status 1", "the door is shut",
                           "the phase was not changed"}) {
    EXPECT_TRUE(contains(vetoed.err, part)) << vetoed.err;
  }
  EXPECT_EQ(json::parse(last_line(crossfade({"next", "m", "--json"}).out))["error"]["name"], "hook_failed");
  EXPECT_EQ(phase(), "planned");
  write_text(path("open"), "");
  done({"next", "m"});
  EXPECT_EQ(phase(), "dry_run");
  EXPECT_EQ(history(), (Words{"before_dry_run: exit status 1", "before_dry_run: exit status 1",
                              "before_dry_run: exit status 0"}));
}

TEST_F(HooksTest, AVetoBeforePlannedLeavesNothing) {
  write_spec("before_planned = 'exit 7'\n");
  done({"init"});
  const auto vetoed = crossfade({"start", path("spec.toml")});
  EXPECT_EQ(vetoed.exit_status, 3);
  EXPECT_TRUE(contains(vetoed.err, "exit status 7")) << vetoed.err;
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "0");
}

TEST_F(HooksTest, AStartThatIsRefusedAsksNoHook) {
  write_spec(fmt::format("before_planned = 'touch {}'\n", path("asked")));
  sql("ALTER TABLE t DROP CONSTRAINT t_pkey");
  done({"init"});
  EXPECT_EQ(crossfade({"start", path("spec.toml")}).exit_status, 3);
  EXPECT_FALSE(std::filesystem::exists(path("asked")));
}

TEST_F(HooksTest, AFailingAfterHookIsToldAndRecordedAndNotRepeated) {
  start(fmt::format("after_dry_run = 'echo ran >> {}; echo no proxy; exit 4'\n", path("log")));
  const auto result = done({"next", "m"});
  EXPECT_TRUE(contains(result.out + result.err, "exit status 4; it said: no proxy"))
      << result.out << result.err;
  EXPECT_EQ(phase(), "dry_run");
  done({"next", "m"});
  EXPECT_EQ(told("log"), "ran\n");
  EXPECT_EQ(history(), Words{"after_dry_run: exit status 4"});
}

// Killed while the hook runs: the phase is changed, the hook is owed.
TEST_F(HooksTest, AnAfterHookWhoseRunnerDiedRunsAgain) {
  start(fmt::format("after_dry_run = 'echo ran >> {0}; test -e {1} || {{ touch {1}; kill -9 $PPID; }}'\n",
                    path("log"), path("killed")));
  EXPECT_EQ(crossfade({"next", "m"}).signal, SIGKILL);
  EXPECT_EQ(phase(), "dry_run");
  EXPECT_EQ(history(), Words{});
  done({"next", "m"});
  EXPECT_EQ(told("log"), "ran\nran\n");
  EXPECT_EQ(history(), Words{"after_dry_run: exit status 0"});
}

TEST_F(HooksTest, TheDebtOfAClosedMigrationIsPaidToo) {
  start(fmt::format("after_rolled_back = 'echo ran >> {0}; test -e {1} || {{ touch {1}; kill -9 $PPID; }}'\n",
                    path("log"), path("killed")));
  EXPECT_EQ(crossfade({"rollback", "m"}).signal, SIGKILL);
  EXPECT_EQ(phase(), "rolled_back");
  EXPECT_EQ(crossfade({"next", "m"}).exit_status, 3);
  EXPECT_EQ(told("log"), "ran\nran\n");
}

TEST_F(HooksTest, OneThatRunsTooLongIsEndedWithAllThatItStarted) {
  start(
      fmt::format("hook_timeout = \"1s\"\nbefore_dry_run = 'sleep 600 & echo $! > {}; wait'\n", path("pid")));
  const auto result = crossfade({"next", "m"});
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_TRUE(contains(result.err, "ran longer than 1s")) << result.err;
  const auto sleeper = std::stoi(told("pid"));
  wait_until([&] { return kill(sleeper, 0) != 0; }, "the end of what the hook had started");
}

TEST_F(HooksTest, AnInterruptReachesTheHook) {
  start(fmt::format("before_dry_run = 'trap \"echo heard > {0}; exit 1\" INT; touch {1}; sleep 600 & wait'\n",
                    path("log"), path("started")));
  Program program(crossfade_binary(), {"next", "m"}, environment());
  wait_until([&] { return std::filesystem::exists(path("started")); }, "the hook");
  program.signal(SIGINT);
  EXPECT_EQ(program.wait().exit_status, 130);
  EXPECT_EQ(told("log"), "heard\n");
  EXPECT_EQ(phase(), "planned");
}

TEST_F(HooksTest, RunsOutsideAnyTransactionAndInheritsNothing) {
  const std::string script =
      "env > {0}/env; ls -l /proc/self/fd > {0}/fds; touch {0}/ready; "
      "while ! test -e {0}/go; do sleep 0.05; done";
  start("before_backfill = '" + fmt::format(fmt::runtime(script), folder_.path().string()) + "'\n");
  done({"next", "m"});
  Program program(crossfade_binary(), {"next", "m"}, environment());
  wait_until([&] { return std::filesystem::exists(path("ready")); }, "the hook");
  EXPECT_EQ(value("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'crossfade/m/runner'"
                  " AND xact_start IS NOT NULL"),
            "0");
  EXPECT_EQ(value("SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass"), "0");
  write_text(path("go"), "");
  EXPECT_EQ(program.wait().exit_status, 0);
  EXPECT_FALSE(contains(told("env"), "CROSSFADE_DSN"));
  EXPECT_FALSE(contains(told("env"), "a secret"));
  EXPECT_TRUE(contains(told("env"), "CROSSFADE_TO=backfill"));
  EXPECT_TRUE(contains(told("fds"), "/dev/null"));
  EXPECT_FALSE(contains(told("fds"), "socket:"));
}

}  // namespace
}  // namespace crossfade::test

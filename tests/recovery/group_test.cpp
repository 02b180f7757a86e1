// A migration with the foreign keys that follow it changes its phase as one, whoever is killed where.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "group_test.hpp"
#include "kill_points.hpp"

namespace crossfade::test {
namespace {

class GroupTest : public GroupRecoveryTest {
 protected:
  void make_family(int rows) { make_family(family_sql(rows)); }
  void make_family(const std::string& tables) {
    sql(tables);
    write_spec("public.p", "code");
    succeed({"init"});
    family_.emplace(dsn(), 2);
  }

  // All of them are in one phase, with one history, and what the application relies on stands.
  void expect_together(Phase phase) {
    EXPECT_EQ(value("SELECT string_agg(DISTINCT phase, ' ') FROM crossfade.migration"), to_text(phase));
    EXPECT_EQ(
        value("SELECT count(DISTINCT h) FROM (SELECT string_agg(from_phase || to_phase, ' ' ORDER BY number)"
              " AS h FROM crossfade.transition GROUP BY migration_id) x"),
        value("SELECT least(count(*), 1) FROM crossfade.transition"));
    // One that runs ahead of the switch stands on partitions only.
    EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conparentid = 0"
                    " AND connamespace = 'public'::regnamespace AND conname !~ '_cftwin_'"),
              "4");
    const bool switched = phase == Phase::switched || phase == Phase::dropped;
    EXPECT_EQ(
        value("SELECT string_agg(DISTINCT format_type(atttypid, -1), ' ') FROM pg_attribute a JOIN pg_class c"
              " ON c.oid = a.attrelid WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'"
              " AND a.attname IN ('code', 'c_code')"),
        switched ? "bigint" : "integer");
    family_->let_write(5);
  }

  void kill_on_the_way(Phase from, Phase to, const Arguments& command) {
    for (const auto moment : kMoments) {
      SCOPED_TRACE(kill_point(from, to, moment));
      dies(command, kill_point(from, to, moment) + "=abort");
      expect_together(moment == "sent" ? to : from);
    }
    done(command);
    expect_together(to);
  }
};

TEST_F(GroupTest, KilledAroundTheSwitchInBothDirectionsItIsTogether) {
  make_family(200);
  done({"start", spec_path()});
  kill_on_the_way(Phase::dry_run, Phase::backfill, next(Phase::backfill));
  done(next(Phase::compare));
  kill_on_the_way(Phase::compare, Phase::switched, next(Phase::switched));
  kill_on_the_way(Phase::switched, Phase::compare, back(Phase::compare));
  done(next(Phase::switched));
  kill_on_the_way(Phase::switched, Phase::dropped, next(Phase::dropped));
  family_->stop();
}

// The same with partitioned children, whose foreign keys run ahead of each switch.
TEST_F(GroupTest, WithPartitionedChildrenKilledAroundTheSwitchItIsTogether) {
  make_family(partitioned_family_sql(200));
  done({"start", spec_path()});
  done(next(Phase::compare));
  const std::string ahead =
      "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conname ~ '_cftwin_' AND conparentid = 0";
  // Four parts of c1, two of c2 and of g: a step for each to add it, and one to validate it.
  for (const int step : {1, 2, 13}) {
    dies(next(Phase::switched), fmt::format("forerunner.step=abort@{}", step));
    expect_together(Phase::compare);
  }
  EXPECT_EQ(value(ahead), "8");
  EXPECT_EQ(value(ahead + " AND convalidated"), "8");
  // Half of a way back to the twins' phase: they go, whoever began it.
  dies(back(Phase::dual_write), "compare_to_dual_write.before=abort");
  EXPECT_EQ(value(ahead), "0");
  dies(next(Phase::switched), "compare_to_switched.before=abort");
  const auto oids = [&](const std::string& condition) {
    return value(
        "SELECT string_agg(k.oid::text, ',' ORDER BY k.oid) FROM pg_constraint k JOIN pg_class c"
        " ON c.oid = k.conrelid AND c.relkind = 'r' WHERE k.contype = 'f' AND " +
        condition);
  };
  const auto standing = oids("k.conname ~ '_cftwin_'");
  kill_on_the_way(Phase::compare, Phase::switched, next(Phase::switched));
  EXPECT_EQ(oids("k.conparentid <> 0"), standing) << "the constraints were not taken over";
  EXPECT_EQ(value(ahead), "0");
  // Given up, a way back leaves none of what it made.
  dies(back(Phase::compare), "forerunner.step=abort@3");
  expect_together(Phase::switched);
  EXPECT_EQ(value(ahead), "2");
  done(next(Phase::switched));
  EXPECT_EQ(value(ahead), "0");
  kill_on_the_way(Phase::switched, Phase::compare, back(Phase::compare));
  EXPECT_EQ(value(ahead), "0");
  done(next(Phase::dropped));
  family_->stop();
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND NOT convalidated"), "0");
}

// Between two members, and between the members and the leader.
TEST_F(GroupTest, KilledBetweenItsMembersItGoesOn) {
  make_family(200);
  done({"start", spec_path()});
  for (const auto phase : {Phase::backfill, Phase::compare}) {
    for (const auto* point : {"settle.before=abort@2", "settle.after=abort@1", "settle.before=abort"}) {
      SCOPED_TRACE(point);
      const auto result = crossfade(next(phase), point);
      EXPECT_TRUE(result.signal == SIGKILL || result.exit_status == 0) << result.err;
      EXPECT_EQ(value("SELECT count(DISTINCT phase) FROM crossfade.migration"), "1");
    }
    done(next(phase));
    EXPECT_EQ(value("SELECT string_agg(DISTINCT status, ' ') FROM crossfade.migration"), "settled");
    expect_together(phase);
  }
  done(back(Phase::rolled_back));
  family_->stop();
}

TEST_F(GroupTest, OfFiveAtOnceOneDrives) {
  make_family(200);
  done({"start", spec_path()});
  done(next(Phase::compare));
  std::vector<Program> programs;
  for (int i = 0; i < 5; ++i) programs.push_back(launch(next(Phase::switched)));
  for (auto& program : programs) program.wait();
  done(next(Phase::switched));
  expect_together(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.transition WHERE to_phase = 'switched'"), "5");
  EXPECT_EQ(value("SELECT count(DISTINCT token) FROM crossfade.migration"), "1");
  family_->stop();
}

// The application locks the tables in the other order, and takes its time between them. An attempt that held
// the parent and waited for the child until the application looks for a deadlock would make it the victim.
TEST_F(GroupTest, NobodyBecomesTheVictimOfADeadlock) {
  make_family(100);
  family_->stop();
  write_text(
      spec_path(),
      "[migration]\nname = \"m\"\ntable = \"public.p\"\n[[column]]\nname = \"code\"\ntype = \"bigint\"\n"
      "[switch]\nfollow_foreign_keys = true\nattempts = 10000\nlock_timeout = \"20s\"\n");
  done({"start", spec_path()});
  done(next(Phase::compare));
  auto program = launch(next(Phase::switched));
  const std::string attempts = "SELECT count(*) FROM crossfade.switch_attempt WHERE to_phase = 'switched'";
  // Two that take turns, so that the tables are hardly ever free, until long after the attempts began to
  // wait.
  std::atomic<bool> enough{false};
  std::vector<std::string> failures(2);
  {
    std::vector<std::jthread> writers;
    for (int n : {0, 1}) {
      writers.emplace_back([&, n] {
        try {
          ApplicationSession application(dsn());
          for (int id = 5000 + n; !enough; id += 2) {
            application.run(
                fmt::format("BEGIN; UPDATE c1 SET n = n + 1 WHERE id = {1}; SELECT pg_sleep(0.2);"
                            "INSERT INTO p (id, tenant, code) VALUES ({0}, 1, {0}); COMMIT",
                            id, n + 1));
          }
        } catch (const std::exception& error) {
          failures[static_cast<std::size_t>(n)] = error.what();
        }
      });
    }
    wait_until([&] { return std::stoi(value(attempts)) >= 20 || !program.is_running(); }, "twenty attempts",
               std::chrono::seconds(100));
    enough = true;
  }
  EXPECT_EQ(failures, std::vector<std::string>(2));
  EXPECT_GE(std::stoi(value(attempts)), 10) << "none of them waited";
  EXPECT_EQ(program.wait(std::chrono::seconds(120)).exit_status, 0);
}

// A child that somebody holds for long keeps the attempts from being made, and its holder is named.
TEST_F(GroupTest, AnOldHolderOfAChildIsNamed) {
  make_family(100);
  family_->stop();
  done({"start", spec_path()});
  done(next(Phase::compare));
  ApplicationSession holder(dsn());
  holder.run("BEGIN; LOCK TABLE c3 IN ROW EXCLUSIVE MODE");
  auto program = launch(next(Phase::switched));
  wait_until_true("SELECT count(*) > 2 FROM crossfade.switch_attempt WHERE outcome = 'older holder'");
  EXPECT_NE(value("SELECT max(blockers::text) FROM crossfade.switch_attempt WHERE outcome = 'older holder'")
                .find("c3"),
            std::string::npos);
  holder.run("COMMIT");
  EXPECT_EQ(program.wait(std::chrono::seconds(120)).exit_status, 0);
}

TEST_F(GroupTest, PauseAndTuneReachEveryMember) {
  make_family(3000);
  done({"start", spec_path()});
  done({"tune", "m", "rows_per_second=500"});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.tuning WHERE key = 'rows_per_second' AND value = '500'"),
            "5");
  auto program = launch(next(Phase::backfill));
  wait_until_true("SELECT bool_and(phase = 'backfill') FROM crossfade.migration");
  done({"pause", "m", "--reason", "look"});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration WHERE status = 'running'"), "0");
  done({"tune", "m", "rows_per_second=0"});
  done({"resume", "m"});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration WHERE status = 'paused'"), "0");
  EXPECT_EQ(program.wait(std::chrono::seconds(120)).exit_status, 0);
  EXPECT_EQ(value("SELECT string_agg(DISTINCT status, ' ') FROM crossfade.migration"), "settled");
  family_->stop();
}

}  // namespace
}  // namespace crossfade::test

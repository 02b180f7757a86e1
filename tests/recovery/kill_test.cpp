// kill -9 at every failpoint. The same command again must succeed, and the migration is in the phase of
// before or in the next one, never between.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "crossfade/core/lease.hpp"
#include "kill_points.hpp"
#include "recovery_test.hpp"

namespace crossfade::test {
namespace {

class KillTest : public RecoveryTest {
 protected:
  // Kills on the way from one phase to the next, at each moment, then lets it be done.
  void kill_on_the_way(Phase from, Phase to, const Arguments& command) {
    for (const auto moment : kMoments) {
      const auto point = kill_point(from, to, moment);
      SCOPED_TRACE(point);
      const auto before = transitions();
      killed(command, point + "=abort");
      const bool done = moment == "sent";
      EXPECT_EQ(phase(), done ? to : from);
      EXPECT_EQ(transitions(), before + (done ? 1 : 0));
      check_whole();
    }
    SCOPED_TRACE(fmt::format("{} to {}", to_text(from), to_text(to)));
    succeed(command);
    EXPECT_EQ(phase(), to);
    check_whole();
  }
};

TEST_F(KillTest, AtEveryMomentOfEveryStepForward) {
  make_table();
  start_writers();
  advance_to(Phase::planned);
  for (std::size_t i = 1; i < kThere.size(); ++i) {
    kill_on_the_way(kThere[i - 1], kThere[i], next(kThere[i]));
    EXPECT_EQ(status(), "settled");
    check_in_step();
  }
  EXPECT_EQ(transitions(), 6);
}

TEST_F(KillTest, AtEveryMomentOfEveryStepBack) {
  make_table();
  start_writers();
  advance_to(Phase::switched);
  for (std::size_t i = 1; i < kBack.size(); ++i) {
    kill_on_the_way(kBack[i - 1], kBack[i], back(kBack[i]));
  }
  check_restored();
  EXPECT_EQ(transitions(), 5 + 6);
}

TEST_F(KillTest, AtTheStart) {
  make_table();
  for (const auto& point : kAtStart) {
    SCOPED_TRACE(point);
    killed({"start", spec_path()}, point + "=abort");
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), point == "start.registered" ? "1" : "0");
  }
  succeed({"start", spec_path()});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "1");
  check_whole();
}

TEST_F(KillTest, AroundTheLeaseAndTheSettlingOfEveryPhase) {
  make_table();
  start_writers();
  advance_to(Phase::planned);
  for (std::size_t i = 1; i + 1 < kThere.size(); ++i) {
    for (const auto& point : kInEveryPhase) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(kThere[i]), point));
      const auto began = std::chrono::steady_clock::now();
      killed(next(kThere[i]), point + "=abort");
      EXPECT_LT(std::chrono::steady_clock::now() - began, kLeaseLength)
          << "the lease of the dead is free at once";
      check_whole();
    }
    succeed(next(kThere[i]));
    EXPECT_EQ(status(), "settled");
    check_in_step();
  }
}

TEST_F(KillTest, AtEveryPlaceOfAChunk) {
  make_table({.rows = 12000, .tuning = "chunk_target = \"10ms\"\nrows_per_second = 20000", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  killed(next(Phase::backfill), kInBackfill.front() + "=abort");
  check_whole();
  EXPECT_EQ(phase(), Phase::backfill);
  for (const auto hit : {1, 2, 3}) {
    for (const auto& point : kInChunk) {
      SCOPED_TRACE(fmt::format("{} {}", point, hit));
      killed(next(Phase::backfill), fmt::format("{}=abort@{}", point, hit));
      check_whole();
    }
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE kind = 'backfill'"), "1");
  succeed(next(Phase::backfill));
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id"
                  " WHERE p.kind = 'backfill' AND NOT u.done"),
            "0");
  EXPECT_EQ(value("SELECT string_agg(state, ' ') FROM crossfade.pass WHERE kind = 'catch_up'"), "ended");
  check_in_step();
}

// The pieces are in the unit row before the first of them is swept, so whoever comes goes on with them.
TEST_F(KillTest, BetweenTheVisitsOfAWindow) {
  make_table(
      {.rows = 12000, .tuning = "interleave = 8\nchunk_target = \"10ms\"\nworkers = 1", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  constexpr const char* kPlaces =
      "SELECT string_agg(concat(number, window_bounds, visits, visit, piece, within), ' ' ORDER BY number)"
      " FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id WHERE p.kind = 'backfill'";
  killed(next(Phase::backfill), kInWindow.front() + "=abort");
  const auto opened = value(kPlaces);
  EXPECT_NE(opened.find("811"), std::string::npos) << "eight visits, the first, the first piece: " << opened;
  check_whole();
  killed(next(Phase::backfill), "chunk.before=abort");
  EXPECT_EQ(value(kPlaces), opened);
  // The first window to its end, and the next one opened.
  killed(next(Phase::backfill), kInWindow.front() + "=abort");
  check_whole();
  for (const auto hit : {2, 5}) {
    for (const auto& point : kInChunk) {
      SCOPED_TRACE(fmt::format("{} {}", point, hit));
      killed(next(Phase::backfill), fmt::format("{}=abort@{}", point, hit));
      check_whole();
    }
  }
  succeed(next(Phase::backfill));
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id"
                  " WHERE p.kind = 'backfill' AND (NOT u.done OR u.window_bounds IS NOT NULL)"),
            "0");
  check_in_step();
}

// Its blocks count nothing any more: what they were counted for is planned anew.
TEST_F(KillTest, WhenATableInThePhysicalSweepWasRewritten) {
  make_table({.rows = 12000, .tuning = "order = \"physical\"\ninterleave = 4", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  killed(next(Phase::backfill), "chunk.after=abort@3");
  check_whole();
  sql("VACUUM FULL t");
  for (const auto& point : kAfterARewrite) {
    SCOPED_TRACE(point);
    killed(next(Phase::backfill), point + "=abort");
    check_whole();
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id"
                  " WHERE p.kind = 'backfill' AND u.relfilenode <> pg_relation_filenode('t')"),
            "0");
  killed(next(Phase::backfill), "chunk.after=abort@3");
  check_whole();
  succeed(next(Phase::backfill));
  EXPECT_EQ(value("SELECT string_agg(state || ' ' || (sweep->>'order'), ', ' ORDER BY id) FROM crossfade.pass"
                  " WHERE kind = 'backfill'"),
            "ended physical");
  check_in_step();
  // Settled, and rewritten once more: a comparison of before does not count.
  advance_to(Phase::compare);
  sql("CLUSTER t USING t_pkey");
  succeed(next(Phase::switched));
  check_in_step();
}

// A row that somebody holds is set aside; what is set aside is never forgotten.
TEST_F(KillTest, BeforeARowThatWasSetAsideIsWritten) {
  make_table();
  advance_to(Phase::dry_run);
  // Held from after the capture on, whose lock would wait for the holder.
  killed(next(Phase::backfill), "units.planned=abort");
  ApplicationSession holder(dsn());
  holder.run("BEGIN; SELECT 1 FROM t WHERE id IN (7, 8) FOR UPDATE");
  for (const auto hit : {1, 2}) {
    SCOPED_TRACE(hit);
    killed(next(Phase::backfill), fmt::format("{}=abort@{}", kAtLeftovers.front(), hit));
    check_whole();
    EXPECT_EQ(value("SELECT string_agg(key[1], ' ' ORDER BY key[1]) FROM crossfade.leftover"), "7 8");
  }
  killed(next(Phase::backfill), kAtLeftovers.back() + "=abort");
  check_whole();
  auto program = launch(next(Phase::backfill));
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
      " AND application_name LIKE 'crossfade/m/worker%'");
  EXPECT_TRUE(program.is_running());
  const auto status = crossfade({"status", "m", "--json"}).out;
  EXPECT_NE(status.find("\"pass\":\"catch_up\",\"set_aside\":2"), std::string::npos) << status;
  EXPECT_EQ(value("SELECT string_agg(kind || ' ' || state, ', ' ORDER BY id) FROM crossfade.pass"
                  " WHERE kind <> 'profile'"),
            "backfill ended, catch_up running");
  holder.run("COMMIT");
  EXPECT_EQ(program.wait().exit_status, 0);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.leftover"), "0");
  // A row may be looked at more than once, while it is locked.
  EXPECT_EQ(value("SELECT concat(state, ' ', rows_read >= 2, ' ', rows_written) FROM crossfade.pass"
                  " WHERE kind = 'catch_up'"),
            "ended t 2");
  check_in_step();
}

TEST_F(KillTest, InTheDryRunTheTwinsAndTheComparisons) {
  make_table({.rows = 5000, .tuning = {}, .switching = {}});
  start_writers();
  advance_to(Phase::planned);
  const auto kill_at = [&](Phase phase, const std::vector<std::string>& points) {
    for (const auto& point : points) {
      SCOPED_TRACE(fmt::format("{} {}", to_text(phase), point));
      killed(next(phase), point + "=abort");
      check_whole();
    }
    succeed(next(phase));
    check_in_step();
  };
  kill_at(Phase::dry_run, kInDryRun);
  kill_at(Phase::dual_write, kInDualWrite);
  kill_at(Phase::compare, kInCompare);
  kill_at(Phase::switched, kInSwitched);
  succeed(back(Phase::rolled_back));
  check_restored();
}

// The builder died inside CREATE INDEX CONCURRENTLY, and left an index that is not valid.
TEST_F(KillTest, WhileAnIndexIsBuiltLeavesNothingThatTheNextRunDoesNotMend) {
  make_table();
  advance_to(Phase::backfill);
  ApplicationSession old(dsn());
  old.run("BEGIN; UPDATE t SET n = n WHERE id = 1");
  // However old the transaction is that it has to wait for.
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction'"
      " AND clock_timestamp() - xact_start > interval '1100 ms'");
  auto program = launch(next(Phase::dual_write));
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
      " AND query LIKE 'CREATE INDEX CONCURRENTLY%'");
  wait_until([&] { return program.err().find("building twins: waiting for") != std::string::npos; },
             "the runner to tell what the server does", std::chrono::seconds(30));
  EXPECT_NE(crossfade({"status", "m"}).out.find("waiting for pid"), std::string::npos);
  program.signal(SIGKILL);
  program.wait();
  super_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%'");
  old.run("COMMIT");
  wait_until_true(
      "SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%'"
      " AND pid <> pg_backend_pid()");
  EXPECT_EQ(value("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND NOT indisvalid"), "1");
  succeed(next(Phase::dual_write));
  EXPECT_EQ(value("SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND NOT indisvalid"), "0");
  check_in_step();
  succeed(back(Phase::rolled_back));
  check_restored();
}

TEST_F(KillTest, AfterEachRepairedRow) {
  make_table();
  advance_to(Phase::compare);
  sql(fmt::format(
      "BEGIN; SELECT set_config('crossfade.sweep', (SELECT mark::text FROM crossfade.migration), true);"
      "UPDATE t SET {} = 1 WHERE id IN (5, 6, 7); COMMIT",
      shadow_column()));
  EXPECT_EQ(crossfade({"compare", "m"}).exit_status, 4);
  for (int hit = 1; hit <= 2; ++hit) {
    killed({"diffs", "m", "--repair"}, fmt::format("{}=abort", kInRepair.front()));
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.difference WHERE repaired_at IS NOT NULL"),
              std::to_string(hit));
  }
  EXPECT_NE(crossfade({"next", "m", "--until", "switched"}).exit_status, 0) << "a difference is left";
  EXPECT_EQ(phase(), Phase::compare);
  succeed({"diffs", "m", "--repair"});
  check_in_step();
  succeed(next(Phase::switched));
  check_in_step();
}

TEST_F(KillTest, EveryFailpointOfTheProgramIsAmongThem) {
  std::set<std::string> killed_at;
  for (const auto* points :
       {&kAtStart, &kInEveryPhase, &kInDryRun, &kInChunk, &kInBackfill, &kInWindow, &kAfterARewrite,
        &kAtLeftovers, &kInDualWrite, &kInCompare, &kInSwitched, &kInWayBack, &kInGivingUp, &kAtLeftoverIndex,
        &kInArchive, &kInRepair, &kInSplit, &kInRedrive, &kAtForerunners}) {
    killed_at.insert(points->begin(), points->end());
  }
  for (const auto* way : {&kThere, &kBack}) {
    for (std::size_t i = 1; i < way->size(); ++i) {
      for (const auto moment : kMoments) killed_at.insert(kill_point((*way)[i - 1], (*way)[i], moment));
    }
  }
  std::set<std::string> listed;
  std::istringstream lines(Program::run(crossfade_binary(), {"--list-failpoints"}).out);
  for (std::string line; std::getline(lines, line);) listed.insert(line);
  EXPECT_EQ(listed, killed_at);
}

}  // namespace
}  // namespace crossfade::test

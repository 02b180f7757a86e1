// Worker processes beside the runner: they come, go, are killed, sleep and wake up late.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kill_points.hpp"
#include "recovery_test.hpp"
#include "support/redis_server.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

using Clock = std::chrono::steady_clock;
using json = nlohmann::json;

constexpr int kInterrupted = 130;
constexpr auto kLong = std::chrono::seconds(120);

std::string fake_clock_library() {
  for (const auto& folder : std::filesystem::directory_iterator("/usr/lib")) {
    const auto found = folder.path() / "faketime" / "libfaketime.so.1";
    if (std::filesystem::exists(found)) return found;
  }
  throw std::runtime_error("there is no libfaketime: install the package libfaketime");
}

json last_object(const std::string& lines) {
  const auto end = lines.find_last_not_of('\n');
  const auto begin = end == std::string::npos ? end : lines.rfind('\n', end);
  return json::parse(lines.substr(begin == std::string::npos ? 0 : begin + 1));
}

class WorkersTest : public RecoveryTest {
 protected:
  // The runner has opened the pass and says how fast it may go, sweeps nothing itself, and holds its lease
  // until open(gate_).
  Program launch_held_runner(const TableOptions& options = {}) {
    make_table(options);
    advance_to(Phase::dry_run);
    gate_ = gate("runner");
    auto runner = launch(next(Phase::backfill), "sweep.slice=wait:" + gate_);
    wait_until_reached(gate_, runner);
    return runner;
  }
  void end(Program& runner) {
    open(gate_);
    const auto result = runner.wait(kLong);
    EXPECT_EQ(result.exit_status, 0) << result.err;
  }
  Program launch_worker(const std::string& failpoints = {}) {
    return launch({"work", "m", "--workers", "1", "--json"}, failpoints);
  }
  void wait_for_state(const std::string& pattern) {
    wait_until(
        [&] {
          return value("SELECT count(*) > 0 FROM crossfade.worker WHERE state LIKE '" + pattern + "'") == "t";
        },
        "a worker that says " + pattern, kLong);
  }
  void wait_for_all_units() {
    wait_until([&] { return value("SELECT count(*) = 0 FROM crossfade.unit WHERE NOT done") == "t"; },
               "every unit", kLong);
  }
  std::string units() {
    return value("SELECT string_agg(u::text, ' ' ORDER BY number) FROM crossfade.unit u");
  }

  std::string gate_;
};

TEST_F(WorkersTest, OneDoesTheWholeSweepOfARunnerThatDoesNone) {
  auto runner = launch_held_runner({.rows = 12000, .tuning = {}, .switching = {}});
  start_writers();
  auto worker = launch_worker();
  wait_for_all_units();
  wait_for_state("sweeps public.t%");
  const json seen = json::parse(crossfade({"status", "m", "--json"}).out);
  ASSERT_EQ(seen["processes"].size(), 1U) << seen;
  EXPECT_EQ(seen["processes"][0]["process_id"], worker.pid());
  EXPECT_EQ(seen["processes"][0]["threads"], 1);
  EXPECT_NE(crossfade({"status", "m"}).out.find(fmt::format("process {}", worker.pid())), std::string::npos);
  end(runner);
  const auto result = worker.wait(kLong);
  EXPECT_EQ(result.exit_status, 0) << result.out;
  const json answer = last_object(result.out);
  EXPECT_EQ(answer["event"], "result");
  EXPECT_EQ(answer["phase"], "backfill");
  EXPECT_EQ(std::to_string(answer["rows_read"].get<std::int64_t>()),
            value("SELECT sum(rows_read) FROM crossfade.unit"));
  // It takes its row away.
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.worker"), "0");
  check_in_step();
}

TEST_F(WorkersTest, ItWaitsVisiblyAndGoesOnByItself) {
  make_table();
  advance_to(Phase::planned);
  auto worker = launch_worker();
  wait_for_state("waits: nobody runs it%");
  gate_ = gate("runner");
  auto runner = launch(next(Phase::backfill), "sweep.slice=wait:" + gate_);
  wait_until_reached(gate_, runner);
  wait_for_all_units();
  end(runner);
  EXPECT_EQ(worker.wait(kLong).exit_status, 0);
  EXPECT_NE(worker.out().find("nobody runs it"), std::string::npos);
  succeed(next(Phase::dual_write));
  EXPECT_EQ(launch_worker().wait(kLong).exit_status, 0) << "dual_write sweeps nothing";
  check_in_step();
}

TEST_F(WorkersTest, APauseHoldsItAndAResumeLetsItGoOn) {
  RedisServer redis;
  redis_ = redis.url();
  auto runner = launch_held_runner({.rows = 3000, .tuning = "rows_per_second = 100", .switching = {}});
  auto worker = launch_worker();
  wait_until([&] { return value("SELECT sum(chunks) > 0 FROM crossfade.unit") == "t"; }, "a chunk", kLong);
  succeed({"pause", "m", "--reason", "lunch"});
  wait_for_state("waits: paused: lunch");
  const auto before = versions_of_rows();
  succeed({"tune", "m", "rows_per_second=0"});
  EXPECT_EQ(versions_of_rows(), before);
  EXPECT_EQ(value("SELECT count(*) > 0 FROM crossfade.unit WHERE NOT done"), "t");
  succeed({"resume", "m"});
  wait_for_all_units();
  end(runner);
  EXPECT_EQ(worker.wait(kLong).exit_status, 0);
  check_in_step();
}

// The sweep would take ten minutes at the rate that it began with.
TEST_F(WorkersTest, ANewRateIsInForceForAWorkerProcess) {
  for (const bool with_redis : {true, false}) {
    SCOPED_TRACE(with_redis);
    std::optional<RedisServer> redis;
    if (with_redis) redis_ = redis.emplace().url();
    if (!with_redis) redis_.clear();
    std::optional<Program> runner;
    if (with_redis) {
      runner.emplace(launch_held_runner({.rows = 3000, .tuning = "rows_per_second = 5", .switching = {}}));
    } else {
      succeed({"tune", "m", "rows_per_second=5"});
      gate_ = gate("again");
      runner.emplace(launch(next(Phase::backfill), "sweep.slice=wait:" + gate_));
      wait_until_reached(gate_, *runner);
    }
    auto worker = launch_worker();
    wait_until(
        [&] {
          return value(
                     "SELECT sum(chunks) > 0 FROM crossfade.unit u JOIN crossfade.pass p ON"
                     " p.id = u.pass_id WHERE p.state = 'running'") == "t";
        },
        "a chunk", kLong);
    succeed({"tune", "m", "rows_per_second=0"});
    const auto tuned = Clock::now();
    wait_for_all_units();
    EXPECT_LT(Clock::now() - tuned, std::chrono::seconds(30));
    end(*runner);
    EXPECT_EQ(worker.wait(kLong).exit_status, 0);
    check_in_step();
    if (with_redis) succeed(back(Phase::dry_run));
  }
}

// Without Redis each takes its part: three processes of one thread are not three times as fast.
TEST_F(WorkersTest, TheRateIsSharedAmongProcesses) {
  auto runner = launch_held_runner({.rows = 3000, .tuning = "rows_per_second = 1000", .switching = {}});
  std::vector<Program> workers;
  for (int n = 0; n < 3; ++n) workers.push_back(launch_worker());
  wait_until([&] { return value("SELECT count(*) FROM crossfade.worker") == "3"; }, "three workers", kLong);
  wait_for_all_units();
  open(gate_);
  runner.wait(kLong);
  for (auto& worker : workers) EXPECT_EQ(worker.wait(kLong).exit_status, 0);
  // All of it at a thousand rows a second, and the runner's two threads have their parts too.
  EXPECT_EQ(value("SELECT ended_at - began_at > interval '2 s' FROM crossfade.pass WHERE kind = 'backfill'"),
            "t");
  check_in_step();
}

TEST_F(WorkersTest, ARollbackGoesPastItAndItTakesPartInTheNextSweep) {
  make_table({.rows = 3000, .tuning = "rows_per_second = 100", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  auto runner = launch(next(Phase::backfill));
  auto worker = launch_worker();
  wait_until(
      [&] {
        return value(
                   "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name LIKE"
                   " 'crossfade/m/work-%-1'") == "t";
      },
      "the worker's thread", kLong);
  succeed({"rollback", "m"});
  EXPECT_EQ(runner.wait(kLong).exit_status, 6);
  check_whole();
  wait_for_state("waits: nobody runs it%");
  succeed({"tune", "m", "rows_per_second=0"});
  succeed(next(Phase::backfill));
  EXPECT_EQ(worker.wait(kLong).exit_status, 0) << worker.err();
  check_in_step();
}

TEST_F(WorkersTest, ASignalEndsItAfterTheChunk) {
  auto runner = launch_held_runner({.rows = 3000, .tuning = "rows_per_second = 100", .switching = {}});
  auto worker = launch_worker();
  wait_until([&] { return value("SELECT sum(chunks) > 0 FROM crossfade.unit") == "t"; }, "a chunk", kLong);
  worker.signal(SIGTERM);
  EXPECT_EQ(worker.wait(kLong).exit_status, kInterrupted);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.worker"), "0");
  succeed({"tune", "m", "rows_per_second=0"});
  end(runner);
  check_in_step();
}

// Before the chunk is sent, and after its answer came: the unit is another's by then, and the sweep goes on.
TEST_F(WorkersTest, OneThatIsStoppedAndWakesUpLateChangesNothing) {
  auto runner = launch_held_runner({.rows = 12000, .tuning = {}, .switching = {}});
  std::vector<Program> sleepers;
  for (const auto* point : {"chunk.bounded", "chunk.after"}) {
    sleepers.push_back(launch_worker(fmt::format("{}=wait:{}", point, gate(point))));
    wait_until_reached(gate(point), sleepers.back());
    sleepers.back().signal(SIGSTOP);
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit WHERE lease_token IS NOT NULL"), "2");
  // As if their leases had run out.
  sql("UPDATE crossfade.unit SET lease_until = clock_timestamp() - interval '1 s' WHERE NOT done");
  auto thief = launch_worker();
  wait_for_all_units();
  const auto rows = versions_of_rows();
  const auto before = units();
  for (const auto* point : {"chunk.bounded", "chunk.after"}) open(gate(point));
  for (auto& sleeper : sleepers) sleeper.signal(SIGCONT);
  // They look, find nothing to take, and say so.
  wait_until(
      [&] {
        return value(
                   "SELECT count(*) = 3 FROM crossfade.worker WHERE state LIKE '%is taken'"
                   " AND last_seen > clock_timestamp() - interval '5 s'") == "t";
      },
      "all three at the end", kLong);
  EXPECT_EQ(versions_of_rows(), rows);
  EXPECT_EQ(units(), before);
  end(runner);
  for (auto& sleeper : sleepers) EXPECT_EQ(sleeper.wait(kLong).exit_status, 0);
  EXPECT_EQ(thief.wait(kLong).exit_status, 0);
  EXPECT_EQ(versions_of_rows(), rows);
  check_in_step();
}

// Whoever is killed leaves a unit at its watermark; the others take it when the backend is gone.
TEST_F(WorkersTest, EightAtOnceUnderLiveWritersSomeOfThemKilled) {
  make_table({.rows = 20000, .tuning = "rows_per_second = 5000", .switching = {}});
  start_writers();
  advance_to(Phase::dry_run);
  auto runner = launch(next(Phase::backfill));
  std::vector<Program> workers;
  for (int n = 0; n < 8; ++n) workers.push_back(launch_worker());
  const auto swept = [&] {
    return std::stoll(value("SELECT coalesce(sum(rows_read), 0) FROM crossfade.unit"));
  };
  for (int n = 0; n < 4; ++n) {
    const auto aim = 3000 * (n + 1);
    wait_until([&] { return swept() > aim || !runner.is_running(); }, "more rows", kLong);
    workers[static_cast<std::size_t>(n)].signal(SIGKILL);
    if (n == 1) workers.push_back(launch_worker());
  }
  // The runner too: they wait for the next one.
  runner.signal(SIGKILL);
  runner.wait(kLong);
  check_whole();
  succeed(next(Phase::backfill));
  for (std::size_t n = 0; n < workers.size(); ++n) {
    const auto result = workers[n].wait(kLong);
    const bool killed = n < 4 && result.signal == SIGKILL;
    EXPECT_TRUE(killed || result.exit_status == 0) << result.out << result.err;
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit WHERE NOT done"), "0");
  check_in_step();
}

// One unit has everything: its holder gives parts of it away until all are busy.
TEST_F(WorkersTest, ALargeUnitIsSplitForThoseThatHaveNone) {
  auto runner = launch_held_runner({.rows = 20000, .tuning = "rows_per_second = 5000", .switching = {}});
  sql("DELETE FROM crossfade.unit WHERE number > 1");
  sql("UPDATE crossfade.unit SET high = (SELECT capture_high FROM crossfade.migration)");
  std::vector<Program> workers;
  for (int n = 0; n < 4; ++n) workers.push_back(launch_worker());
  wait_for_all_units();
  EXPECT_GE(std::stoll(value("SELECT count(DISTINCT lease_pid) FROM crossfade.unit WHERE chunks > 0")), 3);
  // The parts tile the keys: each begins where another one ends, and every row was read once.
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u WHERE low IS NOT NULL AND NOT EXISTS"
                  " (SELECT FROM crossfade.unit o WHERE o.high = u.low)"),
            "0");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit WHERE low IS NULL"), "1");
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.unit"), "20000");
  end(runner);
  for (auto& worker : workers) EXPECT_EQ(worker.wait(kLong).exit_status, 0);
  check_in_step();
}

TEST_F(WorkersTest, OneThatIsKilledAtASplitLosesNoRow) {
  auto runner = launch_held_runner({.rows = 6000, .tuning = "rows_per_second = 2000", .switching = {}});
  sql("DELETE FROM crossfade.unit WHERE number > 1");
  sql("UPDATE crossfade.unit SET high = (SELECT capture_high FROM crossfade.migration)");
  for (const auto& point : kInSplit) {
    SCOPED_TRACE(point);
    auto holder = launch_worker(point + "=abort");
    // Asked by one before it, it may be dead already.
    wait_until(
        [&] {
          return !holder.is_running() || value(
                                             "SELECT count(*) > 0 FROM crossfade.unit WHERE NOT done AND"
                                             " lease_pid IN (SELECT pid FROM pg_stat_activity)") == "t";
        },
        "a unit that is held", kLong);
    // As somebody who has none would.
    sql("UPDATE crossfade.unit SET split = 'wanted' WHERE NOT done");
    EXPECT_EQ(holder.wait(kLong).signal, SIGKILL);
    check_whole();
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit"), "2");
  end(runner);
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.unit"), "6000");
  check_in_step();
}

TEST_F(WorkersTest, AnotherVersionOrAnotherReadingOfTheSpecIsRefused) {
  auto runner = launch_held_runner();
  const auto refused = [&] {
    const auto result = launch_worker().wait(kLong);
    EXPECT_EQ(result.exit_status, 3) << result.out;
    EXPECT_EQ(last_object(result.out)["error"]["name"], "worker_mismatch") << result.out;
  };
  const auto version = value("SELECT runner_version FROM crossfade.migration");
  sql("UPDATE crossfade.migration SET runner_version = '0.0.7'");
  refused();
  sql(fmt::format("UPDATE crossfade.migration SET runner_version = '{}.99'",
                  version.substr(0, version.rfind('.'))));
  auto joins = launch_worker();
  wait_for_all_units();
  const auto hash = value("SELECT spec_hash FROM crossfade.migration");
  sql("UPDATE crossfade.migration SET spec_hash = 'x'");
  refused();
  sql(fmt::format("UPDATE crossfade.migration SET spec_hash = '{}'", hash));
  end(runner);
}

// Leases are the server's: neither a worker an hour ahead nor one an hour behind loses or steals one by it.
TEST_F(WorkersTest, TheClockOfItsHostDoesNotMatter) {
  auto runner = launch_held_runner({.rows = 12000, .tuning = "rows_per_second = 6000", .switching = {}});
  std::vector<Program> workers;
  for (const auto* skew : {"+1h", "-1h"}) {
    // A sanitizer that is linked in would refuse to come second.
    more_ = {{"LD_PRELOAD", fake_clock_library()},
             {"FAKETIME", skew},
             {"DONT_FAKE_MONOTONIC", "1"},
             {"ASAN_OPTIONS", "verify_asan_link_order=0"}};
    workers.push_back(launch_worker());
  }
  more_.clear();
  wait_until(
      [&] {
        return value(
                   "SELECT count(*) FROM crossfade.unit WHERE NOT done AND"
                   " abs(extract(epoch FROM lease_until - clock_timestamp())) < 16") != "0";
      },
      "a lease", kLong);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.worker WHERE abs(extract(epoch FROM"
                  " last_seen - clock_timestamp())) > 600"),
            "0");
  wait_for_all_units();
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.unit"), "12000");
  end(runner);
  for (auto& worker : workers) EXPECT_EQ(worker.wait(kLong).exit_status, 0);
  check_in_step();
}

// It has no lease, and says under the runner's token what the runner would have said.
TEST_F(WorkersTest, RejectsThatItMeetsFailThePhaseOfTheRunner) {
  make_table();
  // An expression that may fail, on one row.
  write_text(spec_path(),
             "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
             "forward = \"b::bigint + 0 / (b - 7)\"\nbackward = \"b::int\"\n[drop]\nsoak = \"0s\"\n");
  succeed({"start", spec_path()});
  gate_ = gate("runner");
  auto runner = launch({"next", "m", "--until", "backfill", "--accept", "dry_run_errors", "--reason", "test"},
                       "sweep.slice=wait:" + gate_);
  wait_until_reached(gate_, runner);
  const auto result = launch_worker().wait(kLong);
  EXPECT_EQ(result.exit_status, 4) << result.out;
  EXPECT_EQ(last_object(result.out)["error"]["name"], "too_many_rejects") << result.out;
  EXPECT_EQ(status(), "failed");
  open(gate_);
  EXPECT_EQ(runner.wait(kLong).exit_status, 4);
}

}  // namespace
}  // namespace crossfade::test

// Sweeping again what was swept: exactly what differs is written, nothing is taken for compared.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "kill_points.hpp"
#include "recovery_test.hpp"

namespace crossfade::test {
namespace {

using json = nlohmann::json;

class RedriveTest : public RecoveryTest {
 protected:
  // As our own write, so that the capture does not put it right.
  void damage(const std::string& where) {
    sql(
        fmt::format("BEGIN; SELECT set_config('crossfade.sweep', mark::text, true) FROM crossfade.migration;"
                    " UPDATE t SET {} = -1 WHERE {}; COMMIT",
                    shadow_column(), where));
  }
  json redrive(Arguments arguments) {
    Arguments all{"redrive", "m", "--json"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto result = crossfade(all);
    const auto end = result.out.find_last_not_of('\n');
    const auto begin = result.out.rfind('\n', end);
    auto answer = json::parse(result.out.substr(begin == std::string::npos ? 0 : begin + 1));
    answer["exit"] = result.exit_status;
    return answer;
  }
  void expect_counts(const json& answer, int rows_read, int rows_written) {
    EXPECT_EQ(answer["exit"], 0) << answer;
    EXPECT_EQ(answer["rows_read"], rows_read) << answer;
    EXPECT_EQ(answer["rows_written"], rows_written) << answer;
  }
};

TEST_F(RedriveTest, WritesWhatDiffersThereAndMakesComparisonsVoid) {
  make_table();
  advance_to(Phase::compare);
  damage("id IN (100, 105, 110, 200)");
  expect_counts(redrive({"--from", "100", "--to", "109"}), 10, 2);
  EXPECT_EQ(status(), "running");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE kind = 'compare' AND state <> 'void'"), "0");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.action WHERE action = 'redrive'"
                  " AND detail = '{\"from\": \"100\", \"to\": \"109\"}'"),
            "1");
  expect_counts(redrive({"--all"}), 3000, 2);
  expect_counts(redrive({"--all"}), 3000, 0);
  check_in_step();
  succeed(next(Phase::switched));
  check_in_step();
  EXPECT_EQ(redrive({"--all"})["error"]["name"], "illegal_transition");
}

TEST_F(RedriveTest, AUnitOrTheEndsOfTheKeysInEveryPhaseBeforeTheSwitch) {
  make_table({.rows = 12000, .tuning = {}, .switching = {}});
  start_writers();
  advance_to(Phase::backfill);
  damage("id = 1");
  writers().pause();
  const auto rows = value(
      "SELECT count(*) FROM t WHERE ARRAY[id::text] IN (SELECT ARRAY[t.id::text] FROM t,"
      " crossfade.unit u WHERE u.number = 1 AND t.id <= u.high[1]::int)");
  EXPECT_EQ(std::to_string(redrive({"--unit", "1"})["rows_read"].get<int>()), rows);
  writers().resume();
  check_in_step();
  succeed(next(Phase::backfill));
  EXPECT_EQ(redrive({"--unit", "77"})["error"]["name"], "unknown_unit");
  EXPECT_EQ(redrive({"--from", "abc"})["error"]["name"], "unknown_unit");
  EXPECT_EQ(redrive({"--from", "{1,2}"})["error"]["name"], "unknown_unit");
  // What was refused changed nothing.
  EXPECT_EQ(status(), "settled");
  succeed(next(Phase::dual_write));
  damage("id = 2");
  EXPECT_EQ(redrive({"--to", "5000"})["exit"], 0);
  check_in_step();
  succeed(next(Phase::switched));
  check_in_step();
}

TEST_F(RedriveTest, OneThatIsKilledIsFinishedByWhoeverComesNext) {
  make_table();
  advance_to(Phase::compare);
  for (const auto& point : kInRedrive) {
    SCOPED_TRACE(point);
    damage("id IN (7, 8)");
    killed({"redrive", "m", "--all"}, point + "=abort");
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE kind = 'compare' AND state <> 'void'"), "0");
    if (point == "redrive.opening") {
      expect_counts(redrive({"--all"}), 3000, 2);
      succeed(next(Phase::compare));
    } else {
      succeed(next(Phase::compare));
    }
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE state = 'running'"), "0");
    check_in_step();
  }
}

// The expression calls a function of the user, which was wrong for one row in a hundred.
TEST_F(RedriveTest, AFunctionThatWasCorrectedIsSweptForWhatDiffersOnly) {
  make_table();
  const auto define = [&](const std::string& body) {
    sql("CREATE OR REPLACE FUNCTION public.f(x int) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT " +
        body + " $$");
  };
  define("CASE WHEN x % 700 = 0 THEN 0 ELSE x END::bigint");
  write_text(spec_path(),
             "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
             "forward = \"public.f(b)\"\nbackward = \"b::int\"\n[expect]\nchanged = \"0%..100%\"\n"
             "lossy = \"0%..100%\"\n[drop]\nsoak = \"0s\"\n");
  advance_to(Phase::compare);
  define("x::bigint");
  const auto stopped = crossfade({"next", "m"});
  EXPECT_EQ(stopped.exit_status, 4) << stopped.err;
  succeed(back(Phase::backfill));
  // Row 0 is 0 either way.
  expect_counts(redrive({"--all"}), 3000, 29);
  succeed(next(Phase::switched));
  check_in_step();
  // A trigger that was switched off is another matter.
  succeed(back(Phase::compare));
  sql("ALTER TABLE t DISABLE TRIGGER ALL; ALTER TABLE t ENABLE TRIGGER ALL");
  EXPECT_EQ(redrive({"--all"})["error"]["name"], "fingerprint_changed");
}

}  // namespace
}  // namespace crossfade::test

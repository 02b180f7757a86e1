#include "recovery_test.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "crossfade/cutover/machine.hpp"
#include "support/lifecycle.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(120);

std::string output_of(const ProgramResult& result) {
  return fmt::format("exit {}, signal {}\nstdout:\n{}\nstderr:\n{}", result.exit_status, result.signal,
                     result.out, result.err);
}

LiveTable live_table(int rows) {
  LiveTable live;
  live.name = "public.t";
  live.twin = "public.t_twin";
  live.key = {"id"};
  live.column = "b";
  live.other = "n";
  live.rows = rows;
  live.key_of = [](std::int64_t n) { return std::vector<std::string>{std::to_string(n)}; };
  live.value = [](Random& random, Values) {
    return std::to_string(static_cast<std::int64_t>(random() % 4'000'000'000U) - 2'000'000'000);
  };
  return live;
}

}  // namespace

void RecoveryTest::make_table(const TableOptions& options) {
  observer().run(
      fmt::format("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL DEFAULT 42, n int NOT NULL DEFAULT 0,"
                  " note text DEFAULT 'x');"
                  "CREATE INDEX t_b ON t (b);"
                  "INSERT INTO t (id, b) SELECT g, g * 7 FROM generate_series(0, {} - 1) g;"
                  "CREATE TABLE t_twin (LIKE t INCLUDING ALL); INSERT INTO t_twin TABLE t;"
                  "ANALYZE t;",
                  options.rows) +
      ddl_);
  write_text(spec_path(), fmt::format("[migration]\nname = \"m\"\ntable = \"public.t\"\n"
                                      "[[column]]\nname = \"b\"\ntype = \"{}\"\n"
                                      "[tuning]\n{}\n[switch]\n{}\n[drop]\nsoak = \"0s\"\n",
                                      new_type_, options.tuning, options.switching));
  succeed({"init"});
  before_ = describe_catalog(observer(), "public.t");
}

ApplicationSession& RecoveryTest::observer() {
  if (!observer_ || observed_start_ != server().starts()) {
    observer_ = std::make_unique<ApplicationSession>(dsn());
    observed_start_ = server().starts();
  }
  return *observer_;
}

void RecoveryTest::start_writers(int writers) {
  const auto rows = std::stoi(value("SELECT count(*) FROM t"));
  LiveOptions options;
  options.writers = writers;
  writers_ = std::make_unique<LiveWriters>(dsn(), live_table(rows), standard_operations(), options);
}

Program::Environment RecoveryTest::environment(const std::string& failpoints) const {
  Program::Environment environment{{"CROSSFADE_DSN", binary_dsn_.empty() ? dsn() : binary_dsn_}};
  if (!redis_.empty()) environment["CROSSFADE_REDIS"] = redis_;
  if (!failpoints.empty()) environment["CROSSFADE_FAILPOINTS"] = failpoints;
  environment.insert(more_.begin(), more_.end());
  return environment;
}

Program RecoveryTest::launch(const Arguments& arguments, const std::string& failpoints) {
  return Program(crossfade_binary(), arguments, environment(failpoints));
}

ProgramResult RecoveryTest::crossfade(const Arguments& arguments, const std::string& failpoints) {
  return launch(arguments, failpoints).wait(kPatience);
}

void RecoveryTest::succeed(const Arguments& arguments, const std::string& failpoints) {
  const auto result = crossfade(arguments, failpoints);
  ASSERT_EQ(result.exit_status, 0) << fmt::format("crossfade {}\n", fmt::join(arguments, " "))
                                   << output_of(result);
}

void RecoveryTest::killed(const Arguments& arguments, const std::string& failpoints) {
  const auto result = crossfade(arguments, failpoints);
  ASSERT_EQ(result.signal, SIGKILL) << fmt::format("{} crossfade {}\n", failpoints, fmt::join(arguments, " "))
                                    << output_of(result);
}

void RecoveryTest::advance_to(Phase phase) {
  succeed({"start", spec_path()});
  if (phase != Phase::planned) succeed(next(phase));
}

Arguments RecoveryTest::next(Phase until) {
  Arguments arguments{"next", "m", "--until", std::string(to_text(until))};
  if (until == Phase::dropped) arguments.insert(arguments.end(), {"--confirm", "m"});
  return arguments;
}

Arguments RecoveryTest::back(Phase to) { return {"rollback", "m", "--to", std::string(to_text(to))}; }

void RecoveryTest::wait_until_reached(const std::string& gate, Program& program) const {
  wait_until(
      [&] {
        if (!program.is_running()) throw std::runtime_error("it ended before the gate\n" + program.err());
        return std::filesystem::exists(gate + ".reached");
      },
      "the program to reach " + gate, std::chrono::seconds(60));
}

Phase RecoveryTest::phase() {
  return *phase_from_text(
      observer().value("SELECT phase FROM crossfade.migration ORDER BY created_at DESC LIMIT 1"));
}

std::string RecoveryTest::status() {
  return observer().value("SELECT status FROM crossfade.migration ORDER BY created_at DESC LIMIT 1");
}

std::string RecoveryTest::shadow_column() {
  const auto found = observer().rows(
      "SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = 't'::regclass AND a.attnum > 0"
      " AND NOT a.attisdropped AND a.attname NOT IN ('id', 'b', 'n', 'note')");
  return found.empty() ? "" : found.at(0).at(0);
}

int RecoveryTest::transitions() {
  const auto rows = observer().rows(
      "SELECT t.from_phase, t.to_phase FROM crossfade.transition t JOIN"
      " (SELECT id FROM crossfade.migration ORDER BY created_at DESC LIMIT 1) m ON m.id = t.migration_id"
      " ORDER BY t.number");
  std::string at = "planned";
  for (const auto& row : rows) {
    EXPECT_EQ(row[0], at);
    at = row[1];
  }
  EXPECT_EQ(at, to_text(phase()));
  return static_cast<int>(rows.size());
}

void RecoveryTest::check_whole() {
  if (writers_) writers_->check();
  const auto differing = observer().rows(
      "WITH a AS (SELECT id, b::bigint, n, note FROM t), b AS (SELECT id, b::bigint, n, note FROM t_twin)"
      " SELECT 'only in the table', * FROM (TABLE a EXCEPT ALL TABLE b) x"
      " UNION ALL SELECT 'only in the twin', * FROM (TABLE b EXCEPT ALL TABLE a) y LIMIT 5");
  for (const auto& row : differing) ADD_FAILURE() << fmt::format("{}", fmt::join(row, " | "));

  const auto now = phase();
  const auto at_work = has_capture(now);
  const auto other = shadow_column();
  EXPECT_EQ(at_work, !other.empty()) << to_text(now) << " " << other;
  EXPECT_EQ(
      observer().value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal"
                       " AND tgenabled = 'A'"),
      at_work ? "2" : "0");
  EXPECT_EQ(observer().value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'crossfade'::regnamespace"
                             " AND proname LIKE 'capture%'"),
            at_work ? "1" : "0");
  EXPECT_EQ(observer().value("SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
                             " WHERE attrelid = 't'::regclass AND attname = 'b'"),
            new_column_is_public(now) || now == Phase::dropped ? new_type_ : "integer");
  transitions();
  if (other.empty()) return;
  // Below a watermark every row is in step, apart from those set aside; above it a row is untouched or
  // captured.
  const auto apart = observer().rows(fmt::format(
      "SELECT t.id, t.b, t.{0} FROM t WHERE t.{0} IS DISTINCT FROM t.b AND (t.{0} IS NOT NULL OR EXISTS"
      " (SELECT FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id WHERE p.kind = 'backfill'"
      "  AND p.state <> 'void' AND CASE WHEN u.range_by = 'key' THEN"
      "   (u.done OR t.id <= u.watermark[1]::int) AND t.id <= u.high[1]::int"
      "   AND (u.low IS NULL OR t.id > u.low[1]::int)"
      "  ELSE u.relfilenode = pg_relation_filenode('t') AND (t.ctid::text::point)[0] <"
      "   (CASE WHEN u.done THEN u.high ELSE u.watermark END)[1]::int"
      "   AND (u.low IS NULL OR (t.ctid::text::point)[0] >= u.low[1]::int) END"
      "  AND NOT EXISTS (SELECT FROM crossfade.leftover l"
      "   WHERE l.key = ARRAY[t.id::text]))) LIMIT 5",
      other));
  for (const auto& row : apart)
    ADD_FAILURE() << "swept, but apart: " << fmt::format("{}", fmt::join(row, " | "));
}

void RecoveryTest::check_in_step() {
  check_whole();
  const auto other = shadow_column();
  if (other.empty()) return;
  EXPECT_EQ(observer().value(fmt::format("SELECT count(*) FROM t WHERE {} IS DISTINCT FROM b", other)), "0");
}

void RecoveryTest::check_restored() {
  const auto now = describe_catalog(observer(), "public.t");
  std::vector<std::string> changed;
  std::ranges::set_symmetric_difference(before_, now, std::back_inserter(changed));
  for (const auto& line : changed) ADD_FAILURE() << "the catalog is not what it was: " << line;
  EXPECT_EQ(observer().value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'crossfade'::regnamespace"),
            "0");
}

std::string RecoveryTest::versions_of_rows() {
  return observer().value(
      "SELECT md5(string_agg(format('%s %s %s', ctid, xmin, xmax), ',' ORDER BY id)) FROM t");
}

}  // namespace crossfade::test

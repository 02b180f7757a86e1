// What must stop a migration, whoever meant well: old snapshots, another's approval, a touched trigger, a
// table that is gone, state of another version or another server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "recovery_test.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

constexpr int kRefused = 3;
constexpr int kFailed = 4;

class GuardTest : public RecoveryTest {
 protected:
  // Exits so, with the error of that name, and says each of the texts.
  void refused(Arguments command, int exit_status, const std::string& name,
               const std::vector<std::string>& texts = {}) {
    command.push_back("--json");
    expect_error(crossfade(command), exit_status, name, texts);
  }
  static void expect_error(const ProgramResult& result, int exit_status, const std::string& name,
                           std::vector<std::string> texts = {}) {
    EXPECT_EQ(result.exit_status, exit_status) << result.out;
    texts.push_back(fmt::format("\"name\":\"{}\"", name));
    for (const auto& text : texts)
      EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  }
  Program launch_sweep() {
    auto command = next(Phase::backfill);
    command.push_back("--json");
    auto program = launch(command);
    wait_until([&] { return value("SELECT coalesce(sum(chunks), 0) > 0 FROM crossfade.unit") == "t"; },
               "a chunk", std::chrono::seconds(60));
    return program;
  }
  std::string update_trigger() {
    return value(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname LIKE '~~~crossfade_update%'");
  }
  // Disabled, used, and enabled again, as a careless script does.
  void write_past_the_trigger() {
    const auto name = update_trigger();
    sql(fmt::format(
        "BEGIN; ALTER TABLE t DISABLE TRIGGER \"{0}\"; UPDATE t SET b = 77 WHERE id = 1;"
        " UPDATE t_twin SET b = 77 WHERE id = 1; ALTER TABLE t ENABLE ALWAYS TRIGGER \"{0}\"; COMMIT",
        name));
  }
};

TEST_F(GuardTest, ASnapshotOlderThanTheLastWriteHoldsUpTheSwitchAndIsNamed) {
  make_table();
  advance_to(Phase::dual_write);
  ApplicationSession old(dsn());
  old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  // Nobody in another database can read the table.
  const auto elsewhere = server().create_database();
  ApplicationSession stranger(elsewhere->dsn());
  stranger.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  succeed(next(Phase::compare));
  refused(next(Phase::switched), kRefused, "old_snapshot", {fmt::format("pid {} ", old.backend_pid())});
  EXPECT_EQ(phase(), Phase::compare);
  old.run("COMMIT");
  succeed(next(Phase::switched));
  check_in_step();
  stranger.run("COMMIT");
}

TEST_F(GuardTest, AnApprovalIsOfOneMigrationAndOfOneLifeOfIt) {
  make_table();
  sql("CREATE TABLE t2 (id int PRIMARY KEY, b int NOT NULL); INSERT INTO t2 SELECT g, g FROM "
      "generate_series(1, 500) g");
  const auto other = gate("other.toml");
  write_text(
      other,
      "[migration]\nname = \"m2\"\ntable = \"public.t2\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
      "[drop]\nsoak = \"0s\"\n");
  advance_to(Phase::compare);
  succeed({"start", other});
  succeed({"next", "m2", "--until", "compare"});
  succeed(next(Phase::switched));
  EXPECT_EQ(value("SELECT phase FROM crossfade.migration WHERE name = 'm2'"), "compare");
  succeed({"next", "m2", "--until", "switched"});
  EXPECT_NE(crossfade({"next", "m2", "--until", "dropped", "--confirm", "m"}).exit_status, 0);
  EXPECT_EQ(value("SELECT phase FROM crossfade.migration WHERE name = 'm2'"), "switched");
  succeed({"next", "m2", "--until", "dropped", "--confirm", "m2"});
  EXPECT_EQ(value("SELECT phase FROM crossfade.migration WHERE name = 'm'"), "switched");
  // What was accepted in a life that ended counts for nothing in the next.
  succeed({"rollback", "m", "--to", "rolled_back", "--accept", "misfits_open", "--reason", "they may go"});
  succeed({"start", spec_path()});
  EXPECT_EQ(
      value("SELECT count(*) FROM crossfade.acceptance a JOIN crossfade.migration m ON m.id = a.migration_id"
            " WHERE m.phase = 'planned'"),
      "0");
}

TEST_F(GuardTest, ATriggerThatWasDisabledForAMomentFailsTheSweepUntilRecapture) {
  make_table({.rows = 4000, .tuning = "rows_per_second = 200", .switching = {}});
  advance_to(Phase::dry_run);
  auto program = launch_sweep();
  write_past_the_trigger();
  expect_error(program.wait(), kFailed, "fingerprint_changed", {update_trigger()});
  EXPECT_EQ(status(), "failed");
  refused(next(Phase::backfill), kFailed, "fingerprint_changed");
  succeed({"tune", "m", "rows_per_second=0"});
  succeed({"recapture", "m"});
  succeed(next(Phase::switched));
  check_in_step();
}

TEST_F(GuardTest, ATriggerThatWasDisabledAfterTheComparisonFailsTheSwitchUntilRecapture) {
  make_table();
  start_writers();
  advance_to(Phase::compare);
  stop_writers();
  write_past_the_trigger();
  refused(next(Phase::switched), kFailed, "fingerprint_changed", {update_trigger()});
  EXPECT_EQ(phase(), Phase::compare);
  EXPECT_EQ(status(), "failed");
  refused(next(Phase::switched), kFailed, "fingerprint_changed");
  refused({"next", "m", "--accept", "fingerprint_changed", "--reason", "it was me"}, 2, "usage_error",
          {"never be accepted"});
  succeed({"recapture", "m"});
  succeed(next(Phase::switched));
  check_in_step();
  succeed(back(Phase::rolled_back));
  check_restored();
}

TEST_F(GuardTest, ATableThatIsDroppedWhileItRunsIsNamedAndCanBeClosed) {
  make_table({.rows = 4000, .tuning = "rows_per_second = 200", .switching = {}});
  advance_to(Phase::dry_run);
  auto program = launch_sweep();
  sql("DROP TABLE t");
  expect_error(program.wait(), kFailed, "table_changed", {"public.t"});
  refused(next(Phase::backfill), kFailed, "table_changed", {"public.t"});
  succeed({"status", "m"});
  // Another table of that name is not the one that was planned for.
  sql("CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL); INSERT INTO t VALUES (1, 1)");
  refused(next(Phase::backfill), kFailed, "table_changed");
  succeed(back(Phase::rolled_back));
  EXPECT_EQ(value("SELECT count(*) FROM pg_proc WHERE pronamespace = 'crossfade'::regnamespace"), "0");
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE b = 1"), "1");
  succeed({"start", spec_path()});
}

TEST_F(GuardTest, StateOfAnotherSchemaVersionIsLeftAlone) {
  make_table();
  advance_to(Phase::backfill);
  const auto version = value("SELECT value FROM crossfade.meta WHERE key = 'schema_version'");
  const auto before = versions_of_rows();
  for (const auto* foreign : {"0", "99"}) {
    sql(fmt::format("UPDATE crossfade.meta SET value = '{}' WHERE key = 'schema_version'", foreign));
    for (const Arguments& command :
         {next(Phase::compare), back(Phase::dry_run), Arguments{"status", "m"},
          Arguments{"start", spec_path()}, Arguments{"init"}, Arguments{"adopt"}}) {
      refused(command, kRefused, "schema_version");
    }
  }
  sql(fmt::format("UPDATE crossfade.meta SET value = '{}' WHERE key = 'schema_version'", version));
  EXPECT_EQ(versions_of_rows(), before);
  EXPECT_EQ(phase(), Phase::backfill);
  succeed(next(Phase::compare));
}

TEST_F(GuardTest, StateThatMovedToAnotherServerIsRefusedUntilItIsAdopted) {
  make_table();
  start_writers();
  advance_to(Phase::compare);
  for (const auto* change : {"system_identifier = '1'", "database_oid = 1", "timeline = '0000000F'"}) {
    SCOPED_TRACE(change);
    sql(fmt::format("UPDATE crossfade.migration SET {}", change));
    for (const Arguments& command : {next(Phase::switched), back(Phase::dual_write),
                                     Arguments{"compare", "m"}, Arguments{"recapture", "m"}}) {
      refused(command, kRefused, "identity_mismatch");
    }
    succeed({"status", "m"});
    EXPECT_EQ(phase(), Phase::compare);
    succeed({"adopt"});
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE state <> 'void' AND kind <> 'profile'"), "0");
    succeed(next(Phase::compare));
    check_in_step();
  }
  succeed(next(Phase::switched));
  check_in_step();
}

}  // namespace
}  // namespace crossfade::test

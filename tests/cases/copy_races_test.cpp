// Group A: races between what copies and what writes.
#include "case_test.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/units.hpp"
#include "support/lifecycle.hpp"
#include "support/live_writers.hpp"
#include "support/migration_fixture.hpp"
#include "sweep_sql.hpp"
#include "unit_claim.hpp"

namespace crossfade::test {
namespace {

class CopyRaceCases : public CaseTest {
 protected:
  // The sweep as a loop of statements by hand: rows up to `high` get their shadow, and the position stays
  // there.
  static void sweep_by_hand(MigrationFixture& fixture, int above, int high) {
    const auto m = fixture.migration();
    fixture.write_unseen(fmt::format("UPDATE public.t SET {} = b WHERE id > {} AND id <= {}",
                                     quote_identifier(m.names.new_column), above, high));
  }

  // Differences that a full comparison finds.
  std::int64_t compare(MigrationFixture& fixture) {
    fixture.set_phase(Phase::compare);
    Comparator comparator(fixture.migration(), fixture.table(), CompareDirection::forward);
    CursorCache cache("");
    const auto pass = comparator.open_pass(fixture.session());
    const std::atomic<bool> stop{false};
    while (
        !comparator.run(fixture.session(), cache, pass, std::chrono::seconds(5), stop, [](std::int64_t) {})) {
    }
    return newest_pass(fixture.session(), fixture.migration().row.id, "compare")->differences;
  }

  // Without the triggers that install_forward_sql makes with it.
  static void add_column_only(MigrationFixture& fixture) {
    const auto m = fixture.migration();
    fixture.session().script(
        fmt::format("ALTER TABLE public.t ADD COLUMN {} bigint", quote_identifier(m.names.new_column)));
  }
  static void add_triggers(MigrationFixture& fixture) {
    fixture.session().script("BEGIN;" + reinstall_forward_sql(fixture.migration(), fixture.table()) +
                             "COMMIT");
  }
};

constexpr const char* kTable =
    "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t SELECT g, g FROM generate_series(1, 1000) g";

// 2: https://github.com/github/gh-ost/issues/519
TEST_F(CopyRaceCases, ARowWhoseKeyMovesBehindTheSweepIsMigratedByTheTrigger) {
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  sql("UPDATE t SET id = -2 WHERE id = 888");
  quickly();
  let_go();
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(shadow_of("id = -2"), "888");
  EXPECT_EQ(stale(), "0");
}

// 2, (mutation): the trigger comes after the fifth chunk.
TEST_F(CopyRaceCases, ARowWhoseKeyMovedBeforeTheTriggerCameIsFoundByTheComparison) {
  auto session = SqlSession::connect({dsn(), "test", std::chrono::seconds(10)});
  MigrationFixture fixture(session, kTable, column_spec("b", "bigint"));
  fixture.set_phase(Phase::backfill);
  add_column_only(fixture);
  for (int chunk = 0; chunk < 5; ++chunk) sweep_by_hand(fixture, chunk * 100, chunk * 100 + 100);
  sql("UPDATE t SET id = -2 WHERE id = 888");
  add_triggers(fixture);
  sweep_by_hand(fixture, 500, 1000);
  EXPECT_EQ(compare(fixture), 1);
}

// 2, the twin of the mutation: the trigger comes first, the rest is the same.
TEST_F(CopyRaceCases, TheComparisonFindsNothingWhenTheTriggerCameFirst) {
  auto session = SqlSession::connect({dsn(), "test", std::chrono::seconds(10)});
  MigrationFixture fixture(session, kTable, column_spec("b", "bigint"));
  fixture.install_capture();
  for (int chunk = 0; chunk < 5; ++chunk) sweep_by_hand(fixture, chunk * 100, chunk * 100 + 100);
  sql("UPDATE t SET id = -2 WHERE id = 888");
  sweep_by_hand(fixture, 500, 1000);
  EXPECT_EQ(compare(fixture), 0);
}

// 9, 10: https://github.com/reorg/pg_repack/issues/23, https://github.com/juicedata/juicefs/issues/7521: what
// commits late has a lower number than what was seen.
TEST_F(CopyRaceCases, ARowThatCommitsAfterALaterOneIsMigrated) {
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  ApplicationSession early(dsn());
  early.run("BEGIN; INSERT INTO t VALUES (1001, 71); UPDATE t SET b = 72 WHERE id = 950");
  sql("INSERT INTO t VALUES (1002, 73)");
  quickly();
  let_go();
  // Row 950 is locked: the sweep sets it aside and comes back to it.
  wait_until_true("SELECT count(*) > 0 FROM crossfade.leftover WHERE key = '{950}'");
  early.run("COMMIT");
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(shadow_of("id = 1001"), "71");
  EXPECT_EQ(shadow_of("id = 1002"), "73");
  EXPECT_EQ(shadow_of("id = 950"), "72");
  EXPECT_EQ(stale(), "0");
  advance_to(Phase::switched);
}

// 14: https://github.com/shayonj/pg-osc/issues/94: a snapshot from before the wait for the writers.
TEST_F(CopyRaceCases, ARowOfAWriterThatWasThereBeforeTheTriggerIsMigrated) {
  make_table();
  start();
  advance_to(Phase::dry_run);
  ApplicationSession early(dsn());
  early.run("BEGIN; INSERT INTO t VALUES (2000, 7)");
  InBackground sweep([&] { sweep_all(); });
  wait_until_true("SELECT count(*) > 0 FROM crossfade.switch_attempt WHERE to_phase = 'backfill'");
  early.run("COMMIT");
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(shadow_of("id = 2000"), "7");
  EXPECT_EQ(stale(), "0");
}

LifecycleScenario not_null_scenario() {
  auto s = integer_scenario();
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL DEFAULT 3, n int NOT NULL DEFAULT 0);"
      "INSERT INTO t SELECT g, g, 0 FROM generate_series(0, 499) g";
  s.live.rows = 500;
  return s;
}

// 15: https://github.com/xataio/pgroll/issues/905: a helper column that is NOT NULL before its trigger is
// there.
TEST_F(CopyRaceCases, NoWriteFailsWhileTheCaptureComesAndGoes) {
  Lifecycle life(dsn(), not_null_scenario());
  life.start();
  for (int i = 0; i < 5; ++i) {
    life.advance_to(Phase::backfill);
    life.roll_back();
  }
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
  life.writers().stop();
}

// 16: https://github.com/xataio/pgroll/issues/906: the old column goes before its trigger.
TEST_F(CopyRaceCases, NoWriteFailsWhileTheSidesAreSwitchedAndOneIsDropped) {
  auto s = not_null_scenario();
  s.misfit.clear();
  Lifecycle life(dsn(), s);
  life.start();
  for (int i = 0; i < 3; ++i) {
    life.advance_to(Phase::switched);
    life.roll_back();
  }
  life.finish();
}

// 22: https://github.com/xataio/pgroll/pull/648: rows are appended faster than they are copied.
TEST_F(CopyRaceCases, TheSweepEndsAtTheRowsThatWereThereWhenItBegan) {
  make_table();
  start();
  advance_to(Phase::dry_run);
  stop_at("chunk.before");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  sql("INSERT INTO t SELECT g, g FROM generate_series(1001, 50000) g");
  let_go();
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.unit"), "1000");
  EXPECT_EQ(stale(), "0");
}

// 23: https://github.com/stackrox/stackrox/pull/21126: rows that are locked are passed and never met again.
TEST_F(CopyRaceCases, ARowThatWasLockedWhenTheSweepPassedIsMigratedAfterwards) {
  make_table();
  start();
  advance_to(Phase::dry_run);
  ApplicationSession holder(dsn());
  stop_at("chunk.before");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  holder.run("BEGIN; SELECT * FROM t WHERE id = 2 FOR UPDATE");
  let_go();
  wait_until_true("SELECT count(*) = 1 FROM crossfade.leftover WHERE key = '{2}'");
  EXPECT_EQ(shadow_of("id = 2"), "NULL");
  EXPECT_EQ(shadow_of("id = 3"), "3");
  holder.run("ROLLBACK");
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(shadow_of("id = 2"), "2");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.leftover"), "0");
}

// 24: https://github.com/GeiserX/Telegram-Archive/pull/368: a deleted row shifts every page after it.
TEST_F(CopyRaceCases, ADeleteBehindTheSweepSkipsNoRow) {
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  sql("DELETE FROM t WHERE id = 1");
  quickly();
  let_go();
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(stale(), "0");
}

// 25: https://github.com/github/gh-ost/issues/483: an error that is read as the end.
TEST_F(CopyRaceCases, AnErrorIsNeverTheEndOfTheSweep) {
  make_table(20000);
  start(spec("b", "bigint", "[tuning]\nworkers = 1\n"));
  advance_to(Phase::dry_run);
  failpoint::configure(
      "chunk.bounded=error:40P01@2;chunk.bounded=error:57014@4;chunk.bounded=error:08006@6;"
      "chunk.bounded=error:40001@8");
  advance_to(Phase::backfill);
  failpoint::configure("");
  EXPECT_EQ(stale(), "0");
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.unit"), "20000");

  roll_back_to(Phase::dry_run);
  failpoint::configure("chunk.bounded=error:08006");
  EXPECT_EQ(code_of([&] { sweep_all(); }), ErrorCode::connection_lost);
  failpoint::configure("");
  EXPECT_EQ(migrator().status("m").status, Status::running);
  EXPECT_FALSE(migrator().status("m").next.ready);
  EXPECT_EQ(stale(), "20000");
}

// 27: https://github.com/xataio/pgroll/pull/150: a chunk that locks rows as if it would change their key.
TEST_F(CopyRaceCases, AChunkDoesNotHoldUpInsertsOfRowsThatReferenceItsOwn) {
  auto session = SqlSession::connect({dsn(), "test", std::chrono::seconds(10)});
  MigrationFixture fixture(session, kTable, column_spec("b", "bigint"));
  fixture.install_capture();
  sql("CREATE TABLE child (id int REFERENCES t)");
  const auto m = fixture.migration();
  const auto pass = open_sweep_pass(session, m, fixture.table(), "backfill",
                                    greatest_key(session, fixture.table(), m.binding.key));
  const auto claimed =
      session.exec(claim_unit_sql(), {std::to_string(pass.id), m.row.id.text, m.row.token.text});
  for (const auto way : {ChunkWay::plain, ChunkWay::careful}) {
    session.begin();
    ChunkStep step;
    step.high = Key{{"1000"}};
    step.after = step.before.after(step.high);
    step.done = true;
    const ChunkOf of{m.row.id, m.row.token, m.row.phase, m.row.mark, pass.id, 1, *claimed[0][4]};
    const auto chunk = session.exec(chunk_sql(m, fixture.table(), {way, RangeBy::key, ChunkForm::Low::open}),
                                    chunk_params(of, step));
    EXPECT_EQ(chunk[0][4], "1000");
    EXPECT_NO_THROW(sql("SET lock_timeout = '200ms'; INSERT INTO child VALUES (1); RESET lock_timeout"));
    session.rollback();
  }
}

}  // namespace
}  // namespace crossfade::test

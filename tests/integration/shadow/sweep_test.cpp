// The sweep's windows on a real table, by exact figures: heap-only updates, growth, WAL; and that whatever
// happens between two visits, every row is right in the end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/sweep.hpp"
#include "crossfade/shadow/units.hpp"
#include "support/database_test.hpp"
#include "support/live_writers.hpp"
#include "support/migration_fixture.hpp"
#include "sweep_sql.hpp"
#include "unit_claim.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

class SweepTest : public DatabaseTest {
 protected:
  void TearDown() override { failpoint::configure(""); }

  // A table of `rows` with three more indexes than its key, captured; 60 rows to a page.
  void make_table(int rows, const std::string& order = "g") {
    fixture_.emplace(door_,
                     fmt::format("CREATE TABLE t (id int PRIMARY KEY, b int, n int, filler text)"
                                 " WITH (autovacuum_enabled = off);"
                                 "INSERT INTO t SELECT g, g % 1000, g % 7, repeat('x', 88)"
                                 " FROM generate_series(1, {}) g ORDER BY {};"
                                 "CREATE INDEX ON t (b); CREATE INDEX ON t (n); CREATE INDEX ON t (filler)",
                                 rows, order),
                     column_spec("b", "bigint"));
    fixture_->install_capture();
    sql("VACUUM ANALYZE t");
  }

  PassRow open(std::string_view kind = "backfill", SweepOrder order = SweepOrder::automatic) {
    const auto m = fixture_->migration();
    return open_sweep_pass(door_, m, fixture_->table(), kind,
                           greatest_key(door_, fixture_->table(), m.binding.key), order);
  }
  std::unique_ptr<Sweep> sweep(const PassRow& pass) {
    const auto m = fixture_->migration();
    return std::make_unique<Sweep>(
        m, fixture_->table(), m.row.token, pass,
        [this](const std::string&) {
          return SqlSession::connect({dsn(), "test", std::chrono::seconds(10)});
        },
        cache_);
  }
  static Tuning tuned(int interleave, int workers = 1) {
    Tuning tuning;
    tuning.interleave = interleave;
    tuning.workers = workers;
    return tuning;
  }
  SweepState run(Sweep& sweep, const Tuning& tuning, milliseconds slice) {
    return sweep.run(tuning, slice, stop_);
  }
  void run_to_the_end(const PassRow& pass, const Tuning& tuning) {
    const auto swept = sweep(pass);
    SweepState state = SweepState::working;
    while (state == SweepState::working) state = run(*swept, tuning, milliseconds(1000));
    ASSERT_EQ(state, SweepState::at_bounds);
    ASSERT_TRUE(end_sweep_pass(door_, pass.id));
  }
  std::string wrong_rows() {
    return value(fmt::format("SELECT count(*) FROM t WHERE {} IS DISTINCT FROM b",
                             quote_identifier(fixture_->migration().names.new_column)));
  }
  std::int64_t figure(const std::string& text) { return std::stoll(value(text)); }

  struct Cost {
    double hot_share, growth;
    std::int64_t wal;
  };
  Cost cost_of_a_sweep(const Tuning& tuning, SweepOrder order = SweepOrder::automatic) {
    const auto pass = open("backfill", order);
    super_sql("CHECKPOINT");
    const auto size = figure("SELECT pg_relation_size('t')");
    const auto wal = figure("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
    run_to_the_end(pass, tuning);
    EXPECT_EQ(wrong_rows(), "0");
    const auto totals = unit_totals(door_, pass.id);
    return {static_cast<double>(totals.rows_hot) / static_cast<double>(totals.rows_written),
            static_cast<double>(figure("SELECT pg_relation_size('t')") - size) / static_cast<double>(size),
            figure("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint") - wal};
  }
  std::string sweep_fact(const PassRow& pass, const std::string& key) {
    return value("SELECT sweep->>$2 FROM crossfade.pass WHERE id = $1::bigint",
                 {std::to_string(pass.id), key});
  }

  SqlSession door_ = SqlSession::connect({dsn(), "test", std::chrono::seconds(10)});
  std::optional<MigrationFixture> fixture_;
  CursorCache cache_{""};
  std::atomic<bool> stop_{false};
};

class SweepCostTest : public SweepTest {};

TEST_F(SweepCostTest, InterleavedUpdatesStayOnTheirPages) {
  make_table(60'000);
  const auto at_once = cost_of_a_sweep(tuned(1));
  EXPECT_LT(at_once.hot_share, 0.1);
  EXPECT_GT(at_once.growth, 0.9);
  // The same table, as it was.
  const auto column = quote_identifier(fixture_->migration().names.new_column);
  fixture_->write_unseen(fmt::format("UPDATE public.t SET {} = NULL", column));
  sql("UPDATE crossfade.pass SET state = 'void'");
  sql("VACUUM FULL t");
  sql("VACUUM ANALYZE t");
  const auto interleaved = cost_of_a_sweep(tuned(8, 2));
  EXPECT_GT(interleaved.hot_share, 0.6);
  EXPECT_LT(interleaved.growth, 0.3);
  EXPECT_LT(static_cast<double>(interleaved.wal), 0.75 * static_cast<double>(at_once.wal));
}

TEST_F(SweepCostTest, RandomKeysAreSweptInPhysicalOrderAndStayOnTheirPages) {
  make_table(40'000, "md5(g::text)");
  const auto cost = cost_of_a_sweep(tuned(0));
  EXPECT_GT(cost.hot_share, 0.6);
  EXPECT_LT(cost.growth, 0.3);
  const auto pass = newest_pass(door_, fixture_->migration().row.id, "backfill");
  EXPECT_EQ(sweep_fact(*pass, "order"), "physical");
  EXPECT_EQ(sweep_fact(*pass, "interleave"), "15");
  EXPECT_EQ(value("SELECT string_agg(DISTINCT range_by, '') FROM crossfade.unit"), "block");
  EXPECT_EQ(value("SELECT max(high[1]::bigint) >= 600 FROM crossfade.unit"), "t");
}

TEST_F(SweepTest, AReplayGoesByKeyInOneVisitAndWritesNothing) {
  make_table(20'000, "md5(g::text)");
  run_to_the_end(open("backfill", SweepOrder::physical), tuned(8));
  const auto replay = open("replay", SweepOrder::physical);
  run_to_the_end(replay, tuned(8));
  EXPECT_EQ(unit_totals(door_, replay.id).rows_written, 0);
  EXPECT_EQ(unit_totals(door_, replay.id).rows_read, 20'000);
  EXPECT_EQ(sweep_fact(replay, "order"), "key");
  EXPECT_EQ(sweep_fact(replay, "interleave"), "1");
}

// By blocks also a row that left its page for the free room of the last block, where it is read again.
TEST_F(SweepTest, EveryRowIsReadOnceInTheFiguresOfAnInterleavedSweep) {
  make_table(20'000);
  for (const auto order : {SweepOrder::key, SweepOrder::physical}) {
    SCOPED_TRACE(static_cast<int>(order));
    const auto column = quote_identifier(fixture_->migration().names.new_column);
    fixture_->write_unseen(fmt::format("UPDATE public.t SET {} = NULL", column));
    sql("UPDATE crossfade.pass SET state = 'void'");
    sql("VACUUM FULL t");
    const auto pass = open("backfill", order);
    run_to_the_end(pass, tuned(5, 2));
    const auto totals = unit_totals(door_, pass.id);
    EXPECT_GE(totals.rows_read, 20'000);
    EXPECT_LE(totals.rows_read, order == SweepOrder::key ? 20'000 : 20'000 + 70);
    EXPECT_EQ(totals.rows_written, 20'000);
    EXPECT_EQ(
        value("SELECT count(*) FROM crossfade.unit WHERE num_nonnulls(window_bounds, visits, visit, piece,"
              " within) > 0"),
        "0");
  }
}

// A snapshot from before the sweep keeps what the first visit leaves behind.
TEST_F(SweepTest, AnOldSnapshotTurnsWindowsOffAndIsNamed) {
  auto reader = session();
  make_table(20'000);
  reader.script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  sql("UPDATE crossfade.migration SET capture_xid = pg_current_xact_id()");
  const auto pass = open();
  run_to_the_end(pass, tuned(0));
  EXPECT_EQ(sweep_fact(pass, "interleave"), "1");
  EXPECT_EQ(sweep_fact(pass, "interleave_reason"),
            fmt::format("session {} keeps dead rows from being removed", reader.backend_pid()));
  EXPECT_EQ(unit_totals(door_, pass.id).chunks > 0, true);
  EXPECT_EQ(wrong_rows(), "0");
}

TEST_F(SweepTest, AnIndexOnTheNewColumnTurnsWindowsOff) {
  make_table(20'000);
  sql(fmt::format("CREATE INDEX ON t ((1)) WHERE {} > 0",
                  quote_identifier(fixture_->migration().names.new_column)));
  const auto pass = open();
  run_to_the_end(pass, tuned(0));
  EXPECT_EQ(sweep_fact(pass, "interleave_reason"),
            "an index has the new column, so no update can be heap-only");
}

// The lost answer: the same chunk once more.
TEST_F(SweepTest, AChunkThatIsSentTwiceWritesOnce) {
  make_table(2'000);
  const auto pass = open();
  const auto m = fixture_->migration();
  const auto claimed =
      door_.exec(claim_unit_sql(), {std::to_string(pass.id), m.row.id.text, m.row.token.text});
  const ChunkOf of{m.row.id, m.row.token, m.row.phase, m.row.mark, pass.id, 1, *claimed[0][4]};
  const auto opened = SweepPosition{}.with_window({Key{{"1000"}}, parse_key(*claimed[0][2])}, 4);
  EXPECT_FALSE(door_.exec(set_window_sql(), set_window_params(of, {}, opened)).empty());
  EXPECT_TRUE(door_.exec(set_window_sql(), set_window_params(of, {}, opened)).empty());
  ChunkStep step{opened, opened.after(Key{{"600"}}), std::nullopt, Key{{"600"}}, false};
  const auto send = [&] {
    return door_.exec(chunk_sql(m, fixture_->table(),
                                {ChunkWay::plain, RangeBy::key, ChunkForm::Low::open, ChunkForm::Share::one}),
                      chunk_params(of, step));
  };
  const auto first = send();
  EXPECT_EQ(first[0][1], "t");
  const auto written = int_of(first[0][4]);
  EXPECT_GT(written, 100);
  EXPECT_LT(written, 200);
  const auto second = send();
  EXPECT_EQ(second[0][0], "t");
  EXPECT_EQ(second[0][1], "f");
  EXPECT_EQ(second[0][4], "0");
  EXPECT_EQ(value("SELECT concat(visit, ' ', piece, ' ', within) FROM crossfade.unit"), "1 1 {600}");
  EXPECT_EQ(2000 - std::stoll(wrong_rows()), written);
}

TEST_F(SweepTest, ARewrittenTableVoidsTheBlocksOfAPhysicalSweep) {
  make_table(20'000);
  const auto pass = open("backfill", SweepOrder::physical);
  auto swept = sweep(pass);
  EXPECT_EQ(run(*swept, tuned(8), milliseconds(1)), SweepState::working);
  sql("DELETE FROM t WHERE id % 3 = 0");
  sql("VACUUM FULL t");
  const auto before = wrong_rows();
  EXPECT_EQ(run(*swept, tuned(8), milliseconds(5000)), SweepState::rewritten);
  EXPECT_EQ(wrong_rows(), before) << "not a row is written by blocks that count nothing";
  void_passes(door_, fixture_->migration().row.id, "backfill");
  const auto anew = open("backfill", SweepOrder::physical);
  EXPECT_NE(anew.id, pass.id);
  run_to_the_end(anew, tuned(8));
  EXPECT_EQ(wrong_rows(), "0");
}

// A trigger that fails on some rows is met in a window, whose pieces are not halved in every visit.
TEST_F(SweepTest, RowsThatATriggerRefusesAreRejectedInBothOrders) {
  make_table(6'000);
  sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
      " IF NEW.id % 2000 = 7 THEN RAISE data_exception; END IF; RETURN NEW; END$$;"
      "CREATE TRIGGER a_refuse BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse()");
  for (const auto order : {SweepOrder::key, SweepOrder::physical}) {
    SCOPED_TRACE(static_cast<int>(order));
    sql("DELETE FROM crossfade.reject");
    sql("UPDATE crossfade.pass SET state = 'void'");
    auto tuning = tuned(4);
    tuning.max_rejects = 10;
    run_to_the_end(open("backfill", order), tuning);
    EXPECT_EQ(value("SELECT string_agg(key[1], ' ' ORDER BY key[1]) FROM crossfade.reject"), "2007 4007 7");
    EXPECT_EQ(wrong_rows(), "3");
  }
}

// --- the model: whatever happens between two chunks, in any order, in any number of visits

class SweepModelTest : public SweepTest {
 protected:
  // As an application, to table and twin alike.
  void change_both(const std::string& statement) {
    sql("BEGIN; " + fmt::format(fmt::runtime(statement), fmt::arg("t", "t")) + "; " +
        fmt::format(fmt::runtime(statement), fmt::arg("t", "t_twin")) + "; COMMIT");
  }
  void something_happens(std::mt19937_64& random, int rows) {
    const auto number = [&](int below) {
      return static_cast<int>(random() % static_cast<std::uint64_t>(below));
    };
    const int id = 1 + number(rows);
    switch (number(8)) {
      case 0:
        return change_both(fmt::format("DELETE FROM {{t}} WHERE id BETWEEN {} AND {}", id, id + number(200)));
      case 1:  // keys move far, in both directions
        return change_both(
            fmt::format("UPDATE {{t}} SET id = -id, b = b + 1 WHERE id BETWEEN {0} AND {1} AND NOT EXISTS"
                        " (SELECT FROM {{t}} o WHERE o.id = -{{t}}.id)",
                        id, id + number(50)));
      case 2:
        return change_both(fmt::format("UPDATE {{t}} SET b = b + 1 WHERE id % 97 = {}", number(97)));
      case 3:  // the row moves, its value stays
        return change_both(
            fmt::format("UPDATE {{t}} SET filler = filler || 'y' WHERE id % 89 = {}", number(89)));
      case 4:
        return change_both(
            fmt::format("INSERT INTO {{t}} SELECT g, g, 0, 'new' FROM generate_series({0}, {1}) g"
                        " ON CONFLICT DO NOTHING",
                        id, id + number(300)));
      case 5:
        sql("VACUUM FULL t");
        return;
      case 6:
        sql("CLUSTER t USING t_pkey");
        return;
      default:
        sql("VACUUM t");
    }
  }
};

TEST_F(SweepModelTest, EveryRowIsRightInTheEnd) {
  constexpr int kRows = 8'000;
  const auto seed = test_seed();
  SCOPED_TRACE(fmt::format("CROSSFADE_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto number = [&](int below) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(below));
  };
  make_table(kRows, number(2) == 0 ? "g" : "md5(g::text)");
  sql("CREATE TABLE t_twin AS SELECT id, b, n, filler FROM t; ALTER TABLE t_twin ADD PRIMARY KEY (id)");
  for (int round = 0; round < 4; ++round) {
    const auto order = round % 2 == 0 ? SweepOrder::key : SweepOrder::physical;
    const auto column = quote_identifier(fixture_->migration().names.new_column);
    fixture_->write_unseen(fmt::format("UPDATE public.t SET {} = NULL", column));
    sql("UPDATE crossfade.pass SET state = 'void'");
    auto pass = open("backfill", order);
    auto swept = sweep(pass);
    int changes = 12;
    // A unit may still be held by a worker that died just now.
    for (SweepState state = SweepState::working;
         state != SweepState::at_bounds || !end_sweep_pass(door_, pass.id);) {
      if (changes > 0 && number(2) == 0) {
        --changes;
        something_happens(random, kRows);
      }
      if (number(4) == 0) {  // its worker dies between two chunks, and somebody else goes on
        swept.reset();
        swept = sweep(pass);
      }
      // A chunk or a few.
      failpoint::configure(number(3) == 0 ? fmt::format("chunk.after=error:08006@{}", 1 + number(3)) : "");
      state = run(*swept, tuned(1 + number(9), 1 + number(2)), milliseconds(changes > 0 ? 5 : 1000));
      if (state == SweepState::rewritten) {
        ASSERT_EQ(order, SweepOrder::physical);
        swept.reset();
        void_passes(door_, fixture_->migration().row.id, "backfill");
        pass = open("backfill", order);
        swept = sweep(pass);
      }
    }
    failpoint::configure("");
    ASSERT_EQ(wrong_rows(), "0") << "round " << round;
    ASSERT_EQ(value("SELECT count(*) FROM ((SELECT id, b, n, filler FROM t EXCEPT ALL TABLE t_twin) UNION ALL"
                    " (TABLE t_twin EXCEPT ALL SELECT id, b, n, filler FROM t)) d"),
              "0")
        << "round " << round;
  }
}

}  // namespace
}  // namespace crossfade::test

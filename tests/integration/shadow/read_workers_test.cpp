// A read pass by several workers: every row once, whoever dies where; and what a range asks of the server.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/profile.hpp"
#include "range_marks.hpp"
#include "support/database_test.hpp"
#include "support/migration_fixture.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

constexpr auto kForward = CompareDirection::forward;

class ReadWorkersTest : public DatabaseTest {
 protected:
  ~ReadWorkersTest() override { failpoint::configure(""); }

  MigrationFixture& prepare(const std::string& ddl, const ColumnSpec& column) {
    fixture_ = std::make_unique<MigrationFixture>(session_, ddl, column);
    fixture_->prepare_compare();
    return *fixture_;
  }
  MigrationFixture& integers(int rows) {
    return prepare(fmt::format("CREATE TABLE t(id int PRIMARY KEY, v int) WITH (autovacuum_enabled = off);"
                               "INSERT INTO t SELECT g, g FROM generate_series(1, {}) g",
                               rows),
                   column_spec("v", "bigint"));
  }
  void corrupt(const std::string& where) {
    fixture_->write_unseen(fmt::format("UPDATE public.t SET {} = -1 WHERE {}",
                                       quote_identifier(fixture_->migration().names.new_column), where));
  }
  Comparator comparator(std::int64_t rows) {
    return Comparator(fixture_->migration(), fixture_->table(), kForward, RangePace{rows, 0, rows});
  }
  ReadCrew crew(int workers) {
    ReadCrew crew;
    crew.workers = workers;
    crew.connect = [this](const std::string& role) {
      const std::scoped_lock lock(mutex_);
      roles_.push_back(role);
      return SqlSession::connect({dsn(), "crossfade/m/" + role});
    };
    return crew;
  }
  PassRow newest() { return newest_pass(session_, fixture_->migration().row.id, "compare").value(); }
  PassRow full_pass(Comparator& reader, int workers,
                    const std::function<void(std::int64_t)>& told = nullptr) {
    const auto pass = reader.open_pass(session_);
    const auto readers = crew(workers);
    while (!reader.run(session_, cache_, pass, milliseconds(1000), stop_, told, readers)) {
    }
    return newest();
  }
  PassRow full_pass(std::int64_t rows, int workers) {
    auto reader = comparator(rows);
    return full_pass(reader, workers);
  }
  std::vector<std::string> keys_of(const PassRow& pass) {
    std::vector<std::string> keys;
    const auto reader = comparator(1);
    for (const auto& row : reader.differences(session_, pass.id)) keys.push_back(row.key.parts[0]);
    return keys;
  }
  // Of the newest pass: its ranges in the order of the key begin where the one before ended.
  void expect_tiled() {
    EXPECT_EQ(value("SELECT bool_and(coalesce(low = before, place = 1)) FROM (SELECT low,"
                    " lag(high) OVER (ORDER BY low IS NOT NULL, (low[1])::int) AS before,"
                    " row_number() OVER (ORDER BY low IS NOT NULL, (low[1])::int) AS place"
                    " FROM crossfade.comparison WHERE pass_id = (SELECT max(id) FROM crossfade.pass)) r"),
              "t");
  }

  SqlSession session_ = SqlSession::connect({dsn(), "test"});
  CursorCache cache_{""};
  std::atomic<bool> stop_{false};
  std::unique_ptr<MigrationFixture> fixture_;
  std::mutex mutex_;
  std::vector<std::string> roles_;
};

TEST_F(ReadWorkersTest, EveryRowIsReadOnceByWhoeverReadsIt) {
  integers(30000);
  for (const int workers : {2, 5}) {
    SCOPED_TRACE(workers);
    const auto pass = full_pass(50, workers);
    EXPECT_EQ(pass.state, "ended");
    EXPECT_EQ(pass.rows_read, 30000);
    EXPECT_EQ(pass.differences, 0);
    expect_tiled();
  }
  EXPECT_EQ(roles_.size(), 1U + 4U)
      << "the caller is one of the workers, and sessions are kept between slices";
}

TEST_F(ReadWorkersTest, MoreWorkersThanRangesDoNoHarm) {
  for (const int rows : {0, 1, 3}) {
    SCOPED_TRACE(rows);
    if (fixture_) sql("DROP TABLE t CASCADE; DROP SCHEMA crossfade CASCADE");
    integers(rows);
    const auto pass = full_pass(1, 8);
    EXPECT_EQ(pass.state, "ended");
    EXPECT_EQ(pass.rows_read, rows);
    expect_tiled();
  }
}

TEST_F(ReadWorkersTest, DifferencesAtTheEdgesOfRangesAreEachReportedOnce) {
  integers(1000);
  corrupt("id IN (1, 99, 100, 101, 200, 201, 999, 1000)");
  auto reader = comparator(100);
  const auto pass = full_pass(reader, 3);
  EXPECT_EQ(pass.differences, 8);
  EXPECT_EQ(keys_of(pass), (std::vector<std::string>{"1", "99", "100", "101", "200", "201", "999", "1000"}));
  EXPECT_EQ(value("SELECT sum(differences) FROM crossfade.comparison"), "8");
  EXPECT_EQ(pass.rows_read, 1000);
}

TEST_F(ReadWorkersTest, ADifferenceIsCommittedBeforeItsReaderGoesOn) {
  integers(1000);
  corrupt("id % 5 = 0");
  std::string order;  // R: the helper reads a range with its keys, S: ranges are stored
  std::mutex mutex;
  const auto note = [&](const std::string& text, const std::string& what, char letter) {
    const std::scoped_lock lock(mutex);
    if (text.find(what) != std::string::npos) order += letter;
  };
  auto readers = crew(2);
  const auto connect = readers.connect;
  readers.connect = [&](const std::string& role) {
    auto session = connect(role);
    session.watch([&](const std::string& text) { note(text, "array_agg", 'R'); });
    return session;
  };
  session_.watch([&](const std::string& text) { note(text, "INSERT INTO crossfade.difference", 'S'); });
  auto reader = comparator(10);
  const auto pass = reader.open_pass(session_);
  while (!reader.run(session_, cache_, pass, milliseconds(1000), stop_, nullptr, readers)) {
  }
  session_.watch(nullptr);
  EXPECT_EQ(newest().differences, 200);
  EXPECT_NE(order.find('R'), std::string::npos);
  EXPECT_EQ(order.find("RR"), std::string::npos) << order;
}

// What a kill -9 leaves: any of the ranges, whatever the order in which they were committed.
TEST_F(ReadWorkersTest, WhatWasNotCommittedAndOnlyThatIsReadAgain) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  integers(3000);
  corrupt("id % 500 = 1");
  for (int round = 0; round < 12; ++round) {
    auto first = comparator(20);
    const auto pass = first.open_pass(session_);
    failpoint::configure(fmt::format("compare.range=error:42P01@{}", 12 + random() % 20));
    const auto readers = crew(2);
    try {
      while (!first.run(session_, cache_, pass, milliseconds(20), stop_, nullptr, readers)) {
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.sqlstate(), "42P01");
    }
    failpoint::configure("");
    if (newest().state == "ended") continue;
    sql(fmt::format("DELETE FROM crossfade.comparison WHERE pass_id = {} AND number % 3 = {}", pass.id,
                    random() % 3));
    sql(fmt::format("DELETE FROM crossfade.difference WHERE pass_id = {}", pass.id));
    const auto committed =
        std::stoll(value(fmt::format("SELECT coalesce(sum(rows_read), 0) FROM crossfade.comparison"
                                     " WHERE pass_id = {}",
                                     pass.id)));
    std::int64_t read = 0;
    auto second = comparator(20);
    EXPECT_EQ(full_pass(second, 2, [&](std::int64_t rows) { read += rows; }).id, pass.id);
    EXPECT_EQ(newest().state, "ended");
    EXPECT_EQ(read, 3000 - committed);
    EXPECT_EQ(newest().rows_read, 3000);
    EXPECT_EQ(newest().differences, 6);
    expect_tiled();
  }
}

TEST_F(ReadWorkersTest, KilledWhileTwoReadItGoesOnWithWhatIsLeft) {
  integers(3000);
  corrupt("id % 100 = 0");
  const auto m = fixture_->migration();
  Comparator doomed(m, fixture_->table(), kForward, RangePace{20, 0, 20});
  const auto pass = doomed.open_pass(session_);
  const auto child = fork();
  ASSERT_NE(child, -1);
  if (child == 0) {
    // Nothing of the parent's is used but what is in memory; each difference is committed while the other
    // reads.
    failpoint::configure("compare.flushed=abort@3");
    try {
      auto own = SqlSession::connect({dsn(), "crossfade/m/doomed"});
      const auto readers = crew(2);
      while (!doomed.run(own, cache_, pass, milliseconds(60000), stop_, nullptr, readers)) {
      }
    } catch (...) {
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  const auto committed = std::stoll(value("SELECT sum(rows_read) FROM crossfade.comparison"));
  EXPECT_GT(committed, 0);
  EXPECT_LT(committed, 3000);
  std::int64_t read = 0;
  auto second = comparator(20);
  EXPECT_EQ(full_pass(second, 2, [&](std::int64_t rows) { read += rows; }).id, pass.id);
  EXPECT_EQ(read, 3000 - committed);
  EXPECT_EQ(newest().rows_read, 3000);
  EXPECT_EQ(newest().differences, 30);
  EXPECT_EQ(keys_of(newest()).size(), 30U);
  expect_tiled();
}

TEST_F(ReadWorkersTest, AHelperWhoseSessionIsLostLosesNothingThatWasStored) {
  integers(2000);
  auto reader = comparator(10);
  const auto pass = reader.open_pass(session_);
  auto readers = crew(2);
  const auto connect = readers.connect;
  readers.connect = [&](const std::string& role) {
    auto session = connect(role);
    super_sql(fmt::format("SELECT pg_terminate_backend({})", session.backend_pid()));
    return session;
  };
  try {
    while (!reader.run(session_, cache_, pass, milliseconds(1000), stop_, nullptr, readers)) {
    }
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::connection_lost);
  }
  // The same reader goes on, with another session.
  const auto good = crew(2);
  while (!reader.run(session_, cache_, pass, milliseconds(1000), stop_, nullptr, good)) {
  }
  EXPECT_EQ(newest().rows_read, 2000);
  expect_tiled();
}

TEST_F(ReadWorkersTest, StopEndsAllOfThem) {
  integers(5000);
  auto reader = comparator(10);
  const auto pass = reader.open_pass(session_);
  const auto readers = crew(4);
  std::int64_t told = 0;
  reader.run(
      session_, cache_, pass, milliseconds(60000), stop_,
      [&](std::int64_t rows) {
        told += rows;
        if (told > 10) stop_ = true;
      },
      readers);
  // What they had in hand was read to its end, and is stored.
  EXPECT_EQ(std::stoll(value("SELECT sum(rows_read) FROM crossfade.comparison")), told);
  stop_ = false;
  EXPECT_EQ(full_pass(reader, 4).rows_read, 5000);
}

TEST_F(ReadWorkersTest, APassThatAnotherReaderTookIsNotWrittenToAnyMore) {
  integers(1000);
  auto one = comparator(10);
  const auto pass = one.open_pass(session_);
  const auto readers = crew(2);
  EXPECT_FALSE(one.run(session_, cache_, pass, milliseconds(0), stop_, nullptr, crew(1)));
  auto other = comparator(10);
  auto second_session = SqlSession::connect({dsn(), "test"});
  EXPECT_FALSE(
      other.run(second_session, cache_, other.open_pass(second_session), milliseconds(0), stop_, nullptr));
  try {
    one.run(session_, cache_, pass, milliseconds(1000), stop_, nullptr, readers);
    FAIL() << "two readers stored ranges of one pass";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::superseded);
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.comparison"), "2");
  EXPECT_EQ(full_pass(other, 2).rows_read, 1000);
}

TEST_F(ReadWorkersTest, ADryRunByTwoWorkersCountsEveryRow) {
  fixture_ = std::make_unique<MigrationFixture>(session_,
                                                "CREATE TABLE t(id int PRIMARY KEY, v text);"
                                                "INSERT INTO t SELECT g, CASE WHEN g % 100 = 0 THEN 'x' ELSE "
                                                "g::text END FROM generate_series(1, 5000) g",
                                                column_spec("v", "integer"));
  fixture_->set_phase(Phase::dry_run);
  Profiler profiler(fixture_->migration(), fixture_->table(), RangePace{20, 0, 20});
  const auto pass = profiler.open_pass(session_);
  const auto readers = crew(2);
  while (!profiler.run(session_, cache_, pass, milliseconds(1000), stop_, nullptr, readers)) {
  }
  const auto report = profiler.report(session_, pass.id);
  EXPECT_EQ(report.rows, 5000);
  EXPECT_EQ(report.errors, 50);
}

// --- what a range asks of the server
// --------------------------------------------------------------------------

class RangeStatementsTest : public ReadWorkersTest {
 protected:
  // What one pass sends that names the table.
  std::vector<std::string> statements(RangePace pace) {
    std::vector<std::string> sent;
    Comparator reader(fixture_->migration(), fixture_->table(), kForward, pace);
    const auto pass = reader.open_pass(session_);
    session_.watch([&](const std::string& text) {
      if (text.find("FROM ONLY " + fixture_->table().sql()) != std::string::npos) sent.push_back(text);
    });
    while (!reader.run(session_, cache_, pass, milliseconds(60000), stop_, nullptr)) {
    }
    session_.watch(nullptr);
    EXPECT_EQ(newest().state, "ended");
    return sent;
  }
  static std::size_t with(const std::vector<std::string>& sent, const std::string& what) {
    return static_cast<std::size_t>(
        std::ranges::count_if(sent, [&](const auto& text) { return text.find(what) != std::string::npos; }));
  }
  // Pages that the statement asks for.
  std::int64_t pages(const std::string& statement) {
    const auto plan = session_.exec("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement);
    std::string text;
    for (const auto& row : plan.rows) text += text_of(row[0]);
    const auto node = nlohmann::json::parse(text).at(0).at("Plan");
    return node.at("Shared Hit Blocks").get<std::int64_t>() +
           node.at("Shared Read Blocks").get<std::int64_t>();
  }
};

TEST_F(RangeStatementsTest, ACleanTableThatFitsIsOneStatementAndEachPageOnce) {
  integers(60000);
  sql("VACUUM ANALYZE t");
  const auto sent = statements(RangePace{});
  EXPECT_EQ(with(sent, "cf verdicts"), 1U);
  // Whether anything lies behind its greatest key, and the range.
  ASSERT_EQ(sent.size(), 2U);
  ASSERT_EQ(with({sent.back()}, "cf verdicts"), 1U);
  EXPECT_EQ(pages(sent.back()), std::stoll(value("SELECT pg_relation_size('t') / 8192")));
}

TEST_F(RangeStatementsTest, LargeRangesAreCutWithoutCountingTheirRows) {
  integers(200000);
  sql("VACUUM ANALYZE t");
  const auto sent = statements({50'000, 0, 50'000});
  const auto ranges = with(sent, "cf verdicts");
  EXPECT_GT(ranges, 1U);
  EXPECT_EQ(sent.size(), ranges + 2) << "one statement each, the marks, and what lies behind the table";
}

TEST_F(RangeStatementsTest, ARangeOfARandomKeyReadsEachPageOnce) {
  prepare(
      "CREATE TABLE t(id uuid PRIMARY KEY, v int) WITH (autovacuum_enabled = off);"
      "INSERT INTO t SELECT gen_random_uuid(), g FROM generate_series(1, 40000) g",
      column_spec("v", "bigint"));
  sql("VACUUM ANALYZE t");
  const auto table = std::stoll(value("SELECT pg_relation_size('t') / 8192"));
  const auto index = std::stoll(value("SELECT pg_relation_size('t_pkey') / 8192"));
  for (const auto& text : statements({20'000, 0, 20'000})) {
    if (text.find("cf verdicts") == std::string::npos) continue;
    EXPECT_LE(pages(text), table + index) << text;
  }
}

TEST_F(RangeStatementsTest, KeysAreAskedForOnlyWhereSomethingDiffers) {
  integers(1000);
  corrupt("id = 555");
  const auto sent = statements({100, 0, 100});
  EXPECT_EQ(with(sent, "array_agg"), 1U + 1U) << "the range, and the one after it, which begins so";
  EXPECT_EQ(newest().differences, 1);
  EXPECT_EQ(newest().rows_read, 1000);
}

// --- marks
// ----------------------------------------------------------------------------------------------------

class RangeMarksTest : public ReadWorkersTest {
 protected:
  RangeMarks marks(const KeyRange& range = {}) {
    const auto m = fixture_->migration();
    return range_marks(session_, m.row.table_oid, fixture_->table(), m.binding.key, range);
  }
  static double rows(const RangeMarks& known) {
    double sum = known.rows_after;
    for (const auto& mark : known.marks) sum += mark.rows;
    return sum;
  }
};

TEST_F(RangeMarksTest, OfATableThatWasNotAnalyzedThereAreNone) {
  integers(1000);
  EXPECT_TRUE(marks().marks.empty());
}

TEST_F(RangeMarksTest, TheyLieInTheRangeInTheOrderOfTheKeyAndStandForItsRows) {
  integers(50000);
  sql("ANALYZE t");
  const auto all = marks();
  EXPECT_GT(all.marks.size(), 50U);
  EXPECT_NEAR(rows(all), 50000, 2000);
  const auto some = marks({Key{{"10000"}}, Key{{"20000"}}});
  EXPECT_NEAR(rows(some), 10000, 1500);
  int before = 10000;
  for (const auto& mark : some.marks) {
    const int at = std::stoi(mark.key.parts[0]);
    EXPECT_GT(at, before);
    EXPECT_LE(at, 20000);
    before = at;
  }
}

TEST_F(RangeMarksTest, AWholeKeyIsFoundForAValueOfItsFirstColumn) {
  prepare(
      "CREATE TABLE t(k text COLLATE \"C\", n int, v int, PRIMARY KEY (k, n));"
      "INSERT INTO t SELECT md5(g::text), g, g FROM generate_series(1, 30000) g; ANALYZE t",
      column_spec("v", "bigint"));
  const auto all = marks();
  EXPECT_GT(all.marks.size(), 50U);
  for (const auto& mark : all.marks) {
    ASSERT_EQ(mark.key.parts.size(), 2U);
    EXPECT_EQ(
        value("SELECT count(*) FROM t WHERE k = $1 AND n = $2::int", {mark.key.parts[0], mark.key.parts[1]}),
        "1");
  }
  EXPECT_EQ(full_pass(25'000, 2).rows_read, 30000);
}

TEST_F(RangeMarksTest, ThoseOfThePartitionsAreMixed) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int) PARTITION BY HASH (id);"
      "CREATE TABLE t_0 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 0);"
      "CREATE TABLE t_1 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 1);"
      "CREATE TABLE t_2 PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER 2);"
      "INSERT INTO t SELECT g, g FROM generate_series(1, 60000) g; ANALYZE t_0, t_1, t_2",
      column_spec("v", "bigint"));
  const auto all = marks();
  EXPECT_GT(all.marks.size(), 30U);
  EXPECT_NEAR(rows(all), 60000, 6000);
  int before = 0;
  for (const auto& mark : all.marks) {
    EXPECT_GT(std::stoi(mark.key.parts[0]), before);
    before = std::stoi(mark.key.parts[0]);
  }
  EXPECT_EQ(full_pass(20'000, 2).rows_read, 60000);
  expect_tiled();
}

// They are hints: of what they say nothing has to be true.
TEST_F(RangeMarksTest, OldStatisticsCostOnlyTheSizeOfTheRanges) {
  integers(60000);
  sql("ANALYZE t");
  sql("DELETE FROM t WHERE id BETWEEN 20000 AND 50000");
  sql("INSERT INTO t SELECT g, g FROM generate_series(-40000, 0) g");
  sql("INSERT INTO t SELECT g, g FROM generate_series(60001, 90000) g");
  const auto rows = std::stoll(value("SELECT count(*) FROM t"));
  for (const int workers : {1, 2}) {
    EXPECT_EQ(full_pass(25'000, workers).rows_read, rows);
    expect_tiled();
  }
}

}  // namespace
}  // namespace crossfade::test

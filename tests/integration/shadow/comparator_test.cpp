#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/rejects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "crossfade/core/failpoint.hpp"
#include "support/database_test.hpp"
#include "support/migration_fixture.hpp"
#include "support/redis_server.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

constexpr auto kForward = CompareDirection::forward;
constexpr auto kBackward = CompareDirection::backward;

class ComparatorTest : public DatabaseTest {
 protected:
  ~ComparatorTest() override { failpoint::configure(""); }

  // A migration in phase compare, everything in step.
  MigrationFixture& prepare(const std::string& ddl, const ColumnSpec& column) {
    fixture_ = std::make_unique<MigrationFixture>(session_, ddl, column);
    fixture_->prepare_compare();
    return *fixture_;
  }

  MigrationFixture& integers(int rows) {
    return prepare(fmt::format("CREATE TABLE t(id int PRIMARY KEY, v int);"
                               "INSERT INTO t SELECT g, g FROM generate_series(1, {}) g",
                               rows),
                   column_spec("v", "bigint"));
  }

  Comparator comparator(CompareDirection direction = kForward, std::int64_t rows = 5000) {
    return Comparator(fixture_->migration(), fixture_->table(), direction, RangePace{rows, 0, rows});
  }

  // One slice; a slice of zero reads one range.
  bool slice(Comparator& reader, const PassRow& pass, milliseconds length,
             const std::function<void(std::int64_t)>& progress = nullptr) {
    return reader.run(session_, cache_, pass, length, stop_, progress);
  }

  PassRow newest(CompareDirection direction = kForward) {
    return newest_pass(session_, fixture_->migration().row.id, "compare",
                       direction == kForward ? "forward" : "backward")
        .value();
  }

  PassRow full_pass(CompareDirection direction = kForward, std::int64_t rows = 5000,
                    const std::function<void(std::int64_t)>& progress = nullptr) {
    auto reader = comparator(direction, rows);
    const auto pass = reader.open_pass(session_);
    while (!slice(reader, pass, milliseconds(100), progress)) {
    }
    return newest(direction);
  }

  std::vector<DifferenceRow> differences(const PassRow& pass, CompareDirection direction = kForward) {
    return comparator(direction).differences(session_, pass.id);
  }

  // The column that is written beside the public one, quoted.
  std::string other_column() {
    const auto m = fixture_->migration();
    return quote_identifier(new_column_is_public(m.row.phase) ? m.names.old_column : m.names.new_column);
  }

  // Writes a value past the capture.
  void corrupt(const std::string& value, const std::string& where) {
    fixture_->write_unseen(fmt::format("UPDATE public.t SET {} = {} WHERE {}", other_column(), value, where));
  }

  void expect_clean(std::int64_t rows, std::int64_t range_rows = 5000) {
    const auto pass = full_pass(kForward, range_rows);
    EXPECT_EQ(pass.state, "ended");
    EXPECT_EQ(pass.rows_read, rows);
    EXPECT_EQ(pass.differences, 0);
    EXPECT_EQ(pass.excepted, 0);
  }

  // One difference; returns it.
  DifferenceRow expect_one(CompareDirection direction = kForward) {
    const auto pass = full_pass(direction);
    EXPECT_EQ(pass.differences, 1);
    const auto found = differences(pass, direction);
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? DifferenceRow{} : found.front();
  }

  SqlSession session_ = SqlSession::connect({dsn(), "test"});
  CursorCache cache_{""};
  std::atomic<bool> stop_{false};
  std::unique_ptr<MigrationFixture> fixture_;
};

TEST_F(ComparatorTest, SidesInStepAreClean) {
  integers(12000);
  expect_clean(12000);
  EXPECT_NE(newest().fingerprint, "");
  EXPECT_GE(newest().age_seconds, 0);
}

TEST_F(ComparatorTest, NullAgainstAValueIsADifferenceBothWays) {
  integers(10);
  sql("UPDATE t SET v = NULL WHERE id = 4");
  expect_clean(10);
  corrupt("NULL", "id = 3");
  corrupt("4", "id = 4");
  const auto found = differences(full_pass());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].key.parts, std::vector<std::string>{"3"});
  EXPECT_EQ(found[0].new_hash, "NULL");
  EXPECT_EQ(found[0].sqlstate, "");
  EXPECT_EQ(found[1].old_hash, "NULL");
}

TEST_F(ComparatorTest, NullAgainstEmptyTextIsADifference) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, NULL), (2, '')",
          column_spec("v", "character varying"));
  expect_clean(2);
  corrupt("''", "id = 1");
  corrupt("NULL", "id = 2");
  const auto found = differences(full_pass());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].old_hash, "NULL");
  EXPECT_EQ(found[0].new_hash, value("SELECT md5('')"));
  EXPECT_EQ(found[1].new_hash, "NULL");
}

TEST_F(ComparatorTest, ANumericScaleIsPartOfTheValue) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v numeric); INSERT INTO t VALUES (1, 1.5), (2, 7)",
          column_spec("v", "numeric", "round(v, 2)", "v"));
  expect_clean(2);
  corrupt("1.5", "id = 1");
  EXPECT_EQ(expect_one().key.parts, std::vector<std::string>{"1"});
}

TEST_F(ComparatorTest, ARealIsComparedWithItsOwnTransformNotWithItsText) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v real); INSERT INTO t VALUES (1, 0.1), (2, 'NaN'), (3, '-0')",
          column_spec("v", "double precision"));
  expect_clean(3);
  corrupt("0", "id = 3");
  EXPECT_EQ(expect_one().key.parts, std::vector<std::string>{"3"});
}

TEST_F(ComparatorTest, ARoleThatPrintsFewDigitsChangesNothing) {
  super_sql(fmt::format("ALTER DATABASE {} SET extra_float_digits = 0", quote_identifier(database().name())));
  session_ = SqlSession::connect({dsn(), "test"});
  prepare(
      "CREATE TABLE t(id float8 PRIMARY KEY, v float8);"
      "INSERT INTO t SELECT 0.1 + g / 3.0, 0.1::float8 + 0.2 FROM generate_series(1, 50) g",
      column_spec("v", "float8", "v", "v"));
  expect_clean(50, 1);
}

TEST_F(ComparatorTest, TypesWithoutEqualityAreCompared) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v json); INSERT INTO t VALUES (1, '[1, 2]'), (2, NULL), (3, "
      "'{\"a\":1}')",
      column_spec("v", "jsonb", "v::jsonb", "v::json"));
  expect_clean(3);
  corrupt("'[1]'", "id = 1");
  EXPECT_EQ(expect_one().key.parts, std::vector<std::string>{"1"});
}

TEST_F(ComparatorTest, PointsAreComparedExactly) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v point); INSERT INTO t VALUES (1, '(1,2)'), (2, '(0,0)')",
          column_spec("v", "point", "v", "v"));
  expect_clean(2);
  corrupt("'(1,2.0000000001)'", "id = 1");  // within the fuzz of the type's own comparison
  EXPECT_EQ(expect_one().key.parts, std::vector<std::string>{"1"});
}

TEST_F(ComparatorTest, HugeValuesAreHashedInTheServer) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t SELECT g, repeat('x', 30000000) FROM"
      " generate_series(1, 2) g",
      column_spec("v", "character varying"));
  expect_clean(2);
  corrupt("repeat('x', 29999999) || 'y'", "id = 2");
  EXPECT_EQ(expect_one().key.parts, std::vector<std::string>{"2"});
}

TEST_F(ComparatorTest, KeysInTheOrderOfTheirOwnCollationAreAllRead) {
  prepare(
      "CREATE TABLE t(k text COLLATE \"en-x-icu\" PRIMARY KEY, v int);"
      "INSERT INTO t SELECT k, 1 FROM unnest('{a_z,ab,B,a,Z,_x,A,b,aB,Ab,-,z z}'::text[]) k",
      column_spec("v", "bigint"));
  expect_clean(12, 1);
  corrupt("2", "true");
  EXPECT_EQ(full_pass(kForward, 1).differences, 12);
}

TEST_F(ComparatorTest, HostileTextKeysTravelUnharmed) {
  prepare(
      "CREATE TABLE t(k text PRIMARY KEY, v int);"
      "INSERT INTO t SELECT k, 1 FROM unnest(ARRAY['O''Brien', 'a\"b', '\\x', '', U&'\\+01F600', repeat('k', "
      "2000),"
      " '{', '},{', 'NULL', ',', ' ', '$1', E'a\\nb', '\\\\', '{\"x\"}', ''';DROP TABLE t;--']) k",
      column_spec("v", "bigint"));
  expect_clean(16, 1);
  corrupt("2", "true");
  const auto pass = full_pass(kForward, 1);
  EXPECT_EQ(pass.differences, 16);
  auto reader = comparator();
  for (const auto& row : reader.differences(session_, pass.id)) {
    EXPECT_EQ(reader.values(session_, row.key)->second, "2");
  }
  EXPECT_EQ(reader.repair(session_, pass.id), 16);
  expect_clean(16, 1);
}

TEST_F(ComparatorTest, CompositeKeysInIndexOrderAreAllRead) {
  prepare(
      "CREATE TABLE t(a int, b text, v int, PRIMARY KEY (b, a));"
      "INSERT INTO t SELECT g % 7, chr(97 + g % 5) || (g / 35), g FROM generate_series(0, 349) g",
      column_spec("v", "bigint"));
  expect_clean(350, 1);
  corrupt("-1", "a = 3 AND b = 'b2'");
  EXPECT_EQ(expect_one().key.parts, (std::vector<std::string>{"b2", "3"}));
}

TEST_F(ComparatorTest, DateKeysSurviveARoleThatWritesDayFirst) {
  super_sql(fmt::format("ALTER DATABASE {} SET DateStyle = 'SQL, DMY'", quote_identifier(database().name())));
  session_ = SqlSession::connect({dsn(), "test"});
  prepare(
      "CREATE TABLE t(d date, at timestamptz, f float8, v int, PRIMARY KEY (d, at, f));"
      "INSERT INTO t SELECT date '2024-01-01' + g, 'infinity', 'NaN', g FROM generate_series(0, 60) g;"
      "INSERT INTO t VALUES (date '2024-01-02', timestamptz '2024-02-01 00:00:00.000001+00', 1e-300, 5),"
      " (date 'infinity', '-infinity', '-Infinity', 6)",
      column_spec("v", "bigint"));
  expect_clean(63, 1);
  corrupt("99", "d = date '2024-02-01'");
  EXPECT_EQ(expect_one().key.parts, (std::vector<std::string>{"2024-02-01", "infinity", "NaN"}));
}

TEST_F(ComparatorTest, NegativeAndZeroKeysAreRead) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t VALUES (-5, 1), (0, 2), (3, 3), "
      "(-2147483648, 4)",
      column_spec("v", "bigint"));
  expect_clean(4, 1);
  corrupt("0", "id = -2147483648");
  EXPECT_EQ(expect_one().key.parts, std::vector<std::string>{"-2147483648"});
}

TEST_F(ComparatorTest, AnEmptyTableIsClean) {
  integers(0);
  expect_clean(0);
}

TEST_F(ComparatorTest, RowsDeletedDuringThePassEndIt) {
  integers(100);
  const auto pass = full_pass(kForward, 10, [&](std::int64_t) { sql("DELETE FROM t"); });
  EXPECT_EQ(pass.state, "ended");
  EXPECT_EQ(pass.rows_read, 10);
}

TEST_F(ComparatorTest, ATailThatGrowsFasterThanThePassEnds) {
  integers(100);
  int next = 1000, ranges = 0;
  const auto pass = full_pass(kForward, 10, [&](std::int64_t rows) {
    if (++ranges > 20) throw std::runtime_error("the pass does not end");
    sql(fmt::format("INSERT INTO t SELECT g, g FROM generate_series({}, {}) g", next, next + 4 * rows));
    next += static_cast<int>(4 * rows) + 1;
  });
  EXPECT_EQ(pass.state, "ended");
  EXPECT_EQ(pass.differences, 0);
  EXPECT_GE(pass.rows_read, 100);
}

TEST_F(ComparatorTest, AStoppedPassGoesOnAfterItsLastCommittedRange) {
  integers(1000);
  auto first = comparator(kForward, 100);
  const auto pass = first.open_pass(session_);
  EXPECT_FALSE(slice(first, pass, milliseconds(0)));
  const auto committed = value("SELECT sum(rows_read) FROM crossfade.comparison");
  EXPECT_EQ(committed, "100");
  // Dies with read ranges that were never committed.
  failpoint::configure("compare.range=error:42P01@2");
  EXPECT_THROW(slice(first, pass, milliseconds(60000)), Error);
  failpoint::configure("");
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.comparison"), committed);

  auto second = comparator(kForward, 100);
  EXPECT_EQ(second.open_pass(session_).id, pass.id);
  std::int64_t read = 0;
  while (!slice(second, pass, milliseconds(1000), [&](std::int64_t rows) { read += rows; })) {
  }
  EXPECT_EQ(read, 900);
  EXPECT_EQ(newest().rows_read, 1000);
  EXPECT_EQ(newest().differences, 0);
}

TEST_F(ComparatorTest, DeathBetweenTheLastRangeAndTheEndOfThePassIsMadeUp) {
  integers(10);
  auto reader = comparator();
  const auto pass = reader.open_pass(session_);
  failpoint::configure("compare.flushed=error:42P01");
  EXPECT_THROW(slice(reader, pass, milliseconds(0)), Error);
  failpoint::configure("");
  EXPECT_EQ(newest().state, "running");
  EXPECT_TRUE(slice(reader, pass, milliseconds(0)));
  EXPECT_EQ(newest().rows_read, 10);
}

TEST_F(ComparatorTest, StopIsObeyedBetweenRanges) {
  integers(1000);
  auto reader = comparator(kForward, 10);
  const auto pass = reader.open_pass(session_);
  EXPECT_FALSE(slice(reader, pass, milliseconds(60000), [&](std::int64_t) { stop_ = true; }));
  EXPECT_EQ(value("SELECT sum(rows_read) FROM crossfade.comparison"), "10");
}

TEST_F(ComparatorTest, AGapBetweenRangesVoidsThePass) {
  integers(1000);
  auto reader = comparator(kForward, 10);
  const auto pass = reader.open_pass(session_);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(slice(reader, pass, milliseconds(0)));
  sql("DELETE FROM crossfade.comparison WHERE number = 2");
  try {
    while (!slice(reader, pass, milliseconds(1000))) {
    }
    FAIL() << "the gap was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::internal_error);
  }
  EXPECT_EQ(newest().state, "void");
  expect_clean(1000);
}

TEST_F(ComparatorTest, AVoidedPassIsNotContinued) {
  integers(100);
  auto reader = comparator(kForward, 10);
  const auto pass = reader.open_pass(session_);
  EXPECT_FALSE(slice(reader, pass, milliseconds(0)));
  void_passes(session_, fixture_->migration().row.id, "compare");
  try {
    slice(reader, pass, milliseconds(0));
    FAIL() << "a void pass was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::superseded);
  }
  EXPECT_NE(reader.open_pass(session_).id, pass.id);
}

TEST_F(ComparatorTest, TwoReadersOfOnePassDoNotCountTwice) {
  integers(1000);
  auto one = comparator(kForward, 10), other = comparator(kForward, 10);
  const auto pass = one.open_pass(session_);
  auto second_session = SqlSession::connect({dsn(), "test"});
  const auto overtake = [&](std::int64_t) {
    other.run(second_session, cache_, pass, milliseconds(0), stop_, nullptr);
  };
  try {
    one.run(session_, cache_, pass, milliseconds(0), stop_, overtake);
    FAIL() << "a range was stored twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::superseded);
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.comparison"), "1");
}

TEST_F(ComparatorTest, ABlockedRangeIsHalvedAndInTheEndReported) {
  integers(100);
  auto reader = comparator(kForward, 4);
  const auto pass = reader.open_pass(session_);
  session_.set_lock_timeout(milliseconds(20));
  auto blocker = SqlSession::connect({dsn(), "test"});
  {
    Transaction lock(blocker);
    blocker.exec("LOCK TABLE public.t IN ACCESS EXCLUSIVE MODE");
    try {
      slice(reader, pass, milliseconds(0));
      FAIL() << "a locked table was read";
    } catch (const Error& error) {
      EXPECT_TRUE(error.is_lock_not_available());
    }
  }
  while (!slice(reader, pass, milliseconds(1000))) {
  }
  EXPECT_EQ(newest().rows_read, 100);
  EXPECT_EQ(value("SELECT rows_read FROM crossfade.comparison WHERE number = 1"), "1");
}

TEST_F(ComparatorTest, ARangeThatTakesTooLongIsReadInSmallerOnes) {
  // A tenth of a second per row: only ranges of fewer than fifty rows fit into the time of a statement.
  super_sql(
      "CREATE FUNCTION public.slow(int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS"
      " 'BEGIN IF current_setting(''test.slow'', true) = ''on'' THEN PERFORM pg_sleep(0.1); END IF;"
      " RETURN $1; END'");
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 120) g",
      column_spec("v", "bigint", "public.slow(v)"));
  session_.exec("SET test.slow = 'on'");
  auto reader = comparator(kForward, 60);
  const auto pass = reader.open_pass(session_);
  EXPECT_FALSE(slice(reader, pass, milliseconds(0)));
  EXPECT_EQ(value("SELECT rows_read FROM crossfade.comparison WHERE number = 1"), "30");
}

TEST_F(ComparatorTest, EveryRowDifferentIsCountedInFullAndStoredUpToTheLimit) {
  integers(12000);
  corrupt("-1", "true");
  const auto pass = full_pass();
  EXPECT_EQ(pass.rows_read, 12000);
  EXPECT_EQ(pass.differences, 12000);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.difference"), "10000");
}

TEST_F(ComparatorTest, LiveWritesMakeNoDifference) {
  integers(2000);
  std::jthread writer([&](const std::stop_token& done) {
    auto own = session();
    for (int n = 0; !done.stop_requested(); ++n) {
      own.exec(fmt::format("UPDATE t SET v = v + 1 WHERE id = {}", 1 + n * 7 % 2000));
      own.exec(fmt::format("UPDATE t SET id = -id WHERE id = {}", 1 + n * 11 % 2000));
    }
  });
  for (int n = 0; n < 3; ++n) EXPECT_EQ(full_pass(kForward, 50).differences, 0);
}

TEST_F(ComparatorTest, CorruptionAtAnyMomentIsFoundByTheNextFullPass) {
  const auto seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  fmt::print("seed {}\n", seed);
  std::mt19937 random(seed);
  constexpr int kRows = 400;
  integers(kRows);
  for (int round = 0; round < 25; ++round) {
    std::set<std::string> planted;
    const auto plant = [&] {
      const auto id = std::to_string(random() % kRows + 1);
      corrupt(fmt::format("-{}", random() % 1000 + 1), "id = " + id);
      planted.insert(id);
    };
    const auto first = full_pass(kForward, 8, [&](std::int64_t) {
      if (random() % 3 == 0) plant();
    });
    if (planted.empty()) plant();
    for (const auto& row : differences(first))
      EXPECT_TRUE(planted.contains(row.key.parts[0])) << "seed " << seed;
    const auto second = full_pass();
    std::set<std::string> found;
    for (const auto& row : differences(second)) found.insert(row.key.parts[0]);
    ASSERT_EQ(found, planted) << "seed " << seed;
    EXPECT_EQ(second.differences, static_cast<std::int64_t>(planted.size()));
    EXPECT_EQ(comparator().repair(session_, second.id), second.differences);
    expect_clean(kRows);
  }
}

TEST_F(ComparatorTest, AFailingRowIsExceptedOnlyWithAnOpenReject) {
  auto& fixture = prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '10'), (2, 'x'), (3, '30')",
      column_spec("v", "integer"));
  const auto found = expect_one();
  EXPECT_EQ(found.key.parts, std::vector<std::string>{"2"});
  EXPECT_EQ(found.sqlstate, "22P02");

  const auto id = fixture.migration().row.id.text;
  sql("INSERT INTO crossfade.reject (migration_id, key, sqlstate, message) VALUES ($1, '{2}', '22P02', 'x')",
      {id});
  auto pass = full_pass();
  EXPECT_EQ(pass.differences, 0);
  EXPECT_EQ(pass.excepted, 1);

  // What the capture would never leave is no exception; the repair takes it away.
  corrupt("7", "id = 2");
  EXPECT_EQ(expect_one().sqlstate, "22P02");
  EXPECT_EQ(comparator().repair(session_, newest().id), 1);
  pass = full_pass();
  EXPECT_EQ(pass.differences, 0);
  EXPECT_EQ(pass.excepted, 1);

  sql("UPDATE crossfade.reject SET state = 'closed'");
  EXPECT_EQ(full_pass().differences, 1);
}

TEST_F(ComparatorTest, NullForANotNullColumnIsADifference) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text NOT NULL); INSERT INTO t VALUES (1, 'a'), (2, '')",
          column_spec("v", "text", "nullif(v, '')", "coalesce(v, '')"));
  const auto found = expect_one();
  EXPECT_EQ(found.key.parts, std::vector<std::string>{"2"});
  EXPECT_EQ(found.sqlstate, "23502");
}

TEST_F(ComparatorTest, ARepairIsNotVerifiedBeforeANewPass) {
  integers(100);
  corrupt("-1", "id IN (10, 20)");
  const auto pass = full_pass();
  EXPECT_EQ(pass.differences, 2);
  auto reader = comparator();
  EXPECT_EQ(reader.repair(session_, pass.id), 2);
  EXPECT_EQ(newest().repairs, 2);
  EXPECT_EQ(newest().differences, 2);
  for (const auto& row : reader.differences(session_, pass.id)) EXPECT_NE(row.repaired_at, "");
  EXPECT_EQ(reader.repair(session_, pass.id), 0);
  EXPECT_EQ(newest().repairs, 2);
  expect_clean(100);
  EXPECT_EQ(newest().repairs, 0);
}

TEST_F(ComparatorTest, AnIneffectiveRepairIsSeenByTheNextPass) {
  integers(20);
  corrupt("-1", "id = 10");
  sql(fmt::format(
      "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.{} := -1; RETURN NEW; END$$;"
      "CREATE TRIGGER \"~~~~~~~~~~~~~~~~~~~~\" BEFORE UPDATE ON t FOR EACH ROW WHEN (NEW.id = 10)"
      " EXECUTE FUNCTION undo()",
      other_column()));
  EXPECT_EQ(comparator().repair(session_, full_pass().id), 1);
  EXPECT_EQ(full_pass().differences, 1);
}

TEST_F(ComparatorTest, ALockedRowStaysUnrepaired) {
  integers(20);
  corrupt("-1", "id IN (5, 6)");
  const auto pass = full_pass();
  auto application = session();
  Transaction open(application);
  application.exec("UPDATE t SET id = id WHERE id = 5");
  EXPECT_EQ(comparator().repair(session_, pass.id), 1);
  const auto rows = differences(pass);
  EXPECT_EQ(rows[0].repaired_at, "");
  EXPECT_NE(rows[1].repaired_at, "");
  EXPECT_EQ(session_.exec("SHOW lock_timeout").rows[0][0], "0");
  EXPECT_EQ(session_.exec("SHOW statement_timeout").rows[0][0], "0");
}

TEST_F(ComparatorTest, ARepairWaitsForNoOneAndTakesTheNewestValue) {
  integers(20);
  corrupt("-1", "id = 5");
  const auto pass = full_pass();
  sql("UPDATE t SET v = 500 WHERE id = 5");  // the capture heals the row
  EXPECT_EQ(comparator().repair(session_, pass.id), 0);
  EXPECT_EQ(newest().repairs, 0);
}

TEST_F(ComparatorTest, BackwardsEitherExpressionMakesARowFine) {
  auto& fixture = prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 50) g",
      column_spec("v", "text", "v::text", "v::integer"));
  fixture.switch_over();
  sql("UPDATE t SET v = '007' WHERE id = 7");  // forward(7) is '7': only backward holds
  auto pass = full_pass(kBackward);
  EXPECT_EQ(pass.differences, 0);
  EXPECT_EQ(pass.rows_read, 50);

  corrupt("8", "id = 7");
  EXPECT_EQ(expect_one(kBackward).key.parts, std::vector<std::string>{"7"});
  // Seen by the capture, the repair would have rewritten the new value.
  EXPECT_EQ(comparator(kBackward).repair(session_, newest(kBackward).id), 1);
  EXPECT_EQ(value("SELECT v FROM t WHERE id = 7"), "007");
  EXPECT_EQ(full_pass(kBackward).differences, 0);

  fixture.write_unseen("UPDATE public.t SET v = 'eight' WHERE id = 8");
  const auto found = expect_one(kBackward);
  EXPECT_EQ(found.key.parts, std::vector<std::string>{"8"});
  EXPECT_EQ(found.sqlstate, "22P02");
  // There is no old value: NULL, as the capture would have left it, and a note that makes it a misfit.
  EXPECT_EQ(comparator(kBackward).repair(session_, newest(kBackward).id), 1);
  resolve_misfits(session_, fixture.migration(), fixture.table());
  EXPECT_EQ(value("SELECT sqlstate FROM crossfade.misfit WHERE state = 'open' AND key = '{8}'"), "22P02");
  EXPECT_EQ(full_pass(kBackward).excepted, 1);
  EXPECT_EQ(newest(kBackward).differences, 0);
  EXPECT_EQ(value("SELECT v FROM t WHERE id = 8"), "eight");
}

TEST_F(ComparatorTest, BackwardsARecordedMisfitIsExceptedAndNeverOverwritten) {
  auto& fixture = integers(20);
  fixture.switch_over();
  sql("UPDATE t SET v = 3000000000 WHERE id = 7");  // the capture notes it
  auto pass = full_pass(kBackward);
  EXPECT_EQ(pass.differences, 0);
  EXPECT_EQ(pass.excepted, 1);

  sql("INSERT INTO crossfade.misfit (migration_id, key, direction, sqlstate, message)"
      " VALUES ($1, '{7}', 'backward', '22003', 'x'), ($1, '{9}', 'backward', '22003', 'x')",
      {fixture.migration().row.id.text});
  sql("DELETE FROM crossfade.reject_note");
  EXPECT_EQ(full_pass(kBackward).excepted, 1);
  EXPECT_EQ(newest(kBackward).differences, 0);

  // A record excuses NULL, not a value; and a repair leaves the row of a misfit alone.
  corrupt("1", "id IN (7, 9)");
  pass = full_pass(kBackward);
  EXPECT_EQ(pass.differences, 2);
  EXPECT_EQ(comparator(kBackward).repair(session_, pass.id), 0);
}

TEST_F(ComparatorTest, BackwardsWithoutAWayBackNullWithANoteIsExcepted) {
  auto& fixture = prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM"
      " generate_series(1, 20) g",
      column_spec("v", "point", "point(v, 0)"));
  ASSERT_FALSE(fixture.migration().binding.column.backward.has_value());
  fixture.switch_over();
  EXPECT_EQ(full_pass(kBackward).differences, 0);
  sql("UPDATE t SET v = point(9, 9) WHERE id = 3");
  EXPECT_EQ(full_pass(kBackward).excepted, 1);
  EXPECT_EQ(newest(kBackward).differences, 0);
  corrupt("77", "id = 4");
  const auto found = expect_one(kBackward);
  EXPECT_EQ(found.key.parts, std::vector<std::string>{"4"});
  EXPECT_EQ(comparator(kBackward).repair(session_, newest(kBackward).id), 1);
  EXPECT_EQ(full_pass(kBackward).differences, 0);
  EXPECT_EQ(newest(kBackward).excepted, 2);
}

TEST_F(ComparatorTest, BackwardsAnAcceptedRejectStaysExcepted) {
  auto& fixture =
      prepare("CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '10'), (2, 'x')",
              column_spec("v", "integer"));
  sql("INSERT INTO crossfade.reject (migration_id, key, sqlstate, message) VALUES ($1, '{2}', '22P02', 'x')",
      {fixture.migration().row.id.text});
  fixture.switch_over();
  auto pass = full_pass(kBackward);
  EXPECT_EQ(pass.differences, 0);
  EXPECT_EQ(pass.excepted, 1);
  sql("UPDATE crossfade.reject SET state = 'closed'");
  EXPECT_EQ(full_pass(kBackward).differences, 1);
}

TEST_F(ComparatorTest, RangesOfTheNewestThreePassesAreKept) {
  integers(10);
  for (int n = 0; n < 5; ++n) full_pass();
  EXPECT_EQ(value("SELECT count(DISTINCT pass_id) FROM crossfade.comparison"), "3");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pass WHERE rows_read = 10"), "5");
}

TEST_F(ComparatorTest, TheFastCursorIsPublishedAndNeverRead) {
  RedisServer redis;
  cache_ = CursorCache("unix://" + redis.socket().string());
  integers(100);
  auto reader = comparator(kForward, 10);
  const auto pass = reader.open_pass(session_);
  EXPECT_FALSE(slice(reader, pass, milliseconds(0)));
  const auto m = fixture_->migration();
  const auto cursor = cache_.get_cursor(m.row.id, std::to_string(pass.id), 0, m.row.token);
  ASSERT_TRUE(cursor.has_value());
  EXPECT_EQ(parse_key(cursor->position).parts, std::vector<std::string>{"10"});
  EXPECT_EQ(cursor->rows, 10);

  cache_.put_cursor(m.row.id, std::to_string(pass.id), 0, {m.row.token, "{\"90\"}", 90});
  while (!slice(reader, pass, milliseconds(1000))) {
  }
  EXPECT_EQ(newest().rows_read, 100);
}

}  // namespace
}  // namespace crossfade::test

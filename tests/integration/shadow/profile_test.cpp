#include "crossfade/shadow/profile.hpp"

#include <fmt/format.h>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "support/database_test.hpp"
#include "support/migration_fixture.hpp"

namespace crossfade::test {
namespace {

using std::chrono::milliseconds;

class ProfileTest : public DatabaseTest {
 protected:
  ~ProfileTest() override { failpoint::configure(""); }

  void prepare(const std::string& ddl, const ColumnSpec& column) {
    fixture_ = std::make_unique<MigrationFixture>(session_, ddl, column);
    fixture_->set_phase(Phase::dry_run);
  }

  Profiler profiler(std::int64_t rows = 5000) {
    return Profiler(fixture_->migration(), fixture_->table(), RangePace{rows, 0, rows});
  }

  ProfileReport profile(std::int64_t rows = 5000) {
    auto reader = profiler(rows);
    const auto pass = reader.open_pass(session_);
    while (!reader.run(session_, cache_, pass, milliseconds(100), stop_, nullptr)) {
    }
    return reader.report(session_, pass.id);
  }

  SqlSession session_ = SqlSession::connect({dsn(), "test"});
  CursorCache cache_{""};
  std::atomic<bool> stop_{false};
  std::unique_ptr<MigrationFixture> fixture_;
};

TEST_F(ProfileTest, AWideningChangesNothing) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int); CREATE INDEX ON t(v);"
      "INSERT INTO t SELECT g, nullif(g, 7) FROM generate_series(1, 2000) g",
      column_spec("v", "bigint"));
  const auto report = profile(100);
  EXPECT_EQ(report.rows, 2000);
  EXPECT_EQ(report.changed, 0);
  EXPECT_EQ(report.nulls_in, 1);
  EXPECT_EQ(report.nulls_out, 1);
  EXPECT_EQ(report.errors, 0);
  EXPECT_EQ(report.lossy, 0);
  EXPECT_EQ(report.respelled, 0);
  EXPECT_EQ(report.row_bytes, std::stoll(value("SELECT pg_relation_size('t') / 2000")));
  EXPECT_GT(report.seconds, 0);
  EXPECT_GT(report.rows_per_second, 0);
  EXPECT_LT(report.wal_bytes_low, report.wal_bytes_high);
  EXPECT_LT(report.seconds_low, report.seconds_high);
  EXPECT_GT(report.disk_growth_bytes, 0);
}

TEST_F(ProfileTest, NumericScaleRoundsAndRespells) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v numeric);"
      "INSERT INTO t VALUES (1, 1.5), (2, 1.234), (3, 2.00), (4, NULL), (5, 99999999999)",
      column_spec("v", "numeric(10,2)"));
  const auto report = profile();
  EXPECT_EQ(report.rows, 5);
  EXPECT_EQ(report.changed, 1);  // 1.234 to 1.23; 1.5 and 1.50 are one value
  EXPECT_EQ(report.lossy, 1);
  EXPECT_EQ(report.respelled, 1);  // 1.5 comes back as 1.50
  EXPECT_EQ(report.rounded, 1);
  EXPECT_EQ(report.errors, 1);
  ASSERT_TRUE(report.errors_by_sqlstate.contains("22003"));
  EXPECT_EQ(report.errors_by_sqlstate.at("22003").keys, (std::vector<Key>{Key{{"5"}}}));
}

TEST_F(ProfileTest, TextOutputDecidesBetweenTwoTypes) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '7'), (2, '007'), (3, NULL)",
          column_spec("v", "integer"));
  const auto report = profile();
  EXPECT_EQ(report.changed, 1);
  EXPECT_EQ(report.lossy, 0);
  EXPECT_EQ(report.respelled, 1);  // 007 comes back as 7: one number, two spellings
}

TEST_F(ProfileTest, ARoundedTextIsLossyAndAPaddedOneIsRespelled) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v text);"
      "INSERT INTO t VALUES (1, '1.5'), (2, '3.14159'), (3, 'n/a'), (4, NULL), (5, '2.00')",
      column_spec("v", "numeric(10,2)"));
  const auto report = profile();
  EXPECT_EQ(report.errors, 1);
  EXPECT_EQ(report.lossy, 1);
  EXPECT_EQ(report.rounded, 1);
  EXPECT_EQ(report.respelled, 1);
}

TEST_F(ProfileTest, ErrorsAreCountedOnceWithTenSampleKeys) {
  prepare(
      "CREATE TABLE t(a int, b text, v text, PRIMARY KEY (b, a)); INSERT INTO t SELECT g, 'k,\"' || g % 3,"
      " CASE WHEN g <= 50 THEN 'x' || g WHEN g <= 60 THEN '99999999999' ELSE g::text END"
      " FROM generate_series(1, 500) g",
      column_spec("v", "integer"));
  const auto report = profile(20);
  EXPECT_EQ(report.rows, 500);
  EXPECT_EQ(report.errors, 60);
  ASSERT_EQ(report.errors_by_sqlstate.size(), 2u);
  const auto& syntax = report.errors_by_sqlstate.at("22P02");
  EXPECT_EQ(syntax.rows, 50);
  EXPECT_EQ(syntax.keys.size(), 10u);
  EXPECT_EQ(syntax.keys[0].parts[0].substr(0, 3), "k,\"");
  EXPECT_NE(syntax.message.find("invalid input syntax"), std::string::npos);
  EXPECT_EQ(report.errors_by_sqlstate.at("22003").rows, 10);
  EXPECT_EQ(value("SELECT sum(differences) FROM crossfade.comparison"), "60");
  EXPECT_EQ(value("SELECT differences FROM crossfade.pass"), "60");
}

TEST_F(ProfileTest, NullForANotNullColumnIsAnError) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v text NOT NULL); INSERT INTO t VALUES (1, 'a'), (2, ''), (3, 'b')",
      column_spec("v", "text", "nullif(v, '')", "coalesce(v, '')"));
  const auto report = profile();
  EXPECT_EQ(report.errors, 1);
  EXPECT_EQ(report.nulls_out, 0);
  EXPECT_EQ(report.errors_by_sqlstate.at("23502").keys, (std::vector<Key>{Key{{"2"}}}));
}

TEST_F(ProfileTest, AWayBackThatFailsLosesTheValue) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v int, w int); INSERT INTO t SELECT g, g, g % 2 FROM "
      "generate_series(1, 10) g",
      column_spec("v", "text", "v::text", "v::integer / w"));
  const auto report = profile();
  EXPECT_EQ(report.errors, 0);
  EXPECT_EQ(report.lossy, 5);
}

TEST_F(ProfileTest, AOneWayMigrationLosesNothingByDefinition) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'Ab'), (2, 'c')",
          column_spec("v", "text", "lower(v)"));
  ASSERT_TRUE(fixture_->migration().binding.column.one_way);
  const auto report = profile();
  EXPECT_EQ(report.changed, 1);
  EXPECT_EQ(report.lossy, 0);
  EXPECT_EQ(report.respelled, 0);
}

TEST_F(ProfileTest, TypesWithoutEqualityAreComparedByImage) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v json); INSERT INTO t VALUES (1, '[1, 2]'), (2, '[1,  2]'), (3, "
      "NULL)",
      column_spec("v", "json", "v::jsonb::json", "v"));
  const auto report = profile();
  EXPECT_EQ(report.changed, 1);
  EXPECT_EQ(report.lossy, 1);
  EXPECT_EQ(report.respelled, 0);
}

TEST_F(ProfileTest, PointsHaveNoEqualityEither) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v point); INSERT INTO t VALUES (1, '(1,2)'), (2, '(3,4)')",
          column_spec("v", "point", "v", "v"));
  const auto report = profile();
  EXPECT_EQ(report.changed, 0);
  EXPECT_EQ(report.lossy, 0);
}

TEST_F(ProfileTest, AnEmptyTableHasAReport) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v int)", column_spec("v", "bigint"));
  const auto report = profile();
  EXPECT_EQ(report.rows, 0);
  EXPECT_EQ(report.row_bytes, 0);
}

TEST_F(ProfileTest, AStoppedPassGoesOnAndItsReportIsKept) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t SELECT g, g FROM generate_series(1, 1000) g",
      column_spec("v", "integer"));
  auto first = profiler(100);
  const auto pass = first.open_pass(session_);
  failpoint::configure("dry_run.flushed=error:42P01@2");
  EXPECT_FALSE(first.run(session_, cache_, pass, milliseconds(0), stop_, nullptr));
  EXPECT_THROW(first.report(session_, pass.id), Error);
  EXPECT_THROW(first.run(session_, cache_, pass, milliseconds(0), stop_, nullptr), Error);
  failpoint::configure("");
  auto second = profiler(100);
  EXPECT_EQ(second.open_pass(session_).id, pass.id);
  while (!second.run(session_, cache_, pass, milliseconds(100), stop_, nullptr)) {
  }
  const auto newest = [&] { return newest_pass(session_, fixture_->migration().row.id, "profile").value(); };
  EXPECT_FALSE(profile_of(newest()));
  const auto report = second.report(session_, pass.id);
  EXPECT_EQ(to_json(profile_of(newest()).value()), to_json(report));
  EXPECT_EQ(report.rows, 1000);
  sql("DELETE FROM crossfade.comparison");
  EXPECT_EQ(to_json(second.report(session_, pass.id)), to_json(report));
  EXPECT_EQ(to_json(profile_from_json(to_json(report))), to_json(report));
}

TEST_F(ProfileTest, RowsThatBecomeEqualUnderAUniqueIndexAreCountedWithTheirKeys) {
  prepare(
      "CREATE TABLE t(id int PRIMARY KEY, k int, v text UNIQUE, UNIQUE (k, v));"
      "INSERT INTO t VALUES (1, 1, '7'), (2, 1, '07'), (3, 2, '007'), (4, 1, NULL), (5, 1, '8'), (6, 1, 'x'),"
      " (7, 1, 'y')",
      column_spec("v", "integer"));
  sql("CREATE UNIQUE INDEX late ON t (v) WHERE id > 2; CREATE UNIQUE INDEX other ON t (k, id);"
      "CREATE UNIQUE INDEX half ON t (v, (id % 2))");
  const auto report = profile();
  EXPECT_EQ(report.errors, 2);
  ASSERT_EQ(report.collisions.size(), 4u) << to_json(report);
  const auto& alone = report.collisions[0];
  EXPECT_EQ(alone.index, "public.t_v_key");
  EXPECT_FALSE(alone.proved);
  EXPECT_EQ(alone.groups, 1);
  EXPECT_EQ(alone.rows, 3);
  ASSERT_EQ(alone.samples.size(), 1u);
  EXPECT_EQ(alone.samples[0].first.parts, std::vector<std::string>{"1"});
  EXPECT_EQ(alone.samples[0].second.parts, std::vector<std::string>{"3"});
  const auto& together = report.collisions[1];
  EXPECT_EQ(together.index, "public.t_k_v_key");
  EXPECT_EQ(together.groups, 1);
  EXPECT_EQ(together.rows, 2);
  EXPECT_EQ(report.collisions[2].rows, 0) << "only one of the three is in the partial index";
  EXPECT_EQ(report.collisions[3].rows, 2) << "of the three one has an even key";
  EXPECT_EQ(colliding_rows(report), 7);
  EXPECT_EQ(to_json(profile_from_json(to_json(report))), to_json(report));
}

TEST_F(ProfileTest, WhereTheConversionIsOneToOneNothingIsReadForCollisions) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v int UNIQUE); INSERT INTO t VALUES (1, 1), (2, 2)",
          column_spec("v", "bigint"));
  const auto report = profile();
  ASSERT_EQ(report.collisions.size(), 1u);
  EXPECT_TRUE(report.collisions[0].proved);
  EXPECT_TRUE(collision_checks(session_, fixture_->migration(), fixture_->table(), ComparedValue::forward)[0]
                  .sql.empty());
}

TEST_F(ProfileTest, NullsCollideWhereTheIndexSaysSo) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, ''), (2, NULL), (3, 'a')",
          column_spec("v", "text", "nullif(v, '')", "v"));
  sql("CREATE UNIQUE INDEX usual ON t (v)");
  const bool can_say = session_.identity().version_num >= 150000;
  if (can_say) sql("CREATE UNIQUE INDEX strict ON t (v) NULLS NOT DISTINCT");
  const auto report = profile();
  ASSERT_EQ(report.collisions.size(), can_say ? 2u : 1u);
  EXPECT_EQ(report.collisions[0].rows, 0);
  if (can_say) {
    EXPECT_EQ(report.collisions[1].rows, 2);
  }
}

// The gate of the phase: until the rows are corrected, or somebody says that they will be.
TEST_F(ProfileTest, ADryRunWithCollisionsWaitsAndReadsAgainOnceTheyAreCorrected) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text UNIQUE); INSERT INTO t VALUES (1, '7'), (2, '07')",
          column_spec("v", "integer"));
  std::atomic<bool> interruptible{false};
  const auto step = [&](const std::vector<Acceptance>& accepted) {
    PhaseEnv env{
        session_, cache_, {}, {}, "", accepted, stop_, interruptible, [](auto, auto, const auto&) {}};
    const auto handler = make_phase_handler(Phase::dry_run);
    StepResult result;
    do {
      result = handler->step(env, fixture_->migration(), milliseconds(100));
    } while (result.kind == StepResult::Kind::again);
    return result;
  };
  const auto waiting = step({});
  EXPECT_EQ(waiting.kind, StepResult::Kind::waiting);
  ASSERT_EQ(waiting.blockers.size(), 1u);
  EXPECT_EQ(waiting.blockers[0].finding, "dry_run_collisions");
  EXPECT_NE(waiting.blockers[0].text.find("keys {\"1\"} and {\"2\"}"), std::string::npos)
      << waiting.blockers[0].text;
  EXPECT_EQ(step({{"dry_run_collisions", "corrected later"}}).kind, StepResult::Kind::settled);
  sql("UPDATE t SET v = '8' WHERE id = 2");
  EXPECT_EQ(step({}).kind, StepResult::Kind::settled);
}

TEST_F(ProfileTest, NothingIsWrittenToTheTable) {
  prepare("CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x'), (2, '2')",
          column_spec("v", "integer"));
  const auto before = value("SELECT array_agg(xmin::text || ctid::text ORDER BY id) FROM t");
  profile();
  EXPECT_EQ(value("SELECT array_agg(xmin::text || ctid::text ORDER BY id) FROM t"), before);
  EXPECT_EQ(value("SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0"), "2");
}

}  // namespace
}  // namespace crossfade::test

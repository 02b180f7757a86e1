// Group F: state, operators, poison rows.
#include <atomic>

#include "case_test.hpp"

namespace crossfade::test {
namespace {

class StateCases : public CaseTest {
 protected:
  void make_text_table(const std::string& rows) {
    sql("CREATE TABLE t (id int PRIMARY KEY, b text); INSERT INTO t " + rows);
  }
  static std::string to_integer(const std::string& more = {}) {
    return spec("b", "integer",
                "forward = \"b::integer\"\nbackward = \"b::text\"\n[expect]\nerrors = \"0..1000\"\n" + more);
  }
};

// 104: https://github.com/xataio/pgroll/issues/316: a failed copy leaves a table on which nothing can be
// begun or undone.
TEST_F(StateCases, AFailedSweepRollsBackAndTheNextMigrationBegins) {
  make_text_table("SELECT g, CASE WHEN g = 500 THEN 'x' ELSE g::text END FROM generate_series(1, 1000) g");
  ApplicationSession owner(dsn());
  start(to_integer());
  advance_to(Phase::dry_run);
  EXPECT_EQ(code_of([&] { sweep_all(); }), ErrorCode::too_many_rejects);
  const auto status = migrator().status("m");
  EXPECT_EQ(status.status, Status::failed);
  EXPECT_FALSE(status.reason.empty());
  roll_back_to(Phase::rolled_back);
  EXPECT_EQ(value("SELECT string_agg(attname, ' ') FROM pg_attribute WHERE attrelid = 't'::regclass AND "
                  "attnum > 0 AND"
                  " NOT attisdropped"),
            "id b");
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), "0");
  sql("UPDATE t SET b = '5' WHERE id = 500");
  start(to_integer());
  advance_to(Phase::switched);
}

// 108: https://gitlab.com/gitlab-org/gitlab/-/issues/342352: finished, with one range that failed.
TEST_F(StateCases, ASweepWithARangeThatFailsIsNeverFinished) {
  make_text_table(
      "SELECT g, CASE WHEN g BETWEEN 300 AND 400 THEN 'x' ELSE g::text END FROM generate_series(1, 1000) g");
  start(to_integer("[tuning]\nmax_rejects = 1000\n"));
  advance_to(Phase::dry_run);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(code_of([&] { migrator().next("m", {.until = Phase::switched, .confirm = {}, .accept = {}}); }),
              ErrorCode::rejects_open);
    EXPECT_EQ(migrator().status("m").phase, Phase::backfill);
  }
  EXPECT_EQ(migrator().status("m").rejects, 101);
  EXPECT_EQ(value(fmt::format("SELECT count(*) FROM t WHERE {} IS NULL", shadow())), "101");
  sql("UPDATE t SET b = '7' WHERE id BETWEEN 300 AND 400");
  advance_to(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE b IS NULL"), "0");
}

// 111: spirit's ErrMismatchedAlter, online_migrations ("same name on different tables"): old state for a new
// migration.
TEST_F(StateCases, ANameThatIsUsedAgainBeginsAnew) {
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  migrator().request_stop();
  let_go();
  EXPECT_EQ(sweep.end(), ErrorCode::interrupted);
  const auto next = new_migrator();
  const auto first = next->status("m").id;
  next->rollback("m", {.to = Phase::rolled_back, .accept = {}});
  const auto started =
      next->start({spec("b", "bigint", "forward = \"b * 10\"\nbackward = \"(b / 10)::int\"")});
  EXPECT_NE(started.id, first);
  EXPECT_FALSE(started.already_started);
  next->next("m", {.until = Phase::backfill, .confirm = {}, .accept = {}});
  EXPECT_EQ(stale("b * 10"), "0");
  EXPECT_EQ(next->status({"", first}).phase, Phase::rolled_back);
}

TEST_F(StateCases, TheSameNameWithAnotherSpecIsRefusedWhileItIsOpen) {
  make_table();
  start();
  EXPECT_TRUE(migrator().start({spec()}).already_started);
  EXPECT_EQ(code_of([&] { start(spec("b", "numeric")); }), ErrorCode::spec_conflict);
}

TEST_F(StateCases, ATableThatWasDroppedAndMadeAgainIsNotTheSameTable) {
  make_table();
  start();
  advance_to(Phase::backfill);
  sql("DROP TABLE t");
  make_table();
  EXPECT_EQ(code_of([&] { migrator().next("m"); }), ErrorCode::table_changed);
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), "0");
  roll_back_to(Phase::rolled_back);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "1000");
  start();
  advance_to(Phase::switched);
}

// 113: https://github.com/github/gh-ost/pull/1693, https://github.com/reorg/pg_repack/pull/166: two operators
// at once.
TEST_F(StateCases, OfFiveOperatorsAtOnceOneWorksAndTheOthersTouchNothing) {
  make_table(5000);
  constexpr int kOperators = 5;
  std::vector<std::unique_ptr<Migrator>> operators;
  for (int i = 0; i < kOperators; ++i) operators.push_back(new_migrator());
  start();
  for (const auto phase :
       {Phase::dry_run, Phase::backfill, Phase::dual_write, Phase::compare, Phase::switched}) {
    std::atomic<int> ready = 0;
    std::vector<std::unique_ptr<InBackground>> calls;
    for (auto& one : operators) {
      calls.push_back(std::make_unique<InBackground>([&, migrator = one.get()] {
        ++ready;
        while (ready < kOperators) std::this_thread::yield();
        migrator->next("m", {.until = phase, .confirm = {}, .accept = {}});
      }));
    }
    int done = 0;
    for (auto& call : calls) {
      const auto code = call->end();
      if (!code) ++done;
      EXPECT_TRUE(!code || code == ErrorCode::busy || code == ErrorCode::superseded) << call->message();
    }
    EXPECT_GE(done, 1);
    EXPECT_EQ(migrator().status("m").phase, phase);
    EXPECT_EQ(migrator().status("m").status, Status::settled);
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.transition"), "5");
  EXPECT_EQ(value("SELECT sum(rows_written) FROM crossfade.pass WHERE kind = 'backfill'"), "5000");
}

struct Poison {
  std::string name, old_type, new_type, forward, value, sqlstate;
};

class PoisonCases : public StateCases, public ::testing::WithParamInterface<Poison> {};

// 127: https://github.com/open-gsd/gsd-pi/pull/1056, https://github.com/future-agi/future-agi/pull/1082: one
// bad value ends the copy for ever, or is dropped in silence.
TEST_P(PoisonCases, APoisonRowIsNamedAndTheOthersAreMigrated) {
  const auto& poison = GetParam();
  sql(fmt::format(
      "CREATE TABLE t (id int PRIMARY KEY, b {});"
      "INSERT INTO t SELECT g, '1' FROM generate_series(1, 3000) g; UPDATE t SET b = {} WHERE id = 1234",
      poison.old_type, poison.value));
  const auto text = [&](int most) {
    return spec(
        "b", poison.new_type,
        fmt::format(
            "forward = \"{}\"\nbackward = \"NULL\"\n[expect]\nerrors = 1\n[tuning]\nmax_rejects = {}\n",
            poison.forward, most));
  };
  // Strict: the first one stops the sweep.
  start(text(0));
  advance_to(Phase::dry_run);
  EXPECT_EQ(migrator().dry_run_report("m")->errors_by_sqlstate.begin()->first, poison.sqlstate);
  EXPECT_EQ(code_of([&] { sweep_all(); }), ErrorCode::too_many_rejects);
  roll_back_to(Phase::rolled_back);
  // Lenient: it is parked, and the phase is not left.
  start(text(1));
  advance_to(Phase::dry_run);
  EXPECT_EQ(code_of([&] { sweep_all(); }), ErrorCode::rejects_open);
  const auto rejects = migrator().rejects("m");
  ASSERT_EQ(rejects.size(), 1U);
  EXPECT_EQ(rejects[0].key, Key{{"1234"}});
  EXPECT_EQ(rejects[0].sqlstate, poison.sqlstate);
  EXPECT_EQ(value(fmt::format("SELECT count(*) FROM t WHERE {} IS NOT NULL", shadow())), "2999");
  // The application may write such values, and takes them back.
  sql(fmt::format("UPDATE t SET b = {} WHERE id = 5; INSERT INTO t VALUES (4000, {})", poison.value,
                  poison.value));
  EXPECT_EQ(shadow_of("id = 5"), "NULL");
  sql("UPDATE t SET b = '1' WHERE id = 5; DELETE FROM t WHERE id = 4000");
  EXPECT_EQ(migrator().retry_rejects("m").open, 1);
  // Accepted, the row has no value after the switch and the others do.
  advance_to(Phase::compare, {{"rejects_open", "it is rubbish"}});
  migrator().next("m");
  EXPECT_EQ(value("SELECT string_agg(id::text, ',') FROM t WHERE b IS NULL"), "1234");
}

INSTANTIATE_TEST_SUITE_P(
    , PoisonCases,
    ::testing::Values(Poison{"Text", "text", "integer", "b::integer", "'x'", "22P02"},
                      Poison{"Division", "integer", "integer", "6 / b", "0", "22012"},
                      Poison{"NumericOverflow", "numeric", "numeric(4,2)", "b::numeric(4,2)", "123456",
                             "22003"},
                      Poison{"NulInJson", "json", "jsonb", "b::jsonb", "'\"\\u0000\"'", "22P05"},
                      Poison{"TooLong", "text", "varchar(3)", "b", "'long enough'", "22001"}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace crossfade::test

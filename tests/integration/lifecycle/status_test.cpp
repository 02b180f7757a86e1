// What status answers beside phase and counts: it must not say that all is well when it is not, and must not
// call impossible what the next command does by itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"

namespace crossfade::test {
namespace {

class StatusTest : public DatabaseTest {
 protected:
  void begin(const std::string& table, const std::string& column, Phase phase) {
    sql(table);
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
    migrator_->start({fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{}\"\ntype = \"bigint\"\n"
        "[drop]\nsoak = \"0s\"\n",
        column)});
    advance(phase);
  }
  void advance(Phase phase) {
    migrator_->next("m", {.until = phase, .confirm = {}, .accept = {}, .wait = std::chrono::seconds(60)});
  }
  StatusReport status() { return migrator_->status("m"); }
  static bool tells(const std::vector<std::string>& list, const std::string& part) {
    return std::ranges::any_of(list, [&](const auto& text) { return text.find(part) != std::string::npos; });
  }

  std::optional<Migrator> migrator_;
};

constexpr const char* kTable =
    "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL); INSERT INTO t SELECT g, g FROM generate_series(1, "
    "100) g";

TEST_F(StatusTest, AnOldComparisonIsMadeAgainByTheWayBackAndDoesNotShutIt) {
  begin(kTable, "b", Phase::switched);
  EXPECT_TRUE(status().rollback.does_first.empty());
  sql("UPDATE crossfade.pass SET began_at = began_at - interval '1 day',"
      " ended_at = ended_at - interval '1 day'");
  auto now = status();
  EXPECT_TRUE(now.rollback.possible);
  EXPECT_TRUE(now.rollback.refused_for.empty());
  EXPECT_TRUE(tells(now.rollback.does_first, "older than max_comparison_age"));
  // What the way back does not make good shuts it.
  sql("UPDATE crossfade.pass SET differences = 1 WHERE kind = 'compare'");
  now = status();
  EXPECT_FALSE(now.rollback.possible);
  EXPECT_TRUE(now.rollback.does_first.empty());
  sql("UPDATE crossfade.pass SET differences = 0 WHERE kind = 'compare'");
  migrator_->rollback("m");
  EXPECT_EQ(status().phase, Phase::compare);
}

TEST_F(StatusTest, AMisfitCountsFromItsWriteToItsCorrection) {
  begin(kTable, "b", Phase::switched);
  sql("UPDATE t SET b = 5000000000 WHERE id < 3; UPDATE t SET b = 7 WHERE id = 2");
  auto now = status();
  EXPECT_EQ(now.misfits, 1);
  EXPECT_FALSE(now.rollback.possible);
  EXPECT_TRUE(tells(now.rollback.refused_for,
                    "1 value written since the switch does not fit the old column, "
                    "which is NOT NULL"));
  EXPECT_EQ(migrator_->misfits("m").size(), 1U);  // looks at the notes, and keeps the open one
  sql("UPDATE t SET b = 5 WHERE id = 1");
  now = status();
  EXPECT_EQ(now.misfits, 0);
  EXPECT_TRUE(now.rollback.possible);
  EXPECT_EQ(now.rollback.loses, std::nullopt);
}

TEST_F(StatusTest, WhatMayBeAcceptedIsToldWithTheWords) {
  begin("CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t SELECT g, g FROM generate_series(1, 9) g",
        "b", Phase::switched);
  sql("UPDATE t SET b = 5000000000 WHERE id = 1");
  EXPECT_TRUE(tells(status().rollback.refused_for, "--accept misfits_open"));
}

TEST_F(StatusTest, AKeyNearTheEndOfItsOldTypeIsWarnedOf) {
  begin("CREATE TABLE t (id serial PRIMARY KEY, b int); INSERT INTO t (b) SELECT generate_series(1, 9)", "id",
        Phase::compare);
  sql("SELECT setval('t_id_seq', 2000000000)");
  EXPECT_TRUE(status().warnings.empty()) << "before the switch the old type holds whatever comes";
  advance(Phase::switched);
  EXPECT_TRUE(tells(status().warnings, "sequence public.t_id_seq stands at 2000000000, 93 %"));
  sql("SELECT setval('t_id_seq', 1717986917)");
  EXPECT_TRUE(status().warnings.empty());
  sql("SELECT setval('t_id_seq', 1717986918)");
  EXPECT_TRUE(tells(status().warnings, "stands at 1717986918, 80 % of what integer holds"));
  sql("SELECT setval('t_id_seq', 100); INSERT INTO t (id) VALUES (-1900000000)");
  EXPECT_TRUE(tells(status().warnings, "id reaches -1900000000, 88 %"));
  EXPECT_TRUE(status().rollback.possible);
  sql("SELECT setval('t_id_seq', 3000000000)");
  EXPECT_EQ(status().warnings.size(), 1U);
  EXPECT_TRUE(tells(status().rollback.refused_for, "sequence public.t_id_seq stands at 3000000000"));
}

TEST_F(StatusTest, AChangedCaptureIsToldBeforeARunnerMeetsIt) {
  begin(kTable, "b", Phase::backfill);
  EXPECT_TRUE(status().next.ready);
  EXPECT_EQ(status().commands.recapture, "");
  sql("ALTER TABLE t DISABLE TRIGGER USER");
  auto now = status();
  EXPECT_FALSE(now.next.ready);
  EXPECT_TRUE(tells(now.next.waiting_for, "what the capture rests on was changed"));
  EXPECT_EQ(now.commands.recapture, "crossfade recapture m");
  EXPECT_THROW(advance(Phase::dual_write), Error);
  now = status();
  EXPECT_EQ(now.status, Status::failed);
  EXPECT_EQ(now.next.waiting_for.size(), 1U);
  EXPECT_EQ(now.commands.recapture, "crossfade recapture m");
  migrator_->recapture("m");
  EXPECT_EQ(status().commands.recapture, "");
  advance(Phase::backfill);
  EXPECT_TRUE(status().next.ready);
}

TEST_F(StatusTest, AWayBackThatWasBegunIsWarnedOfAndGivenUpByNext) {
  begin("CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t SELECT g, g FROM generate_series(1, 9) g",
        "id", Phase::switched);
  failpoint::configure("switched_to_compare.before=error:57014");
  EXPECT_THROW(migrator_->rollback("m"), Error);
  failpoint::configure("");
  EXPECT_TRUE(tells(status().warnings, "a way back was begun and not ended"));
  EXPECT_THROW(sql("INSERT INTO t (id) VALUES (3000000000)"), Error);
  advance(Phase::switched);
  EXPECT_TRUE(status().warnings.empty());
  sql("INSERT INTO t (id) VALUES (3000000000)");
}

// The key is what sweep and comparison go by; its loss is no change of the capture.
TEST_F(StatusTest, AKeyThatWasLostIsNamedInEveryPhaseWithWhatToDo) {
  begin(kTable, "b", Phase::backfill);
  const std::string told = "no_usable_key: public.t_pkey of table public.t, the key (id)";
  for (const auto phase : {Phase::dual_write, Phase::compare, Phase::switched, Phase::dropped}) {
    SCOPED_TRACE(to_text(phase));
    EXPECT_FALSE(tells(status().next.waiting_for, "no_usable_key"));
    sql("ALTER TABLE t DROP CONSTRAINT t_pkey");
    const auto now = status();
    EXPECT_FALSE(now.next.ready);
    EXPECT_TRUE(tells(now.next.waiting_for, told))
        << fmt::format("{}", fmt::join(now.next.waiting_for, "\n"));
    EXPECT_TRUE(
        tells(now.next.waiting_for, "CREATE UNIQUE INDEX CONCURRENTLY … ON public.t (id), then ALTER"));
    EXPECT_TRUE(now.rollback.possible) << "what was compared stays compared";
    const auto next = [&] {
      migrator_->next("m", {.until = phase, .confirm = "m", .accept = {}, .wait = std::chrono::seconds(60)});
    };
    try {
      next();
      ADD_FAILURE() << "it went on without a key";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(told), std::string::npos) << error.message();
    }
    sql("ALTER TABLE t ADD PRIMARY KEY (id)");
    next();
  }
}

TEST_F(StatusTest, ALostKeyFailsWhatIsAtWork) {
  begin(kTable, "b", Phase::switched);
  migrator_->rollback("m");
  // Another index over the same columns is as good; one over a column that may be NULL is none.
  sql("ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE UNIQUE INDEX other ON t (id); ALTER TABLE t ALTER id "
      "DROP NOT "
      "NULL");
  try {
    advance(Phase::switched);
    ADD_FAILURE() << "the replay went by a key that is none";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("column id may be NULL now"), std::string::npos) << error.message();
    EXPECT_EQ(error.exit_status(), 4);
  }
  const auto now = status();
  EXPECT_EQ(now.status, Status::failed);
  EXPECT_EQ(
      std::ranges::count_if(now.next.waiting_for,
                            [](const auto& text) { return text.find("may be NULL") != std::string::npos; }),
      1)
      << "told once";
  EXPECT_TRUE(tells(now.next.waiting_for, "ALTER COLUMN … SET NOT NULL"));
  sql("ALTER TABLE t ALTER id SET NOT NULL");
  advance(Phase::switched);
  EXPECT_TRUE(status().next.waiting_for.size() <= 1);
}

TEST_F(StatusTest, ARenamedTableIsShownByTheNameThatItHasNow) {
  begin(kTable, "b", Phase::backfill);
  sql("CREATE SCHEMA archive; ALTER TABLE t RENAME TO u; ALTER TABLE u SET SCHEMA archive");
  auto now = status();
  EXPECT_EQ(now.table, "archive.u");
  EXPECT_EQ(now.registered_table, "public.t");
  EXPECT_EQ(migrator_->list().at(0).table, "archive.u");
  EXPECT_EQ(migrator_->list().at(0).registered_table, "public.t");
  migrator_->next("m",
                  {.until = Phase::dropped, .confirm = "m", .accept = {}, .wait = std::chrono::seconds(60)});
  EXPECT_EQ(status().table, "archive.u");
  // Of one that is gone only the name is left under which it was started.
  sql("DROP TABLE archive.u");
  now = status();
  EXPECT_EQ(now.table, "public.t");
  EXPECT_EQ(now.registered_table, "public.t");
}

// The part of an index is built on its partition, which the server's view of builds names.
TEST_F(StatusTest, TheBuildOfAPartIsToldWithItsPartition) {
  begin(
      "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL) PARTITION BY RANGE (id);"
      "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (1000); CREATE INDEX ON t (b);"
      "INSERT INTO t SELECT g, g FROM generate_series(1, 100) g",
      "b", Phase::backfill);
  ApplicationSession old(dsn());
  // A snapshot, which the build waits for, and no lock.
  old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  std::exception_ptr failure;
  std::jthread builder([&] {
    try {
      advance(Phase::dual_write);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  wait_until(
      [&] {
        return tells(Migrator({.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"})
                         .status("m")
                         .next.waiting_for,
                     "public.t_1: ");
      },
      "the part to be told", std::chrono::seconds(60));
  old.run("COMMIT");
  builder.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace
}  // namespace crossfade::test

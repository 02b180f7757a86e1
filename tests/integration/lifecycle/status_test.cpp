// What status answers beside phase and counts: it must not say that all is well when it is not, and must not
// call impossible what the next command does by itself.
#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
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

}  // namespace
}  // namespace crossfade::test

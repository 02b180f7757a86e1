// [drop] archive = "table": the archive holds what the old column held when it was dropped, whatever was
// written meanwhile. Every write of these tests names the old column: none can come after the drop, so that
// the table is still what it was then.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"
#include "support/program.hpp"

namespace crossfade::test {
namespace {

class ArchiveTest : public DatabaseTest {
 protected:
  void prepare(const std::string& column = "b", const std::string& more = "", int rows = 12000) {
    sql(fmt::format("CREATE TABLE t (id int PRIMARY KEY, b int, n int NOT NULL);"
                    "INSERT INTO t SELECT g, nullif(g % 7, 0), g FROM generate_series(1, {}) g;",
                    rows) +
        more);
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
    spec_ = fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{}\"\ntype = \"bigint\"\n"
        "[drop]\nsoak = \"0s\"\narchive = \"table\"\n",
        column);
    migrator_->start({spec_});
    advance(Phase::switched);
    old_ = value(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname LIKE "
        "'%\\_cfold\\_%'");
  }

  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    options.wait = std::chrono::seconds(60);
    if (phase == Phase::dropped) options.confirm = "m";
    migrator_->next("m", options);
  }

  // The real program, killed at the failpoint.
  void killed_at(const std::string& failpoint) {
    const auto result = Program::run(crossfade_binary(),
                                     {"next", "m", "--until", "dropped", "--confirm", "m", "--dsn", dsn()},
                                     {{"CROSSFADE_FAILPOINTS", failpoint + "=abort"}});
    EXPECT_NE(result.signal, 0) << failpoint << result.out << result.err;
    EXPECT_EQ(migrator_->status("m").phase, Phase::switched);
  }

  std::string archive() {
    return value(
        "SELECT coalesce(max(oid::regclass::text), '') FROM pg_class WHERE relname LIKE 't\\_cfarchive\\_%'"
        " AND relkind = 'r'");
  }

  void expect_archived(const std::string& key = "id", const std::string& archived = "b",
                       const std::string& shown = "b::int") {
    EXPECT_EQ(value(fmt::format("SELECT count(*) FROM (SELECT {0} AS k, {2} AS v FROM t) t FULL JOIN"
                                " (SELECT {0} AS k, {1} AS v FROM {3}) a USING (k)"
                                " WHERE ROW(t.*) IS DISTINCT FROM ROW(a.*)",
                                key, archived, shown, archive())),
              "0");
    EXPECT_EQ(value("SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE"
                    " n.nspname = 'crossfade' AND c.relname LIKE 'archive\\_log%'"),
              "0");
    EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), "0");
  }

  // Until the old column is gone.
  void write(int seed) {
    ApplicationSession session(dsn());
    const auto there = fmt::format(" AND ({} IS NULL OR true)", old_);
    for (int i = seed; !stop_; i += 7) {
      const auto id = std::to_string(1 + i * 131 % 14000);
      try {
        switch (i % 5) {
          case 0:
            session.run(
                fmt::format("INSERT INTO t (id, b, n) SELECT {0}, {1}, 0 WHERE NOT EXISTS (SELECT {2} FROM t"
                            " WHERE id = {0}) ON CONFLICT DO NOTHING",
                            i % 2 == 0 ? id : std::to_string(20000 + i), i, old_));
            break;
          case 1:
            session.run(fmt::format("DELETE FROM t WHERE id = {}{}", id, there));
            break;
          case 2:
            session.run(fmt::format("UPDATE t SET id = id + 100000 WHERE id = {}{}", id, there));
            break;
          case 3:
            session.run(fmt::format("UPDATE t SET b = {} WHERE id = {}{}", i, id, there));
            break;
          default:
            session.run(fmt::format(
                "BEGIN; UPDATE t SET b = -1 WHERE id = {0}{1}; DELETE FROM t WHERE id = {0}{1}; {2}", id,
                there, i % 2 == 0 ? "COMMIT" : "ROLLBACK"));
        }
        ++written_;
      } catch (const ApplicationError& error) {
        if (error.sqlstate() == "42703") return;
        session.run("ROLLBACK");
        if (error.sqlstate() != "23505") ADD_FAILURE() << error.what();
      }
    }
  }

  std::optional<Migrator> migrator_;
  std::string spec_, old_;
  std::atomic<bool> stop_{false};
  std::atomic<int> written_{0};
};

TEST_F(ArchiveTest, HoldsTheOldValuesOfTheMomentOfTheDrop) {
  prepare();
  std::vector<std::thread> writers;
  for (int seed = 1; seed <= 3; ++seed) writers.emplace_back([this, seed] { write(seed); });
  try {
    advance(Phase::dropped);
  } catch (const Error& error) {
    ADD_FAILURE() << error.message();
    stop_ = true;
  }
  for (auto& writer : writers) writer.join();
  EXPECT_GT(written_, 0);
  expect_archived();
}

TEST_F(ArchiveTest, SurvivesAKillAtEachMoment) {
  prepare();
  for (const auto* failpoint : {"archive.chunk", "archive.chunk", "archive.replay",
                                "switched_to_dropped.before", "switched_to_dropped.locked"}) {
    SCOPED_TRACE(failpoint);
    killed_at(failpoint);
    sql(
        fmt::format("DELETE FROM t WHERE id % 10 = {0}; UPDATE t SET b = b + 1 WHERE id % 11 = {0};"
                    "UPDATE t SET id = -id WHERE id % 13 = {0}; INSERT INTO t VALUES (50000 + {0}, 1, 1)",
                    written_++));
  }
  advance(Phase::dropped);
  expect_archived();
}

TEST_F(ArchiveTest, BeginsAgainAfterTheTableWasEmptied) {
  prepare();
  killed_at("archive.replay");
  sql("TRUNCATE t; INSERT INTO t (id, b, n) SELECT g, g, g FROM generate_series(5, 300) g");
  EXPECT_THROW(advance(Phase::dropped), Error);
  migrator_->recapture("m");
  advance(Phase::dropped);
  expect_archived();
  EXPECT_EQ(value("SELECT count(*) FROM " + archive()), "296");
}

TEST_F(ArchiveTest, IsKeptBesideTheNewKeyWhenTheKeyItselfWasMigrated) {
  prepare("id");
  advance(Phase::dropped);
  expect_archived("id", old_, "id::int");
}

TEST_F(ArchiveTest, BelongsToTheOwnerAloneAndSaysWhatItIs) {
  prepare("b", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC");
  EXPECT_EQ(migrator_->status("m").archive, std::nullopt);
  advance(Phase::dropped);
  EXPECT_EQ(migrator_->status("m").archive, "public." + archive());
  EXPECT_EQ(value("SELECT count(*) FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = '" + archive() +
                  "'::regclass AND x.grantee <> c.relowner"),
            "0");
  EXPECT_NE(
      value("SELECT obj_description('" + archive() + "'::regclass, 'pg_class')").find("column b of public.t"),
      std::string::npos);
}

TEST_F(ArchiveTest, GoesWithTheWayBack) {
  prepare();
  const auto triggers = value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass");
  killed_at("switched_to_dropped.before");
  EXPECT_NE(archive(), "");
  migrator_->rollback("m");
  EXPECT_EQ(archive(), "");
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), triggers);
  advance(Phase::switched);
  advance(Phase::dropped);
  expect_archived();
}

// A way back that is refused: what it had made would still be there.
TEST_F(ArchiveTest, IsNotMadeForAWayBack) {
  prepare();
  sql("UPDATE t SET b = 3000000000 WHERE id = 5");
  EXPECT_THROW(migrator_->rollback("m"), Error);
  EXPECT_EQ(archive(), "");
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname LIKE "
                  "'%archive%'"),
            "0");
}

TEST_F(ArchiveTest, IsMadeForEachColumnOfAGroupAlsoOfOneTable) {
  sql("CREATE TABLE p (code int PRIMARY KEY, up int REFERENCES p);"
      "INSERT INTO p SELECT g, nullif(g / 2, 0) FROM generate_series(1, 500) g;"
      "CREATE TABLE c (id int PRIMARY KEY, a int NOT NULL REFERENCES p, b int REFERENCES p);"
      "INSERT INTO c SELECT g, 1 + g % 500, nullif(g % 7, 0) FROM generate_series(1, 6000) g;");
  migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
  migrator_->init();
  migrator_->start(
      {"[migration]\nname = \"m\"\ntable = \"public.p\"\n[[column]]\nname = \"code\"\ntype = \"bigint\"\n"
       "[switch]\nfollow_foreign_keys = true\n[drop]\nsoak = \"0s\"\narchive = \"table\"\n"});
  advance(Phase::switched);
  sql("UPDATE c SET b = 500 - id WHERE id < 400; DELETE FROM c WHERE id > 5000");
  killed_at("archive.replay");
  sql("UPDATE c SET b = id WHERE id < 300; UPDATE p SET up = 1 WHERE code > 400");
  advance(Phase::dropped);
  const auto archived = [&](const std::string& table, const std::string& column) {
    return value(
        "SELECT attrelid::regclass FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE relname "
        "LIKE $1 AND relkind = 'r' AND attname = $2",
        {table + "\\_cfarchive\\_%", column});
  };
  for (const auto* column : {"a", "b"}) {
    EXPECT_EQ(value(fmt::format("SELECT count(*) FROM c FULL JOIN {0} o USING (id) WHERE"
                                " o.{1} IS DISTINCT FROM c.{1} OR pg_typeof(o.{1}) <> 'int'::regtype",
                                archived("c", column), column)),
              "0");
  }
  EXPECT_EQ(value(fmt::format("SELECT count(*) FROM p FULL JOIN {} o USING (code) WHERE o.up IS DISTINCT FROM"
                              " p.up",
                              archived("p", "up"))),
            "0");
  EXPECT_EQ(value("SELECT count(*) FROM pg_class WHERE relname LIKE '%\\_cfarchive\\_%' AND relkind = 'r'"),
            "4");
}

TEST_F(ArchiveTest, IsMadeAnewWithTheCapture) {
  prepare();
  killed_at("archive.replay");
  const auto trigger = value(
      "SELECT quote_ident(tgname) FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname LIKE "
      "'~~~crossfade\\_archive\\_%' AND tgtype & 1 = 1");
  sql("ALTER TABLE t DISABLE TRIGGER " + trigger +
      "; DELETE FROM t WHERE id < 100; ALTER TABLE t ENABLE ALWAYS TRIGGER " + trigger);
  EXPECT_THROW(advance(Phase::dropped), Error);
  migrator_->recapture("m");
  advance(Phase::dropped);
  expect_archived();
}

TEST_F(ArchiveTest, IsInThePlanAndNotBegunBeforeTheDropIsAskedFor) {
  prepare();
  const auto plan = migrator_->plan({spec_});
  EXPECT_EQ(std::ranges::count_if(plan.statements,
                                  [](const PlannedStatement& statement) {
                                    return statement.phase == Phase::switched &&
                                           statement.sql.find("_cfarchive_") != std::string::npos &&
                                           statement.step == "work";
                                  }),
            3);
  EXPECT_EQ(archive(), "");
  EXPECT_THROW(migrator_->next("m"), Error);
  EXPECT_EQ(archive(), "");
}

}  // namespace
}  // namespace crossfade::test

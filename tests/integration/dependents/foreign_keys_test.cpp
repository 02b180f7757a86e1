// Foreign keys that follow the column: the columns that refer to it move with it, as one migration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"
#include "support/live_family.hpp"

namespace crossfade::test {
namespace {

class ForeignKeysTest : public DatabaseTest {
 protected:
  void SetUp() override {
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
  }

  static std::string spec(const std::string& table = "public.p", const std::string& column = "code") {
    return fmt::format(
        "[migration]\nname = \"m\"\ntable = \"{}\"\n[[column]]\nname = \"{}\"\ntype = \"bigint\"\n"
        "[switch]\nfollow_foreign_keys = true\nattempts = 10000\n[drop]\nsoak = \"0s\"\n",
        table, column);
  }

  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    if (phase == Phase::dropped) options.confirm = "m";
    while (true) {
      try {
        migrator_->next("m", options);
        return;
      } catch (const Error& error) {
        // What time alone brings: a snapshot that is a little older than our last write.
        if (error.code() != ErrorCode::old_snapshot && error.code() != ErrorCode::not_ready) throw;
      }
    }
  }

  void roll_back(Phase phase) {
    while (true) {
      try {
        migrator_->rollback("m", {.to = phase, .accept = {}});
        return;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::old_snapshot && error.code() != ErrorCode::not_ready) throw;
      }
    }
  }

  std::vector<std::string> lines(const std::vector<std::string>& tables) {
    ApplicationSession owner(dsn());
    std::vector<std::string> all;
    for (const auto& table : tables) {
      for (auto& line : describe_catalog(owner, "public." + table)) all.push_back(table + ": " + line);
    }
    return all;
  }

  // Of the constraints that PostgreSQL would not have let in.
  void expect_no_orphans() {
    EXPECT_EQ(value("SELECT count(*) FROM c1 WHERE NOT EXISTS (SELECT FROM p WHERE p.code = c1.code)"), "0");
    EXPECT_EQ(value("SELECT count(*) FROM c2 WHERE code IS NOT NULL AND NOT EXISTS"
                    " (SELECT FROM p WHERE (p.tenant, p.code) = (c2.tenant, c2.code))"),
              "0");
    EXPECT_EQ(value("SELECT count(*) FROM g WHERE c_code IS NOT NULL AND NOT EXISTS"
                    " (SELECT FROM c3 WHERE c3.code = g.c_code)"),
              "0");
    EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND NOT convalidated"), "0");
  }

  std::string types(const std::string& column = "code") {
    return value(
        "SELECT string_agg(DISTINCT format_type(atttypid, atttypmod), ' ') FROM pg_attribute a"
        " JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'public'::regnamespace"
        " AND c.relkind = 'r' AND a.attname IN ('c_code', $1)",
        {column});
  }

  std::optional<Migrator> migrator_;
};

TEST_F(ForeignKeysTest, TheFamilyMovesThereAndBackUnderItsApplication) {
  sql(family_sql(300));
  const auto before = lines(kFamily);
  LiveFamily family(dsn(), 2);
  family.let_write(20);
  migrator_->start({spec()});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "5");
  advance(Phase::switched);
  family.let_write(50);
  EXPECT_EQ(types(), "bigint");
  roll_back(Phase::compare);
  family.let_write(20);
  EXPECT_EQ(types(), "integer");
  advance(Phase::switched);
  family.let_write(20);
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines(kFamily), before);
  migrator_->start({spec()});
  advance(Phase::dropped);
  family.stop();
  EXPECT_EQ(types(), "bigint");
  expect_no_orphans();
  // Nothing but the columns is another, and nothing of ours is left.
  auto after = lines(kFamily), wanted = before;
  std::ranges::sort(after);
  std::ranges::sort(wanted);
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(wanted, after, std::back_inserter(differing));
  std::erase_if(differing, [](const std::string& line) {
    return line.find(": column code ") != std::string::npos ||
           line.find(": column c_code ") != std::string::npos ||
           line.find(": view column family.") != std::string::npos;
  });
  EXPECT_EQ(differing, std::vector<std::string>{});
  for (const auto& line : after) EXPECT_EQ(line.find("_cf"), std::string::npos) << line;
}

// Parent and child are the same table: two columns of it move together, and each sweep meets the other's
// trigger.
TEST_F(ForeignKeysTest, ATableThatRefersToItself) {
  sql("CREATE TABLE t (id int PRIMARY KEY, boss int REFERENCES t ON DELETE SET NULL ON UPDATE CASCADE,"
      " n int NOT NULL DEFAULT 0); CREATE INDEX ON t (boss);"
      "INSERT INTO t (id, boss) SELECT i, nullif(i / 2, 0) FROM generate_series(1, 500) i");
  const auto before = lines({"t"});
  migrator_->start({spec("public.t", "id")});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration WHERE table_oid = 't'::regclass"), "2");
  advance(Phase::backfill);
  sql("INSERT INTO t (id, boss) VALUES (1001, 1); UPDATE t SET id = 1002 WHERE id = 1001;"
      "INSERT INTO t (id, boss) VALUES (1003, 1003); DELETE FROM t WHERE id = 7; UPDATE t SET n = 1");
  advance(Phase::switched);
  EXPECT_EQ(value("SELECT string_agg(DISTINCT format_type(atttypid, -1), ' ') FROM pg_attribute"
                  " WHERE attrelid = 't'::regclass AND attname IN ('id', 'boss')"),
            "bigint");
  sql("INSERT INTO t (id, boss) VALUES (2001, 2001), (2002, 2001); UPDATE t SET id = 2003 WHERE id = 2001;"
      "DELETE FROM t WHERE id = 2; UPDATE t SET n = 2");
  EXPECT_EQ(value("SELECT boss FROM t WHERE id = 2002"), "2003");
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE boss = 2"), "0");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines({"t"}), before);
  EXPECT_EQ(value("SELECT boss FROM t WHERE id = 2002"), "2003");
  migrator_->start({spec("public.t", "id")});
  advance(Phase::dropped);
  sql("INSERT INTO t (id, boss) VALUES (5000000000, 5000000000)");
}

// The usual case: a primary key from a sequence, and what refers to it.
TEST_F(ForeignKeysTest, AKeyWithItsChildren) {
  sql("CREATE TABLE p (id serial PRIMARY KEY, n int NOT NULL DEFAULT 0);"
      "CREATE TABLE c (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, p_id int NOT NULL REFERENCES p);"
      "CREATE TABLE d (p_id int, k int, PRIMARY KEY (p_id, k), FOREIGN KEY (p_id) REFERENCES p ON DELETE "
      "CASCADE);"
      // One column under two constraints, and two columns of one table with what stands on both.
      "CREATE TABLE e (id int PRIMARY KEY, p_id int REFERENCES p, k int,"
      " FOREIGN KEY (p_id, k) REFERENCES d (p_id, k));"
      "CREATE TABLE f (id int PRIMARY KEY, a int REFERENCES p, b int REFERENCES p, CHECK (a <> b));"
      "CREATE VIEW both_of AS SELECT f.id, a, b, p.n FROM f JOIN p ON p.id = f.a;"
      "CREATE VIEW upon AS SELECT a + b AS sum FROM both_of;"
      "INSERT INTO p (n) SELECT 1 FROM generate_series(1, 300);"
      "INSERT INTO c (p_id) SELECT id FROM p; INSERT INTO d SELECT id, 1 FROM p;"
      "INSERT INTO e SELECT id, id, 1 FROM p WHERE id % 2 = 0;"
      "INSERT INTO f SELECT id, id, id + 1 FROM p WHERE id < 300 AND id > 1");
  const auto before = lines({"p", "c", "d", "e", "f"});
  migrator_->start({spec("public.p", "id")});
  advance(Phase::switched);
  sql("INSERT INTO p (n) VALUES (2); INSERT INTO c (p_id) SELECT max(id) FROM p; DELETE FROM c WHERE p_id = "
      "1;"
      "DELETE FROM p WHERE id = 1");
  EXPECT_EQ(value("SELECT sum(sum) FROM upon"), value("SELECT sum(a + b) FROM f"));
  migrator_->recapture("m");
  advance(Phase::switched);
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines({"p", "c", "d", "e", "f"}), before);
  migrator_->start({spec("public.p", "id")});
  advance(Phase::switched);
  // A value that the old columns cannot hold shuts the way back, and says where.
  sql("INSERT INTO p (id) VALUES (5000000000); INSERT INTO c (p_id) VALUES (5000000000)");
  try {
    migrator_->rollback("m");
    ADD_FAILURE() << "went back over a value that does not fit";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("does not fit the old column"), std::string::npos) << error.message();
  }
  EXPECT_EQ(migrator_->misfits("m").size(), 2U);
  EXPECT_EQ(migrator_->status("m").misfits, 2);
  advance(Phase::dropped);
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND convalidated AND connamespace ="
                  " 'public'::regnamespace"),
            "6");
}

// Whoever began by hand: a child that is wide already stays as it is, row for row; its foreign key is taken
// away and made again with the key that it refers to, in the same moment. What refers to it and is narrow
// follows.
TEST_F(ForeignKeysTest, AChildThatIsWideAlreadyStaysAndItsForeignKeyMoves) {
  sql("CREATE TABLE p (id int PRIMARY KEY, up bigint REFERENCES p ON DELETE SET NULL);"
      "CREATE TABLE c (id int, p_id bigint UNIQUE CONSTRAINT fk REFERENCES p ON DELETE CASCADE DEFERRABLE);"
      "CREATE TABLE e (p_id bigint CONSTRAINT fk REFERENCES p ON UPDATE CASCADE);"
      "CREATE TABLE f (id int PRIMARY KEY, p_id int REFERENCES c (p_id));"
      "CREATE TABLE g (p_id bigint REFERENCES c (p_id));"
      "COMMENT ON CONSTRAINT fk ON e IS 'theirs';"
      "INSERT INTO p SELECT g, nullif(g / 2, 0) FROM generate_series(1, 50) g;"
      "INSERT INTO c SELECT id, id FROM p; INSERT INTO e SELECT id FROM p; INSERT INTO f SELECT id, id FROM "
      "p;"
      "INSERT INTO g SELECT id FROM p");
  const std::vector<std::string> all{"p", "c", "e", "f", "g"};
  const auto before = lines(all);
  const auto storage = [&] {
    return value("SELECT string_agg(ctid || ':' || xmin, ',' ORDER BY id) FROM c") +
           value("SELECT string_agg(ctid || ':' || xmin, ',' ORDER BY p_id) FROM e");
  };
  const auto rows = storage();
  const auto plan = migrator_->plan({spec("public.p", "id")});
  ASSERT_EQ(plan.members.size(), 1U);
  EXPECT_EQ(plan.members[0].table, "public.f");
  EXPECT_EQ(std::ranges::count_if(
                plan.carried,
                [](const std::string& line) { return line.find("stays as it is") != std::string::npos; }),
            3);
  migrator_->start({spec("public.p", "id")});
  advance(Phase::switched);
  const auto refers_to = [&](const std::string& table) {
    return value(
        "SELECT string_agg(a.attname || ' ' || k.convalidated, ',') FROM pg_constraint k JOIN "
        "pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = k.confkey[1] WHERE k.contype = 'f' "
        "AND k.conrelid = $1::regclass AND k.confrelid = 'p'::regclass",
        {table});
  };
  for (const auto* table : {"p", "c", "e"}) EXPECT_EQ(refers_to(table), "id true") << table;
  EXPECT_EQ(storage(), rows) << "no row of a table that stays is written";
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN ('c'::regclass, "
                  "'e'::regclass, 'g'::regclass)"),
            "0");
  // The constraints hold over the new key, with their actions.
  sql("INSERT INTO p (id) VALUES (3000000000); INSERT INTO e VALUES (3000000000);"
      "UPDATE p SET id = 3000000001 WHERE id = 3000000000");
  EXPECT_EQ(value("SELECT max(p_id) FROM e"), "3000000001");
  EXPECT_THROW(sql("INSERT INTO c VALUES (51, 51)"), Error);
  sql("DELETE FROM e WHERE p_id > 50; DELETE FROM p WHERE id > 50");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines(all), before);
  EXPECT_EQ(value("SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 'p'::regclass AND "
                  "attname = 'id'"),
            "integer");
  EXPECT_THROW(sql("INSERT INTO e VALUES (51)"), Error);
  migrator_->start({spec("public.p", "id")});
  advance(Phase::dropped);
  EXPECT_EQ(refers_to("e"), "id true");
  EXPECT_EQ(storage(), rows);
}

// Of another width than either: it moves.
TEST_F(ForeignKeysTest, AChildThatIsNarrower) {
  sql("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p_id int REFERENCES p);"
      "CREATE TABLE d (id int PRIMARY KEY, p_id smallint REFERENCES p);"
      "INSERT INTO p SELECT generate_series(1, 50); INSERT INTO c SELECT id, id FROM p; INSERT INTO d TABLE "
      "c");
  const auto before = lines({"p", "c", "d"});
  migrator_->start({spec("public.p", "id")});
  advance(Phase::switched);
  EXPECT_EQ(value("SELECT count(*) FROM c JOIN d USING (p_id)"), "50");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines({"p", "c", "d"}), before);
}

TEST_F(ForeignKeysTest, StatusAndPlanShowTheMembers) {
  sql(family_sql(20));
  const auto plan = migrator_->plan({spec()});
  ASSERT_EQ(plan.members.size(), 4U);
  std::string sent;
  for (const auto& statement : plan.statements) sent += statement.sql;
  for (const auto* constraint : {"c1_code_fkey", "two", "c3_code_fkey", "g_c_code_fkey"})
    EXPECT_NE(sent.find(fmt::format("ADD CONSTRAINT \"{}\" FOREIGN KEY", constraint)), std::string::npos);
  migrator_->start({spec()});
  advance(Phase::backfill);
  const auto status = migrator_->status("m");
  ASSERT_EQ(status.members.size(), 4U);
  EXPECT_EQ(status.rows.done, 100);
  for (const auto& member : status.members) {
    EXPECT_EQ(member.phase, Phase::backfill);
    EXPECT_EQ(member.status, Status::settled);
    EXPECT_EQ(member.rows.done, 20);
  }
  const auto reports = migrator_->dry_run_reports("m");
  ASSERT_EQ(reports.size(), 5U);
  EXPECT_EQ(reports.front().table + " " + reports.front().column, "public.p code");
  for (const auto& report : reports) EXPECT_EQ(report.found.rows, 20) << report.table << report.column;
  EXPECT_EQ(std::ranges::count(reports, "public.g", &DryRunReport::table), 1);
  EXPECT_EQ(migrator_->list().size(), 1U);
  EXPECT_THROW(migrator_->status({"", status.members.front().id}), Error);
  roll_back(Phase::rolled_back);
}

// The members' indexes are built first, the leader's last.
TEST_F(ForeignKeysTest, AWayBackThatTheLeaderRefusesLeavesNothingOnItsMembers) {
  sql(family_sql(50));
  sql("CREATE INDEX next_code ON p ((code + 1)); CREATE INDEX child_code ON c1 ((code + 1))");
  const auto before = lines(kFamily);
  migrator_->start({spec()});
  advance(Phase::switched);
  const auto owed = [&] {
    return value(
        "SELECT count(*) FROM pg_class WHERE relkind = 'i' AND relname ~ '^(next|child)_code_cfold'");
  };
  EXPECT_EQ(owed(), "0");
  sql("INSERT INTO p (id, tenant, code) VALUES (1000, 1, 2147483647)");
  try {
    roll_back(Phase::compare);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.message();
    EXPECT_NE(error.message().find("next_code"), std::string::npos) << error.message();
  }
  EXPECT_EQ(owed(), "0");
  for (const auto& warning : migrator_->status("m").warnings)
    EXPECT_EQ(warning.find("a way back was begun"), std::string::npos) << warning;
  sql("DELETE FROM p WHERE id = 1000");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines(kFamily), before);
}

class ForeignKeysRefusedTest : public ForeignKeysTest {
 protected:
  // start is refused with `finding`, and the message or hint names what stands in the way.
  void expect_refused(const std::string& finding, const std::string& named) {
    const auto plan = migrator_->plan({spec()});
    const auto found = std::ranges::find(plan.refusals, finding, &Finding::id);
    ASSERT_NE(found, plan.refusals.end()) << fmt::format("{}", fmt::join(ids(plan.refusals), ", "));
    EXPECT_NE((found->object + " " + found->message).find(named), std::string::npos) << found->message;
    EXPECT_THROW(migrator_->start({spec()}), Error);
    EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "0");
  }
  static std::vector<std::string> ids(const std::vector<Finding>& findings) {
    std::vector<std::string> list;
    for (const auto& finding : findings) list.push_back(finding.id + " " + finding.message);
    return list;
  }
};

TEST_F(ForeignKeysRefusedTest, AChildThatBelongsToAnotherRole) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE); CREATE TABLE c (id int PRIMARY KEY, code int"
      " REFERENCES p (code))");
  super_sql("CREATE ROLE other_owner; ALTER TABLE c OWNER TO other_owner");
  expect_refused("missing_privilege", "public.c");
  super_sql("DROP TABLE public.c; DROP ROLE other_owner");
}

TEST_F(ForeignKeysRefusedTest, AChildWithoutAKey) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE); CREATE TABLE c (code int REFERENCES p (code))");
  expect_refused("no_usable_key", "public.c");
}

TEST_F(ForeignKeysRefusedTest, AKeyThatIncludesTheColumnAndIsReferredToWithoutIt) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE, u int, UNIQUE (u) INCLUDE (code)); CREATE TABLE c"
      " (id int PRIMARY KEY, u int REFERENCES p (u))");
  expect_refused("dependent_not_carried", "p_u_code_key");
}

TEST_F(ForeignKeysRefusedTest, AConversionThatMayLoseSomething) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE); CREATE TABLE c (id int PRIMARY KEY, code int"
      " REFERENCES p (code))");
  auto text = spec();
  text.replace(text.find("bigint"), 6, "smallint");
  try {
    migrator_->start({text});
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("Foreign keys of public.c.code refer to code"), std::string::npos)
        << error.message();
  }
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "0");
}

TEST_F(ForeignKeysRefusedTest, WithoutFollowing) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE); CREATE TABLE c (id int PRIMARY KEY, code int"
      " REFERENCES p (code))");
  auto text = spec();
  text.replace(text.find("follow_foreign_keys = true"), 26, "follow_foreign_keys = false");
  const auto plan = migrator_->plan({text});
  ASSERT_EQ(plan.refusals.size(), 1U);
  EXPECT_EQ(plan.refusals.front().id, "dependent_not_carried");
  EXPECT_NE(plan.refusals.front().hint.find("follow_foreign_keys"), std::string::npos);
}

TEST_F(ForeignKeysRefusedTest, AChildOfAnotherOpenMigration) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE); CREATE TABLE c (id int PRIMARY KEY, n int, code "
      "int"
      " REFERENCES p (code))");
  auto other = spec("public.c", "n");
  other.replace(other.find("\"m\""), 3, "\"other\"");
  migrator_->start({other});
  try {
    migrator_->start({spec()});
    ADD_FAILURE() << "two migrations on one table";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::table_has_migration);
    EXPECT_NE(error.message().find("other"), std::string::npos);
    EXPECT_EQ(error.object(), "public.c");
  }
}

// One that comes after the plan has no member: the switch would have to drop it.
TEST_F(ForeignKeysTest, AForeignKeyThatComesLaterShutsTheGate) {
  sql("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE NOT NULL); CREATE TABLE c (id int PRIMARY KEY, "
      "code int"
      " REFERENCES p (code)); CREATE TABLE late (id int PRIMARY KEY, code int)");
  migrator_->start({spec()});
  advance(Phase::compare);
  sql("ALTER TABLE late ADD FOREIGN KEY (code) REFERENCES p (code)");
  try {
    migrator_->next("m", {});
    ADD_FAILURE() << "switched over a foreign key that nobody carries";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("late_code_fkey"), std::string::npos) << error.message();
  }
  EXPECT_EQ(value("SELECT string_agg(DISTINCT phase, ' ') FROM crossfade.migration"), "compare");
  sql("ALTER TABLE late DROP CONSTRAINT late_code_fkey");
  migrator_->recapture("m");
  advance(Phase::switched);
}

}  // namespace
}  // namespace crossfade::test

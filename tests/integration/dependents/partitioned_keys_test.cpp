// Foreign keys of partitioned tables: partitioned tables follow the column that they refer to.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"
#include "support/live_family.hpp"

namespace crossfade::test {
namespace {

class PartitionedKeysTest : public DatabaseTest {
 protected:
  void SetUp() override {
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
  }
  void TearDown() override { failpoint::configure(""); }

  static std::string spec(const std::string& column = "code") {
    return fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.p\"\n[[column]]\nname = \"{}\"\ntype = \"bigint\"\n"
        "[switch]\nfollow_foreign_keys = true\nattempts = 10000\n[drop]\nsoak = \"0s\"\n",
        column);
  }

  // What time alone brings is waited for.
  template <typename Call>
  static void patiently(Call call) {
    while (true) {
      try {
        return call();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::old_snapshot && error.code() != ErrorCode::not_ready) throw;
      }
    }
  }
  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    if (phase == Phase::dropped) options.confirm = "m";
    patiently([&] { migrator_->next("m", options); });
  }
  void roll_back(Phase phase) {
    patiently([&] { migrator_->rollback("m", {.to = phase, .accept = {}}); });
  }
  // As far as the moment before the transaction of a phase change.
  void stop_before(const std::string& change, const std::function<void()>& command) {
    failpoint::configure(change + ".before=error:57014");
    try {
      patiently(command);
      ADD_FAILURE() << "went through " << change;
    } catch (const Error& error) {
      EXPECT_EQ(error.sqlstate(), "57014") << error.message();
    }
    failpoint::configure("");
  }

  std::vector<std::string> catalog(const std::string& pattern = "%") {
    ApplicationSession owner(dsn());
    std::vector<std::string> all;
    for (const auto& row : owner.rows(fmt::format("SELECT relname FROM pg_class WHERE relnamespace = "
                                                  "'public'::regnamespace AND relkind IN ('r', 'p')"
                                                  " AND relname LIKE '{}' ORDER BY 1",
                                                  pattern))) {
      for (auto& line : describe_catalog(owner, "public." + row[0])) all.push_back(row[0] + ": " + line);
    }
    for (auto& row :
         owner.rows("SELECT concat_ws(' ', 'part of', k.conrelid::regclass, k.conname, p.conname)"
                    " FROM pg_constraint k JOIN pg_constraint p ON p.oid = k.conparentid ORDER BY 1"))
      all.push_back(std::move(row[0]));
    return all;
  }

  std::string count_of_forerunners() {
    return value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conname LIKE '%\\_cftwin\\_%'");
  }
  std::string unvalidated() {
    return value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND NOT convalidated");
  }

  std::optional<Migrator> migrator_;
};

TEST_F(PartitionedKeysTest, TheFamilyMovesThereAndBackUnderItsApplication) {
  sql(partitioned_family_sql(150));
  sql("CREATE SCHEMA twin");
  {
    ApplicationSession twin(dsn(), "SET search_path = twin");
    twin.run(partitioned_family_sql(150));
  }
  const auto before = catalog();
  std::string planned;
  for (const auto& statement : migrator_->plan({spec()}).statements) planned += statement.sql + "\n";
  for (const auto* leaf : {"c1_low", "c1_mid_0", "c1_mid_1", "c1_rest", "c2_minus", "c2_plus", "g_0", "g_1"})
    EXPECT_NE(planned.find(fmt::format("ALTER TABLE \"public\".\"{}\" VALIDATE", leaf)), planned.npos)
        << leaf;
  LiveFamily family(dsn(), 2, doubled(family_turn, "twin"));
  const auto expect_whole = [&] { EXPECT_EQ(apart(dsn(), "twin"), std::vector<std::string>{}); };
  family.let_write(20);
  migrator_->start({spec()});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "5");
  advance(Phase::compare);
  EXPECT_EQ(count_of_forerunners(), "0") << "they come at the last moment";
  stop_before("compare_to_switched", [&] { migrator_->next("m", {}); });
  EXPECT_EQ(count_of_forerunners(), "8");
  family.let_write(25);
  expect_whole();
  advance(Phase::switched);
  EXPECT_EQ(count_of_forerunners(), "0");
  EXPECT_EQ(unvalidated(), "0");
  family.let_write(25);
  expect_whole();
  stop_before("switched_to_compare", [&] { migrator_->rollback("m"); });
  EXPECT_EQ(count_of_forerunners(), "8");
  family.let_write(25);
  expect_whole();
  roll_back(Phase::compare);
  family.let_write(20);
  advance(Phase::switched);
  family.let_write(20);
  roll_back(Phase::rolled_back);
  expect_whole();
  EXPECT_EQ(catalog(), before);
  migrator_->start({spec()});
  advance(Phase::dropped);
  family.stop();
  expect_whole();
  EXPECT_EQ(unvalidated(), "0");
  auto after = catalog(), wanted = before;
  std::ranges::sort(after);
  std::ranges::sort(wanted);
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(wanted, after, std::back_inserter(differing));
  std::erase_if(differing, [](const std::string& line) {
    return line.find(": column code ") != std::string::npos ||
           line.find(": column c_code ") != std::string::npos;
  });
  EXPECT_EQ(differing, std::vector<std::string>{});
}

// What the switch relies on: PostgreSQL takes over what the leaves have, at any depth, and reads no row. A
// leaf without it is read.
TEST_F(PartitionedKeysTest, PostgresqlReadsNoRowOfAPartitionThatHasAnEqualConstraint) {
  sql("CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int, p_id int) PARTITION BY RANGE (id);"
      "CREATE TABLE c_a PARTITION OF c FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE c_b PARTITION OF c FOR VALUES FROM (10) TO (20) PARTITION BY LIST (id);"
      "CREATE TABLE c_b_1 PARTITION OF c_b DEFAULT;"
      "INSERT INTO p SELECT generate_series(0, 19); INSERT INTO c SELECT g, g FROM generate_series(0, 19) g");
  for (const auto* leaf : {"c_a", "c_b_1"}) {
    sql(fmt::format("ALTER TABLE {0} ADD CONSTRAINT own_{0} FOREIGN KEY (p_id) REFERENCES p NOT VALID",
                    leaf));
    sql(fmt::format("ALTER TABLE {0} VALIDATE CONSTRAINT own_{0}", leaf));
  }
  ApplicationSession session(dsn());
  const auto read = [&] {
    session.run("BEGIN; ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (p_id) REFERENCES p");
    const auto scans = session.value(
        "SELECT sum(seq_scan + coalesce(idx_scan, 0)) FROM pg_stat_xact_user_tables WHERE relname IN ('p', "
        "'c',"
        " 'c_a', 'c_b', 'c_b_1')");
    const auto parts =
        session.value("SELECT count(*) FROM pg_constraint WHERE conparentid <> 0 AND contype = 'f'");
    session.run("ROLLBACK");
    return scans + " scans, " + parts + " parts";
  };
  EXPECT_EQ(read(), "0 scans, 3 parts");
  sql("ALTER TABLE c_a DROP CONSTRAINT own_c_a");
  EXPECT_NE(read(), "0 scans, 3 parts");
}

// Every action, while the forerunners stand in either direction: they do what the constraint says, once, and
// refuse nothing that it takes.
TEST_F(PartitionedKeysTest, EveryActionBesideTheForerunners) {
  const auto tables = [](const std::string& schema) {
    return fmt::format(
        "SET search_path = {0}; CREATE TABLE p (code int UNIQUE, n int, id int GENERATED ALWAYS AS IDENTITY"
        " PRIMARY KEY);"
        "CREATE TABLE c (id int PRIMARY KEY,"
        " cascading int REFERENCES p (code) ON UPDATE CASCADE ON DELETE CASCADE,"
        " emptied int REFERENCES p (code) ON UPDATE SET NULL ON DELETE SET NULL,"
        " defaulted int DEFAULT 1 REFERENCES p (code) ON UPDATE SET DEFAULT ON DELETE SET DEFAULT,"
        " late int CONSTRAINT late REFERENCES p (code) DEFERRABLE,"
        " held int REFERENCES p (code) ON UPDATE RESTRICT ON DELETE RESTRICT) PARTITION BY RANGE (id);"
        "CREATE TABLE c_a PARTITION OF c FOR VALUES FROM (0) TO (50);"
        "CREATE TABLE c_b PARTITION OF c FOR VALUES FROM (50) TO (1000);"
        "CREATE TABLE log (id int, what text); INSERT INTO p SELECT generate_series(1, 200);"
        "INSERT INTO c (id, cascading) SELECT g, g FROM generate_series(1, 99) g;"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SET search_path = {0} AS 'BEGIN INSERT INTO "
        "log"
        " VALUES (coalesce(new.id, old.id), tg_op); RETURN NULL; END';"
        "CREATE TRIGGER noted AFTER UPDATE OR DELETE ON c FOR EACH ROW EXECUTE FUNCTION note()",
        schema);
  };
  sql("CREATE SCHEMA twin");
  for (const auto* schema : {"public", "twin"}) ApplicationSession(dsn()).run(tables(schema));
  // The same of both, with the same answer.
  const auto run = [&](const std::string& statements) {
    std::vector<std::string> answers;
    for (const auto* schema : {"public", "twin"}) {
      ApplicationSession session(dsn(), fmt::format("SET search_path = {}", schema));
      try {
        session.run("BEGIN;" + statements + ";COMMIT");
        answers.emplace_back("done");
      } catch (const ApplicationError& error) {
        answers.push_back(error.sqlstate());
      }
    }
    EXPECT_EQ(answers[0], answers[1]) << statements;
  };
  const auto rows = [&](const std::string& schema) {
    return value(fmt::format(
        "SELECT string_agg(concat_ws('|', id, coalesce(cascading, -1), coalesce(emptied, -1),"
        " coalesce(defaulted, -1), coalesce(late, -1), coalesce(held, -1)), ' ' ORDER BY id) FROM {}.c",
        schema));
  };
  const auto log = [&](const std::string& schema) {
    return value(fmt::format("SELECT string_agg(id || what, ' ' ORDER BY id, what) FROM {}.log", schema));
  };
  const auto expect_same = [&] { EXPECT_EQ(rows("public"), rows("twin")); };
  const auto all_actions = [&](int from) {
    const auto with = [&](const char* text, int offset) {
      return fmt::format(fmt::runtime(text), from + offset, from + offset + 500);
    };
    sql("DELETE FROM public.log; DELETE FROM twin.log");
    for (int id = from; id < from + 20; ++id) {
      run(fmt::format("UPDATE c SET emptied = {0} + 20, defaulted = {0} + 21, held = {0} + 22 WHERE id = {0}",
                      id));
    }
    run(with("UPDATE p SET code = {1} WHERE code = {0}", 0));
    run(with("DELETE FROM p WHERE code = {0}", 1));
    run(with("UPDATE p SET code = {1} WHERE code = {0}", 21));
    run(with("DELETE FROM p WHERE code = {0}", 30));
    run(with("UPDATE p SET code = {1} WHERE code = {0}", 41));
    run(with("DELETE FROM c WHERE id = {0}; DELETE FROM p WHERE code = {0}", 3));
    run(with("INSERT INTO c (id, cascading) VALUES ({0}, 999)", 600));
    run(
        with("SET CONSTRAINTS late DEFERRED; INSERT INTO c (id, late) VALUES ({1}, {1} + 1000);"
             "INSERT INTO p VALUES ({1} + 1000)",
             4));
    run(with("SET CONSTRAINTS ALL DEFERRED; INSERT INTO c (id, late) VALUES ({1}, {1} + 1000)", 5));
    run(with(
        "INSERT INTO p VALUES ({1} + 2000); INSERT INTO c (id, cascading, emptied, defaulted) VALUES ({1},"
        " {1} + 2000, {1} + 2000, {1} + 2000); UPDATE p SET code = code + 1000 WHERE code = {1} + 2000",
        6));
    run(with("UPDATE c SET id = {0} + 700 WHERE id = {0}", 7));
    run(with("DELETE FROM p WHERE code = {0}", 7));
    expect_same();
    EXPECT_EQ(log("public"), log("twin")) << "a row was written more than once, or not at all";
  };
  migrator_->start({spec()}, {{"user_trigger_fires", "its log is emptied before each look"}});
  advance(Phase::compare);
  stop_before("compare_to_switched", [&] { migrator_->next("m", {}); });
  EXPECT_EQ(count_of_forerunners(), "10");
  // Whatever is to happen because of the constraint has happened when theirs fire.
  EXPECT_EQ(
      value(
          "SELECT count(*) FROM pg_trigger t JOIN pg_constraint k ON k.oid = t.tgconstraint"
          " WHERE t.tgrelid = 'p'::regclass AND k.conname LIKE '%\\_cftwin\\_%' AND t.tgname COLLATE \"C\" >"
          " (SELECT max(o.tgname COLLATE \"C\") FROM pg_trigger o JOIN pg_constraint r ON r.oid ="
          " o.tgconstraint WHERE o.tgrelid = 'p'::regclass AND r.conname NOT LIKE '%\\_cftwin\\_%' AND"
          " o.tgname LIKE '%\\_a\\_%')"),
      "20");
  all_actions(2);
  advance(Phase::switched);
  const auto first = migrator_->status("m").rollback.does_first;
  EXPECT_GE(std::ranges::count_if(
                first, [](const auto& work) { return work.find("foreign key ") != std::string::npos; }),
            5)
      << fmt::format("{}", fmt::join(first, "; "));
  stop_before("switched_to_compare", [&] { migrator_->rollback("m"); });
  EXPECT_EQ(count_of_forerunners(), "10");
  all_actions(52);
  // A value that the old column cannot hold goes down to the children, and is no reason to lose theirs.
  sql("UPDATE p SET code = 5000000000 WHERE code = 96");
  EXPECT_EQ(value("SELECT cascading FROM c WHERE id = 96"), "5000000000");
  EXPECT_THROW(migrator_->rollback("m"), Error);
  sql("UPDATE p SET code = 96 WHERE code = 5000000000");
  roll_back(Phase::compare);
  expect_same();
  // Further back they go.
  stop_before("compare_to_switched",
              [&] { migrator_->next("m", {.until = Phase::switched, .confirm = {}, .accept = {}}); });
  EXPECT_EQ(count_of_forerunners(), "10");
  roll_back(Phase::dual_write);
  EXPECT_EQ(count_of_forerunners(), "0");
  roll_back(Phase::rolled_back);
  expect_same();
}

// Both columns of a foreign key move, and a unique constraint stands on both: one of them makes what is to be
// made.
TEST_F(PartitionedKeysTest, AForeignKeyOverTwoColumnsThatMoveTogether) {
  sql("CREATE TABLE p (code int PRIMARY KEY, up int NOT NULL REFERENCES p, UNIQUE (up, code));"
      "CREATE TABLE c (k int, a int, b int NOT NULL, PRIMARY KEY (b, k, a),"
      " CONSTRAINT two FOREIGN KEY (b, a) REFERENCES p (code, up)) PARTITION BY RANGE (k);"
      "CREATE TABLE c_0 PARTITION OF c FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE c_10 PARTITION OF c FOR VALUES FROM (10) TO (20) PARTITION BY LIST (k);"
      "CREATE TABLE c_10_1 PARTITION OF c_10 DEFAULT;"
      "INSERT INTO p SELECT g, (g + 1) / 2 FROM generate_series(1, 100) g;"
      "INSERT INTO c SELECT code % 20, up, code FROM p");
  const auto before = catalog();
  const auto write = [&](int code) {
    sql(fmt::format("INSERT INTO p VALUES ({0}, 7); INSERT INTO c VALUES (1, 7, {0}), (11, 7, {0})", code));
    for (const int k : {1, 11}) {
      EXPECT_THROW(sql(fmt::format("INSERT INTO c (k, a, b) VALUES ({}, 8, {})", k, code)), Error);
      EXPECT_THROW(sql(fmt::format("INSERT INTO c (k, a, b) VALUES ({}, 7, {})", k, code)), Error);
    }
    EXPECT_THROW(sql(fmt::format("DELETE FROM p WHERE code = {}", code)), Error);
  };
  migrator_->start({spec()});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "4");
  advance(Phase::compare);
  write(201);
  stop_before("compare_to_switched", [&] { migrator_->next("m", {}); });
  EXPECT_EQ(count_of_forerunners(), "2");
  write(202);
  advance(Phase::switched);
  EXPECT_EQ(count_of_forerunners(), "0");
  write(203);
  stop_before("switched_to_compare", [&] { migrator_->rollback("m"); });
  EXPECT_EQ(count_of_forerunners(), "2");
  write(204);
  roll_back(Phase::rolled_back);
  write(205);
  EXPECT_EQ(catalog(), before);
  migrator_->start({spec()});
  advance(Phase::dropped);
  sql("INSERT INTO p (code, up) VALUES (5000000000, 5000000000);"
      "INSERT INTO c (k, a, b) VALUES (1, 5000000000, 5000000000)");
  EXPECT_EQ(unvalidated(), "0");
}

class GrowingTest : public PartitionedKeysTest {
 protected:
  void make_tables(int rows) {
    sql(fmt::format(
        "CREATE TABLE p (code int PRIMARY KEY, n int);"
        "CREATE TABLE c (k int, id int, code int NOT NULL REFERENCES p ON DELETE CASCADE,"
        " PRIMARY KEY (k, id), UNIQUE (code, k, id)) PARTITION BY RANGE (k);"
        "CREATE TABLE c_0 PARTITION OF c FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE c_10 PARTITION OF c FOR VALUES FROM (10) TO (20);"
        "CREATE INDEX c_code ON c (code);"
        "INSERT INTO p SELECT generate_series(1, {0}); INSERT INTO c SELECT code % 20, code, code FROM p",
        rows));
  }
  // One that is made, and one that is attached with rows that name the columns as they are.
  void add_two(bool filled) {
    sql(
        fmt::format("CREATE TABLE c_{0} PARTITION OF c FOR VALUES FROM ({0}) TO ({1});"
                    "INSERT INTO c (k, id, code) VALUES ({0}, {0}, 1)",
                    next_, next_ + 10));
    next_ += 10;
    const auto shadow = value(
        "SELECT coalesce((SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid ="
        " 'c'::regclass AND attname ~ '_cf(new|old)_'), '')");
    const bool both = filled && !shadow.empty();
    sql(fmt::format(
        "CREATE TABLE c_{0} (LIKE c INCLUDING ALL); INSERT INTO c_{0} (k, id, code{2}) VALUES ({0}, 1,"
        " 2{3}); ALTER TABLE c ATTACH PARTITION c_{0} FOR VALUES FROM ({0}) TO ({1})",
        next_, next_ + 10, both ? ", " + shadow : "", both ? ", 2" : ""));
    next_ += 10;
  }
  // Each partition refuses an orphan, and loses its rows with their parent.
  void expect_bound() {
    EXPECT_EQ(
        value("SELECT count(*) FROM pg_constraint k WHERE contype = 'f' AND convalidated AND conparentid <> 0"
              " AND conname = 'c_code_fkey'"),
        value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'c'::regclass"));
    EXPECT_EQ(unvalidated(), "0");
    for (int k = 0; k < next_; k += 10) {
      if (std::ranges::find(detached_, k) != detached_.end()) continue;
      EXPECT_THROW(sql(fmt::format("INSERT INTO c (k, id, code) VALUES ({}, 7777, 7777)", k)), Error) << k;
      sql(fmt::format(
          "INSERT INTO p (code) VALUES (7777); INSERT INTO c (k, id, code) VALUES ({}, 7777, 7777);"
          "DELETE FROM p WHERE code = 7777",
          k));
    }
    EXPECT_EQ(value("SELECT count(*) FROM c WHERE id = 7777"), "0");
  }

  int next_ = 20;
  std::vector<int> detached_;
};

TEST_F(GrowingTest, PartitionsThatComeInEveryPhase) {
  make_tables(200);
  migrator_->start({spec()});
  for (const auto phase : {Phase::dry_run, Phase::backfill, Phase::dual_write, Phase::compare}) {
    advance(phase);
    SCOPED_TRACE(to_text(phase));
    add_two(phase == Phase::dual_write || phase == Phase::compare);
    expect_bound();
  }
  // While the forerunners stand: these two have none, and get theirs before the switch is made.
  stop_before("compare_to_switched",
              [&] { migrator_->next("m", {.until = Phase::switched, .confirm = {}, .accept = {}}); });
  add_two(true);
  expect_bound();
  advance(Phase::switched);
  expect_bound();
  add_two(true);
  expect_bound();
  stop_before("switched_to_compare", [&] { migrator_->rollback("m"); });
  add_two(true);
  roll_back(Phase::compare);
  expect_bound();
  advance(Phase::switched);
  advance(Phase::dropped);
  expect_bound();
}

// A table that is detached takes along its constraint, which refers to the column still, and a forerunner.
TEST_F(GrowingTest, APartitionThatIsDetachedIsNamedUntilItsForeignKeyIsGone) {
  make_tables(100);
  migrator_->start({spec()});
  advance(Phase::compare);
  stop_before("compare_to_switched", [&] { migrator_->next("m", {}); });
  EXPECT_EQ(count_of_forerunners(), "2");
  sql("ALTER TABLE c DETACH PARTITION c_10");
  detached_ = {10};
  try {
    patiently([&] {
      migrator_->next("m", {});
      ADD_FAILURE() << "switched over the foreign key of a table that nobody migrates";
    });
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("c_10"), std::string::npos) << error.message();
  }
  sql("ALTER TABLE c_10 DROP CONSTRAINT c_code_fkey");
  advance(Phase::switched);
  EXPECT_EQ(count_of_forerunners(), "0") << "the one on the detached table is gone";
  expect_bound();
  roll_back(Phase::rolled_back);
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND confrelid = 'p'::regclass"),
            "2");
}

// One that has the new type already: no row of it is touched, its partitions come and go as they like.
TEST_F(GrowingTest, APartitionedChildThatIsWideAlreadyStays) {
  sql("CREATE TABLE p (code int PRIMARY KEY, n int);"
      "CREATE TABLE c (k int, id int, code bigint NOT NULL REFERENCES p ON DELETE CASCADE) PARTITION BY "
      "RANGE (k);"
      "CREATE TABLE c_0 PARTITION OF c FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE c_10 PARTITION OF c FOR VALUES FROM (10) TO (20);"
      "INSERT INTO p SELECT generate_series(1, 200); INSERT INTO c SELECT code % 20, code, code FROM p");
  const auto before = catalog();
  const auto storage = [&] {
    return value(
        "SELECT string_agg(ctid || ':' || xmin, ',' ORDER BY k, id) FROM c WHERE k < 20 AND id < 300");
  };
  const auto rows = storage();
  migrator_->start({spec()});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "1");
  advance(Phase::compare);
  stop_before("compare_to_switched", [&] { migrator_->next("m", {}); });
  EXPECT_EQ(count_of_forerunners(), "2");
  advance(Phase::switched);
  expect_bound();
  roll_back(Phase::rolled_back);
  EXPECT_EQ(catalog(), before);
  migrator_->start({spec()});
  advance(Phase::compare);
  add_two(false);
  advance(Phase::switched);
  expect_bound();
  add_two(false);
  roll_back(Phase::compare);
  expect_bound();
  advance(Phase::dropped);
  expect_bound();
  EXPECT_EQ(storage(), rows);
  sql("INSERT INTO p (code) VALUES (5000000000); INSERT INTO c VALUES (1, 1, 5000000000)");
}

TEST_F(PartitionedKeysTest, WhatIsRefused) {
  const auto refusals = [&] {
    std::string all;
    for (const auto& finding : migrator_->plan({spec()}).refusals)
      all += fmt::format("{} {} {}\n", finding.id, finding.object, finding.message);
    return all;
  };
  // The column itself refers to a partitioned table.
  sql("CREATE TABLE q (id int PRIMARY KEY) PARTITION BY RANGE (id);"
      "CREATE TABLE q_1 PARTITION OF q FOR VALUES FROM (0) TO (100);"
      "CREATE TABLE p (id int PRIMARY KEY, code int CONSTRAINT far REFERENCES q) PARTITION BY RANGE (id)");
  EXPECT_NE(refusals().find("dependent_not_carried far on public.p"), std::string::npos) << refusals();
  // A child that stays as it is, but for a part that belongs to somebody else.
  sql("DROP TABLE p; DROP TABLE q; CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE);"
      "CREATE TABLE c (id int, code bigint CONSTRAINT near REFERENCES p (code)) PARTITION BY RANGE (id);"
      "CREATE TABLE c_1 PARTITION OF c FOR VALUES FROM (0) TO (9)");
  EXPECT_EQ(refusals(), "");
  super_sql("CREATE ROLE other_owner; ALTER TABLE c_1 OWNER TO other_owner");
  EXPECT_NE(refusals().find("partitions belong to other_owner"), std::string::npos) << refusals();
  super_sql("DROP TABLE public.c; DROP ROLE other_owner");
}

}  // namespace
}  // namespace crossfade::test

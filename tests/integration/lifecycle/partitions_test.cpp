// Partitioned tables: sub-partitions, a default partition, columns in another order, rows that move.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "crossfade/core/error.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class PartitionsTest : public DatabaseTest {
 protected:
  static constexpr const char* kSpec =
      "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
      "[switch]\nlock_timeout = \"50ms\"\nattempts = 12\n[tuning]\nchunk_target = \"10ms\"\n"
      "[drop]\nsoak = \"0s\"\n";

  Migrator& migrator() {
    if (!migrator_) {
      migrator_ = std::make_unique<Migrator>(
          MigratorOptions{.dsn = dsn(), .redis = {}, .operator_name = "ada", .host = "here"});
      migrator_->init();
    }
    return *migrator_;
  }

  void until(Phase phase) {
    NextOptions options;
    options.until = phase;
    if (phase == Phase::dropped) options.confirm = "m";
    migrator().next("m", options);
  }

  // All that the catalog says of the table and of each partition.
  std::vector<std::string> catalog() {
    ApplicationSession session(dsn());
    auto lines = describe_catalog(session, "t");
    for (const auto& row :
         session.rows("SELECT relid::text FROM pg_partition_tree('t') WHERE level > 0 ORDER BY 1")) {
      for (const auto& line : describe_catalog(session, row[0])) {
        if (!line.starts_with("relation ") && !line.starts_with("function "))
          lines.push_back(row[0] + ": " + line);
      }
    }
    return lines;
  }

  std::string shadow() {
    return value(
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname LIKE 'cf%'"
        " OR attrelid = 't'::regclass AND attname LIKE '%\\_' || (SELECT left(replace(id::text, '-', ''), 12)"
        " FROM crossfade.migration WHERE phase NOT IN ('dropped', 'rolled_back'))");
  }
  // Rows whose two sides are not the same number.
  std::string apart() {
    return value(fmt::format("SELECT count(*) FROM t WHERE b::bigint IS DISTINCT FROM {}::bigint", shadow()));
  }

  void two_partitions(int rows, const std::string& null = "NOT NULL") {
    sql(
        fmt::format("CREATE TABLE t (p int, id int, b int {} DEFAULT 1, PRIMARY KEY (p, id))"
                    " PARTITION BY RANGE (p);"
                    "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (10);"
                    "CREATE TABLE t_b PARTITION OF t FOR VALUES FROM (10) TO (20);"
                    "CREATE INDEX t_by_b ON t (b);"
                    "INSERT INTO t SELECT g % 20, g, g FROM generate_series(1, {}) g",
                    null, rows));
  }

 private:
  std::unique_ptr<Migrator> migrator_;
};

LifecycleScenario partitioned_scenario() {
  auto s = integer_scenario();
  s.setup =
      "CREATE TABLE t (p int, id int, b int DEFAULT 1 CHECK (b <> -7), n int NOT NULL DEFAULT 0,"
      " PRIMARY KEY (p, id)) PARTITION BY RANGE (p);"
      "COMMENT ON COLUMN t.b IS 'what it is';"
      "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE t_mid PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY HASH (id);"
      "CREATE TABLE t_mid_0 PARTITION OF t_mid FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
      "CREATE TABLE t_mid_1 PARTITION OF t_mid FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
      "CREATE TABLE t_other PARTITION OF t DEFAULT;"
      // Columns in another order and one that was dropped: numbers differ from the table's.
      "CREATE TABLE t_high (gone text, n int NOT NULL DEFAULT 0, b int DEFAULT 1 CONSTRAINT t_b_check CHECK "
      "(b <> "
      "-7), id int NOT NULL, p int NOT NULL);"
      "ALTER TABLE t_high DROP COLUMN gone;"
      "ALTER TABLE t ATTACH PARTITION t_high FOR VALUES FROM (20) TO (30);"
      "CREATE INDEX t_by_b ON t (b) WHERE n >= 0;"
      "CREATE UNIQUE INDEX t_once ON t (p, id, b);"
      "CREATE VIEW v AS SELECT p FROM t WHERE b > 0;"
      "INSERT INTO t (p, id, b) SELECT g * 7 % 40, g, g FROM generate_series(0, 1499) g";
  s.live.rows = 1500;
  s.live.key = {"p", "id"};
  s.live.key_of = [](std::int64_t n) {
    return std::vector<std::string>{std::to_string(n * 7 % 40), std::to_string(n)};
  };
  return s;
}

TEST_F(PartitionsTest, TheWholeLifeAndEveryWayBackUnderLiveWriters) {
  Lifecycle life(dsn(), partitioned_scenario());
  const auto before = catalog();
  life.walk_there_and_back();
  EXPECT_EQ(catalog(), before);
  life.finish();
  for (const auto& line : catalog()) {
    if (line.find(": column b ") != std::string::npos)
      EXPECT_NE(line.find("column b bigint"), std::string::npos) << line;
    else
      EXPECT_TRUE(std::ranges::binary_search(before, line) ||
                  std::ranges::find(before, line) != before.end() ||
                  line.find("column b bigint") != std::string::npos)
          << line;
  }
}

// UNIQUE over the column, in two levels, of which one part has a name of its own.
TEST_F(PartitionsTest, AUniqueConstraintUnderLiveWriters) {
  auto s = partitioned_scenario();
  s.setup +=
      ";ALTER TABLE t_high ADD CONSTRAINT of_high UNIQUE (b, p, id);"
      "ALTER TABLE t ADD CONSTRAINT whole UNIQUE (b, p, id);"
      "COMMENT ON CONSTRAINT whole ON t IS 'of all'; COMMENT ON CONSTRAINT of_high ON t_high IS 'of one'";
  Lifecycle life(dsn(), s);
  const auto before = catalog();
  EXPECT_NE(std::ranges::find_if(before, [](const auto& line) { return line.find("of_high") != line.npos; }),
            before.end());
  life.walk_there_and_back();
  EXPECT_EQ(catalog(), before);
  life.finish();
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint k JOIN pg_index i ON i.indexrelid = k.conindid"
                  " WHERE contype = 'u' AND k.conrelid::regclass::text ~ '^t(_[a-z]+(_[01])?)?$'"
                  " AND k.conrelid <> 't_twin'::regclass AND i.indisvalid"),
            "7");
}

// The usual case: a key from a sequence beside the partition key.
class PartitionedKeyTest : public PartitionsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void make_table() {
    sql(fmt::format(
        "CREATE TABLE t (b {}, p int NOT NULL, n int NOT NULL DEFAULT 0, PRIMARY KEY (b, p))"
        " PARTITION BY RANGE (p);"
        "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE t_b PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY LIST (p);"
        "CREATE TABLE t_b_1 PARTITION OF t_b DEFAULT;"
        "CREATE TABLE t_c (n int NOT NULL DEFAULT 0, p int NOT NULL, b int NOT NULL, CONSTRAINT of_c"
        " PRIMARY KEY (b, p));"
        "INSERT INTO t (p) SELECT g % 20 FROM generate_series(1, 500) g",
        GetParam()));
    const auto text = value(
        "SELECT coalesce(pg_get_expr(adbin, adrelid), '') FROM pg_attribute LEFT JOIN"
        " pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = 't'::regclass"
        " AND attname = 'b'");
    if (!text.empty()) sql("ALTER TABLE t_c ALTER b SET DEFAULT " + text);
    sql("ALTER TABLE t ATTACH PARTITION t_c FOR VALUES FROM (20) TO (30); INSERT INTO t (p) VALUES (20), "
        "(21)");
  }
  // The application, and what it relies on.
  void write() {
    sql("INSERT INTO t (p) SELECT g FROM generate_series(0, 29) g");
    sql("UPDATE t SET n = n + 1 WHERE p % 3 = 0; DELETE FROM t WHERE b % 7 = 0");
    sql("UPDATE t SET p = (p + 10) % 30 WHERE b % 11 = 0");
    for (const auto* leaf : {"t_a", "t_b_1", "t_c"}) {
      EXPECT_THROW(sql(fmt::format("INSERT INTO t (b, p) SELECT b, p FROM {} LIMIT 1", leaf)), Error) << leaf;
    }
    EXPECT_EQ(value("SELECT count(*) - count(DISTINCT b) FROM t"), "0");
  }
};

TEST_P(PartitionedKeyTest, BecomesWide) {
  make_table();
  const auto before = catalog();
  migrator().start({kSpec}, {});
  for (const auto phase :
       {Phase::dry_run, Phase::backfill, Phase::dual_write, Phase::compare, Phase::switched}) {
    until(phase);
    SCOPED_TRACE(to_text(phase));
    write();
  }
  until(Phase::switched);
  migrator().rollback("m");
  write();
  until(Phase::switched);
  write();
  migrator().rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(catalog(), before);
  write();
  migrator().start({kSpec}, {});
  int next = 30;
  for (const auto phase : {Phase::backfill, Phase::dual_write, Phase::compare, Phase::switched}) {
    until(phase);
    SCOPED_TRACE(to_text(phase));
    sql(
        fmt::format("CREATE TABLE t_{0} PARTITION OF t FOR VALUES FROM ({0}) TO ({1});"
                    "INSERT INTO t (p) VALUES ({0}), ({0})",
                    next, next + 10));
    next += 10;
    write();
  }
  // The partition that came after the switch has no index of the old column: it is built like the others.
  migrator().rollback("m");
  write();
  until(Phase::switched);
  sql("INSERT INTO t (b, p) VALUES (5000000000, 60)");
  EXPECT_THROW(sql("INSERT INTO t (b, p) VALUES (5000000000, 60)"), Error);
  until(Phase::dropped);
  write();
  EXPECT_EQ(value("SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class WHERE relnamespace = "
                  "'public'::regnamespace AND relname LIKE '%\\_cf%'"),
            "");
  EXPECT_EQ(
      value("SELECT string_agg(DISTINCT format_type(atttypid, -1), ' ') FROM pg_attribute WHERE attname = 'b'"
            " AND attrelid IN (SELECT relid FROM pg_partition_tree('t'))"),
      "bigint");
}

INSTANTIATE_TEST_SUITE_P(Kinds, PartitionedKeyTest,
                         ::testing::Values("serial", "int GENERATED BY DEFAULT AS IDENTITY"),
                         [](const auto& kind) { return kind.index == 0 ? "serial" : "identity"; });

TEST_F(PartitionsTest, AForeignKeyToTheTableIsRefused) {
  sql("CREATE TABLE t (b int, p int, PRIMARY KEY (b, p)) PARTITION BY RANGE (p);"
      "CREATE TABLE t_a PARTITION OF t DEFAULT;"
      "CREATE TABLE c (id int PRIMARY KEY, b int, p int, CONSTRAINT up FOREIGN KEY (b, p) REFERENCES t)");
  auto spec = std::string(kSpec);
  spec.replace(spec.find("[switch]\n"), 9, "[switch]\nfollow_foreign_keys = true\n");
  bool told = false;
  for (const auto& finding : migrator().plan({spec}).refusals) {
    told = told || (finding.object == "up on public.c" &&
                    finding.message.find("refers to a partitioned table") != std::string::npos);
  }
  EXPECT_TRUE(told);
}

// The column refers to another table, which is not migrated.
TEST_F(PartitionsTest, AForeignKeyOfTheColumnUnderLiveWriters) {
  auto s = partitioned_scenario();
  s.setup =
      "CREATE TABLE q (id bigint PRIMARY KEY); INSERT INTO q SELECT g FROM generate_series(1, 50) g;"
      "INSERT INTO q SELECT g FROM generate_series(3000000001, 3000000050) g;"
      "CREATE TABLE t (p int, id int, b int DEFAULT 1, n int NOT NULL DEFAULT 0, PRIMARY KEY (p, id),"
      " CONSTRAINT far FOREIGN KEY (b) REFERENCES q ON UPDATE CASCADE DEFERRABLE) PARTITION BY RANGE (p);"
      "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE t_mid PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY HASH (id);"
      "CREATE TABLE t_mid_0 PARTITION OF t_mid FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
      "CREATE TABLE t_mid_1 PARTITION OF t_mid FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
      "CREATE TABLE t_other PARTITION OF t DEFAULT;"
      "COMMENT ON CONSTRAINT far ON t IS 'to q'; COMMENT ON CONSTRAINT far ON t_low IS 'of one part';"
      "INSERT INTO t (p, id, b) SELECT g * 7 % 40, g, 1 + g % 50 FROM generate_series(0, 1499) g";
  s.live.value = [](Random& random, Values values) {
    const auto number = std::uniform_int_distribution<std::int64_t>(1, 50)(random);
    const bool wide = values == Values::wide && number % 2 == 0;
    return std::to_string(wide ? 3000000000 + number : number);
  };
  Lifecycle life(dsn(), s);
  const auto before = catalog();
  life.walk_there_and_back();
  EXPECT_EQ(catalog(), before);
  life.finish();
  EXPECT_EQ(value("SELECT string_agg(DISTINCT conname || convalidated, ' ') FROM pg_constraint"
                  " WHERE contype = 'f' AND confrelid = 'q'::regclass"),
            "fartrue");
}

// The UPDATE trigger fires where the row was, the INSERT trigger where it goes, which must not take the two
// sides for what a statement by position gave.
TEST_F(PartitionsTest, ARowThatMovesAfterTheSwitchKeepsBothSides) {
  sql("CREATE TABLE t (p int, id int, b numeric(6,2) DEFAULT 2.50, PRIMARY KEY (p, id)) PARTITION BY LIST "
      "(p);"
      "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);"
      "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2);"
      "INSERT INTO t VALUES (1, 1, 2.50), (1, 2, NULL), (1, 3, 4.00)");
  migrator().start(
      {"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"text\"\n"
       "forward = \"coalesce(b::text, 'none')\"\nbackward = \"nullif(b, 'none')::numeric\"\n"
       "[drop]\nsoak = \"0s\"\n"},
      {});
  until(Phase::switched);
  sql("INSERT INTO t (p, id, b) VALUES (1, 4, NULL), (1, 5, '7.125'), (1, 6, 'word')");
  const auto rows = fmt::format(
      "SELECT string_agg(concat_ws('|', id, coalesce(b, '-'), coalesce({0}::text, '-')),"
      " ' ' ORDER BY id) FROM t",
      shadow());
  const auto before = value(rows);
  sql("UPDATE t SET p = 2 WHERE p = 1");
  EXPECT_EQ(value("SELECT count(*) FROM ONLY t_2"), "6");
  EXPECT_EQ(value(rows), before);
  sql("UPDATE t SET p = 1, b = '9.00' WHERE id = 3");
  EXPECT_EQ(value(fmt::format("SELECT b || {}::text FROM t_1", shadow())), "9.009.00");
  // By position, and not consistent: the old value is what was given.
  sql("INSERT INTO t VALUES (1, 9, 5.00)");
  EXPECT_EQ(value("SELECT b FROM t WHERE id = 9"), "5.00");
}

TEST_F(PartitionsTest, PartitionsThatComeAndGoWhileTheSweepRuns) {
  two_partitions(6000);
  migrator().start({kSpec}, {});
  until(Phase::dry_run);
  migrator().tune("m", {{"rows_per_second", "500"}});
  std::string failure;
  {
    const std::jthread sweep([&] {
      try {
        NextOptions options;
        options.until = Phase::backfill;
        Migrator other({.dsn = dsn(), .redis = {}, .operator_name = "grace", .host = "there"});
        other.next("m", options);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    });
    wait_until_true("SELECT count(*) > 0 FROM crossfade.unit WHERE chunks > 0 AND NOT done");
    const auto column = shadow();
    sql("CREATE TABLE t_c PARTITION OF t FOR VALUES FROM (20) TO (30)");
    sql("INSERT INTO t SELECT 20 + g % 10, g, g FROM generate_series(1, 50) g");
    sql("CREATE TABLE t_d (LIKE t INCLUDING ALL); INSERT INTO t_d (p, id, b) SELECT 30, g, g FROM"
        " generate_series(1, 50) g; ALTER TABLE t ATTACH PARTITION t_d FOR VALUES FROM (30) TO (40)");
    EXPECT_EQ(value(fmt::format("SELECT count({}) FROM t_d", column)), "0");
    sql("ALTER TABLE t DETACH PARTITION t_b");
    sql("DROP TABLE t_b");
    migrator().tune("m", {{"rows_per_second", "0"}});
  }
  EXPECT_EQ(failure, "");
  EXPECT_EQ(migrator().status("m").status, Status::settled);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u JOIN crossfade.pass p ON p.id = u.pass_id"
                  " WHERE p.kind = 'backfill' AND u.relation = 't_d'::regclass AND u.done"),
            "1");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.unit u WHERE NOT EXISTS (SELECT FROM pg_class c"
                  " WHERE c.oid = u.relation)"),
            "0");
  EXPECT_EQ(apart(), "0");
  EXPECT_EQ(value("SELECT count(*) > 0 FROM crossfade.action WHERE action = 'partitions'"
                  " AND detail -> 'removed' ? 't_b' OR detail -> 'removed' ? 'public.t_b'"),
            "t");
  until(Phase::switched);
  EXPECT_EQ(apart(), "0");
  until(Phase::dropped);
}

TEST_F(PartitionsTest, PartitionsThatComeAndGoInEveryLaterPhase) {
  two_partitions(400, "");
  migrator().start({kSpec}, {});
  int next = 20;
  const auto attach = [&](const std::string& values) {
    const auto name = fmt::format("t_{}", next);
    sql(
        fmt::format("CREATE TABLE {0} (LIKE t INCLUDING ALL); INSERT INTO {0} {1};"
                    "ALTER TABLE t ATTACH PARTITION {0} FOR VALUES FROM ({2}) TO ({3})",
                    name, fmt::format(fmt::runtime(values), next), next, next + 10));
    next += 10;
  };
  for (const auto phase : {Phase::backfill, Phase::dual_write, Phase::compare}) {
    until(phase);
    SCOPED_TRACE(to_text(phase));
    attach("(p, id, b) SELECT {}, g, g FROM generate_series(1, 20) g");
    sql(fmt::format("CREATE TABLE t_{0} PARTITION OF t FOR VALUES FROM ({0}) TO ({1})", next, next + 10));
    next += 10;
  }
  sql("ALTER TABLE t DETACH PARTITION t_20");
  // Attached anew, with rows that nothing carried.
  sql("UPDATE t_20 SET b = b + 1; ALTER TABLE t ATTACH PARTITION t_20 FOR VALUES FROM (20) TO (30)");
  until(Phase::switched);
  EXPECT_EQ(apart(), "0");
  EXPECT_EQ(value("SELECT count(*) FROM t WHERE p = 20 AND b = id + 1"), "20");
  // After the switch the table to attach has both columns; one that contradicts itself is found.
  sql(fmt::format(
      "CREATE TABLE odd (LIKE t INCLUDING ALL); INSERT INTO odd (p, id, b, {0}) VALUES ({1}, 1, 5, 6);"
      "ALTER TABLE t ATTACH PARTITION odd FOR VALUES FROM ({1}) TO ({2})",
      shadow(), next, next + 10));
  try {
    migrator().rollback("m");
    ADD_FAILURE() << "a way back that loses something was open";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::differences_found) << error.what();
  }
  migrator().repair("m");
  sql("ALTER TABLE t DETACH PARTITION t_b");
  migrator().rollback("m");
  EXPECT_EQ(value("SELECT b FROM odd"), "5");
  until(Phase::switched);
  until(Phase::dropped);
  EXPECT_EQ(value("SELECT count(*) FROM pg_trigger WHERE tgrelid = 't_b'::regclass"), "0");
  EXPECT_EQ(value("SELECT count(*) FROM pg_attribute WHERE attrelid = 't_b'::regclass AND attnum > 0"
                  " AND NOT attisdropped"),
            "4");
}

// dual_write proves NOT NULL of every row: what came since the backfill is swept first.
TEST_F(PartitionsTest, APartitionAttachedAfterTheBackfillIsSweptBeforeNotNullIsProved) {
  two_partitions(100);
  migrator().start({kSpec}, {});
  until(Phase::backfill);
  sql("CREATE TABLE t_c (LIKE t INCLUDING ALL); INSERT INTO t_c (p, id, b) SELECT 20, g, g FROM"
      " generate_series(1, 30) g; ALTER TABLE t ATTACH PARTITION t_c FOR VALUES FROM (20) TO (30)");
  EXPECT_EQ(apart(), "30");
  until(Phase::dual_write);
  EXPECT_EQ(apart(), "0");
  EXPECT_EQ(value("SELECT rows_written FROM crossfade.pass WHERE kind = 'catch_up' ORDER BY id DESC LIMIT 1"),
            "30");
  until(Phase::switched);
  EXPECT_EQ(value("SELECT attnotnull FROM pg_attribute WHERE attrelid = 't_c'::regclass AND attname = 'b'"),
            "t");
}

// What a builder that died between its steps leaves.
TEST_F(PartitionsTest, APartThatWasBuiltAndNotAttachedIsAttachedOrDropped) {
  two_partitions(100);
  migrator().start({kSpec}, {});
  until(Phase::backfill);
  const auto suffix = "_cftwin" + shadow().substr(shadow().rfind('_'));
  const auto parts = fmt::format(
      "SELECT count(*) FROM pg_class WHERE relname LIKE 't\\___b_idx{}' AND relispartition", suffix);
  sql(fmt::format("CREATE INDEX t_a_b_idx{0} ON t_a ({1})", suffix, shadow()));
  until(Phase::dual_write);
  EXPECT_EQ(value(parts), "2");
  // The index on the table that lost its parts half way.
  migrator().rollback("m");
  EXPECT_EQ(value(fmt::format("SELECT count(*) FROM pg_class WHERE relname LIKE '%{}'", suffix)), "0");
  sql(
      fmt::format("CREATE INDEX t_by_b{0} ON ONLY t ({1}); CREATE INDEX t_a_b_idx{0} ON t_a ({1});"
                  "ALTER INDEX t_by_b{0} ATTACH PARTITION t_a_b_idx{0}; ALTER TABLE t DETACH PARTITION t_b;"
                  "CREATE INDEX loose{0} ON t_a ({1})",
                  suffix, shadow()));
  until(Phase::dual_write);
  EXPECT_EQ(
      value(fmt::format("SELECT indisvalid FROM pg_index WHERE indexrelid = 't_by_b{}'::regclass", suffix)),
      "t");
  migrator().rollback("m");
  EXPECT_EQ(value(fmt::format("SELECT count(*) FROM pg_class WHERE relname LIKE '%{}'", suffix)), "0");
}

TEST_F(PartitionsTest, APartThatRowsCollideInIsTakenAwayAndTheRowsAreNamed) {
  sql("CREATE TABLE t (p int, id int, b text, PRIMARY KEY (p, id)) PARTITION BY RANGE (p);"
      "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE t_b PARTITION OF t FOR VALUES FROM (10) TO (20);"
      "CREATE UNIQUE INDEX one ON t (p, b);"
      "INSERT INTO t SELECT g % 20, g, g FROM generate_series(1, 100) g");
  const auto before = catalog();
  migrator().start({"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = "
                    "\"integer\"\nforward = \"b::integer\"\n"},
                   {{"twin_unique_may_reject", "the dry run counts"}});
  until(Phase::backfill);
  sql("INSERT INTO t VALUES (12, 200, '032')");
  try {
    until(Phase::dual_write);
    ADD_FAILURE() << "built over rows that collide";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::phase_failed) << error.message();
    EXPECT_NE(error.message().find("2 rows in 1 groups"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("keys {\"12\",\"200\"} and {\"12\",\"32\"}"), std::string::npos)
        << error.message();
  }
  EXPECT_EQ(value("SELECT count(*) FROM pg_index WHERE indrelid = 't_b'::regclass AND NOT indisvalid"), "0");
  sql("INSERT INTO t VALUES (12, 201, '0032'); DELETE FROM t WHERE id > 199");
  until(Phase::compare);
  EXPECT_EQ(value("SELECT count(*) FROM pg_index WHERE indrelid = 't_b'::regclass AND indisunique"), "3");
  EXPECT_EQ(value("SELECT count(*) FROM pg_index WHERE NOT indisvalid"), "0");
  migrator().rollback("m", {.to = Phase::rolled_back, .accept = {}});
  EXPECT_EQ(catalog(), before);
}

TEST_F(PartitionsTest, WhatAPartitionHasOfItsOwnIsRefusedByName) {
  sql("CREATE TABLE t (p int, id int, b int, PRIMARY KEY (p, id), UNIQUE (p, id, b)) PARTITION BY RANGE (p);"
      "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (10);"
      "CREATE TABLE t_b PARTITION OF t (CONSTRAINT own CHECK (b > 0)) FOR VALUES FROM (10) TO (20) PARTITION "
      "BY LIST"
      " (id);"
      "CREATE TABLE t_b_1 PARTITION OF t_b FOR VALUES IN (1);"
      "CREATE INDEX own_index ON t_a (b, id); CREATE INDEX part ON t_a (b, p DESC); CREATE INDEX turned ON t "
      "(b, p); CREATE VIEW own_view AS SELECT b FROM t_b_1;"
      "ALTER TABLE t_a ALTER b SET DEFAULT 4; COMMENT ON COLUMN t_b_1.b IS 'mine';"
      "CREATE INDEX whole ON t (b); COMMENT ON INDEX t_a_b_idx IS 'part'; CREATE INDEX more ON t ((b + 1))");
  std::vector<std::string> refused;
  for (const auto& finding : migrator().plan({kSpec}).refusals) {
    EXPECT_EQ(finding.id, "dependent_not_carried") << finding.message;
    refused.push_back(finding.object);
    if (finding.object == "public.more") {
      EXPECT_NE(finding.message.find("it could refuse what the new one takes"), std::string::npos)
          << finding.message;
    }
  }
  std::ranges::sort(refused);
  const std::vector<std::string> expected{"own on public.t_b", "public.more",  "public.own_index",
                                          "public.own_view",   "public.t_a.b", "public.t_b_1.b",
                                          "public.turned",     "public.whole"};
  EXPECT_EQ(refused, expected);
  sql("DROP TABLE t CASCADE; CREATE TABLE t (p int, id int, b int, PRIMARY KEY (p, id, b)) PARTITION BY LIST "
      "(p);"
      "CREATE TABLE t_a PARTITION OF t FOR VALUES IN (1) PARTITION BY RANGE (b)");
  bool told = false;
  for (const auto& finding : migrator().plan({kSpec}).refusals)
    told = told || finding.message.find("partition key") != std::string::npos;
  EXPECT_TRUE(told);
}

// A trigger of ours that is disabled on one partition is no partition that went.
TEST_F(PartitionsTest, ATriggerDisabledOnOnePartitionFailsThePhase) {
  two_partitions(100);
  migrator().start({kSpec}, {});
  until(Phase::compare);
  sql("ALTER TABLE t_a DISABLE TRIGGER USER");
  sql("UPDATE t SET b = 0 WHERE p = 1");
  sql("ALTER TABLE t_a ENABLE TRIGGER USER");
  try {
    migrator().next("m", {});
    ADD_FAILURE() << "not seen";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of partition"), std::string::npos) << error.what();
  }
}

TEST_F(PartitionsTest, FourBusyPartitionsAreNamedAndNothingChanges) {
  sql("CREATE TABLE t (p int, id int, b int, PRIMARY KEY (p, id)) PARTITION BY LIST (p);"
      "CREATE TABLE t_0 PARTITION OF t FOR VALUES IN (0); CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);"
      "CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2); CREATE TABLE t_3 PARTITION OF t FOR VALUES IN (3);"
      "INSERT INTO t SELECT g % 4, g, g FROM generate_series(1, 100) g");
  migrator().start({kSpec}, {});
  until(Phase::compare);
  const auto before = catalog();
  std::vector<std::unique_ptr<ApplicationSession>> busy;
  for (int p = 0; p < 4; ++p) {
    busy.push_back(std::make_unique<ApplicationSession>(dsn()));
    busy.back()->run(fmt::format("BEGIN; UPDATE t_{} SET b = b", p));
  }
  try {
    until(Phase::switched);
    ADD_FAILURE() << "switched beside writers";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::lock_attempts_exhausted) << error.what();
    for (const auto& session : busy)
      EXPECT_NE(error.blockers().find(std::to_string(session->backend_pid())), std::string::npos);
  }
  EXPECT_EQ(catalog(), before);
  for (const auto& session : busy) session->run("COMMIT");
  until(Phase::switched);
  EXPECT_EQ(apart(), "0");
}

}  // namespace
}  // namespace crossfade::test

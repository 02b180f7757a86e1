// Several columns of one table that move together, and what stands on more than one of them.
#include <fmt/format.h>

#include <algorithm>

#include "moving_group_test.hpp"
#include "support/live_family.hpp"
#include "support/live_graph.hpp"

namespace crossfade::test {
namespace {

class SharedTwinsTest : public MovingGroupTest {};

// --- Under a live application
// --------------------------------------------------------------------------------------------------

class LiveGraphTest : public SharedTwinsTest {
 protected:
  void start() { migrator_->start({spec("public.users")}); }
  // Every row is what the application wrote, on either side.
  void check(LiveFamily& application, const std::string& where) {
    application.let_write(20);
    EXPECT_EQ(value(graph_difference_sql()), "0") << where;
    const auto columns = sql(graph_columns_sql());
    for (const auto& row : columns.rows) EXPECT_EQ(value(text_of(row[1])), "0") << text_of(row[0]) << where;
    EXPECT_TRUE(columns.empty() || columns.rows.size() == 7U) << columns.rows.size();
  }
};

TEST_F(LiveGraphTest, AJoinTableATreeAndWhatRefersToThemMoveThereAndBack) {
  sql(graph_sql(60));
  const auto before = lines(kGraphTables);
  LiveFamily application(dsn(), 2, graph_turn);
  start();
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "7");
  for (const auto phase : {Phase::backfill, Phase::dual_write, Phase::compare, Phase::switched}) {
    advance(phase);
    check(application, fmt::format(" in {}", to_text(phase)));
  }
  EXPECT_EQ(beside_ours(before, lines(kGraphTables)), std::vector<std::string>{});
  roll_back(Phase::compare);
  advance(Phase::compare);
  check(application, " back in compare");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines(kGraphTables), before);
  start();
  advance(Phase::dropped);
  check(application, " dropped");
  application.stop();
  EXPECT_EQ(value(graph_difference_sql()), "0");
  EXPECT_EQ(beside_types(before, lines(kGraphTables)), std::vector<std::string>{});
  EXPECT_EQ(violation("INSERT INTO users (id) VALUES (5000000000), (5000000001);"
                      "INSERT INTO follows (follower_id, followed_id) VALUES (5000000000, 5000000001);"
                      "INSERT INTO tree (id, parent_id) VALUES (5000000000, NULL), (5000000001, 5000000000)"),
            "none");
}

// --- Each kind of object
// --------------------------------------------------------------------------------------------------

const std::string kTree =
    "CREATE TABLE t (id int PRIMARY KEY, boss int NOT NULL REFERENCES t DEFERRABLE, top int REFERENCES t,"
    " n int NOT NULL DEFAULT 0);"
    "INSERT INTO t SELECT g, greatest(g / 2, 1), nullif(g / 7, 0) FROM generate_series(1, 300) g;";

struct SharedCase {
  std::string name, ddl;
  bool makes_publication = false;
};
void PrintTo(const SharedCase& c, std::ostream* out) { *out << c.name; }

class SharedKindTest : public SharedTwinsTest, public ::testing::WithParamInterface<SharedCase> {};

TEST_P(SharedKindTest, ForwardSwitchedRolledBackAndDropped) {
  if (GetParam().makes_publication)
    super_sql(
        "DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO PUBLIC', current_database()); END$$");
  sql(kTree + GetParam().ddl);
  const auto before = lines({"t"});
  migrator_->start({spec("public.t")});
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration WHERE table_oid = 't'::regclass"), "3");
  advance(Phase::switched);
  EXPECT_EQ(beside_ours(before, lines({"t"})), std::vector<std::string>{}) << "switched";
  EXPECT_EQ(types("'id', 'boss', 'top'"), "bigint");
  roll_back(Phase::compare);
  EXPECT_EQ(types("'id', 'boss', 'top'"), "integer");
  advance(Phase::compare);
  EXPECT_EQ(beside_ours(before, lines({"t"})), std::vector<std::string>{}) << "back in compare";
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines({"t"}), before);
  migrator_->start({spec("public.t")});
  advance(Phase::dropped);
  EXPECT_EQ(beside_types(before, lines({"t"})), std::vector<std::string>{}) << "dropped";
  EXPECT_EQ(types("'id', 'boss', 'top'"), "bigint");
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE NOT convalidated AND conname <> 'late'"), "0");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SharedKindTest,
    ::testing::Values(
        SharedCase{
            "indexes",
            "CREATE INDEX low ON t (top, boss); CREATE UNIQUE INDEX triple ON t (top, boss DESC NULLS"
            " LAST, id) INCLUDE (n); CREATE INDEX words ON t ((boss::text || id::text), n);"
            "CREATE INDEX part ON t (n) WHERE boss < id AND top IS NOT NULL;"
            "CREATE INDEX ranges ON t USING brin (boss, id); CREATE INDEX held ON t (n) INCLUDE (boss, "
            "top); COMMENT ON INDEX low IS 'l'; COMMENT ON INDEX part IS 's'"},
        SharedCase{
            "constraints",
            "ALTER TABLE t ADD CONSTRAINT pair UNIQUE (boss, id) INCLUDE (n), ADD CONSTRAINT near CHECK"
            " (boss <= id AND (top < boss OR top IS NULL OR top > 0)), ADD CONSTRAINT late CHECK (id +"
            " boss > 0) NOT VALID; COMMENT ON CONSTRAINT pair ON t IS 'p'; COMMENT ON INDEX pair IS 'i';"
            "ALTER TABLE t CLUSTER ON pair; ALTER TABLE t REPLICA IDENTITY USING INDEX pair"},
        SharedCase{
            "a key of two columns beside it",
            "ALTER TABLE t ADD CONSTRAINT pair UNIQUE (id, boss);"
            "CREATE TABLE c (k int PRIMARY KEY, a int, b int, CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES"
            " t (id, boss) MATCH FULL ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED);"
            "CREATE INDEX c_pair ON c (b, a); INSERT INTO c SELECT id, id, boss FROM t LIMIT 20"},
        SharedCase{
            "a key that refers to itself by two columns",
            "UPDATE t SET top = (SELECT b.boss FROM t b WHERE b.id = t.boss); ALTER TABLE t ADD CONSTRAINT"
            " pair UNIQUE (id, boss), ADD CONSTRAINT up FOREIGN KEY (boss, top) REFERENCES t (id, boss)"
            " DEFERRABLE; CREATE INDEX up ON t (boss, top)"},
        SharedCase{"statistics",
                   "CREATE STATISTICS s (mcv, ndistinct) ON boss, id FROM t; CREATE STATISTICS e ON (boss +"
                   " id) FROM t; CREATE STATISTICS w (dependencies) ON top, boss FROM t;"
                   "ALTER STATISTICS s SET STATISTICS 77; COMMENT ON STATISTICS w IS 'w'"},
        SharedCase{
            "what follows the names",
            "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
            "CREATE TRIGGER tr BEFORE UPDATE OF boss, id ON t FOR EACH ROW WHEN (NEW.boss IS DISTINCT FROM"
            " OLD.id) EXECUTE FUNCTION touch();"
            "CREATE POLICY p ON t USING (boss <> id OR top IS NULL) WITH CHECK (id >= boss);"
            "CREATE FUNCTION f() RETURNS bigint LANGUAGE sql RETURN (SELECT max(boss + id) FROM t);"
            "CREATE TABLE log (a bigint, b bigint); CREATE RULE r AS ON DELETE TO t DO ALSO INSERT INTO log"
            " VALUES (OLD.id, OLD.boss);"
            "CREATE VIEW v AS SELECT id, boss, boss::text || id AS words FROM t WHERE top < id;"
            "CREATE VIEW w AS SELECT v.id, t.top FROM v JOIN t ON t.boss = v.id;"
            "GRANT SELECT (id, boss), UPDATE (top) ON t TO PUBLIC; COMMENT ON COLUMN t.boss IS 'b';"
            "COMMENT ON COLUMN t.id IS 'i'"},
        SharedCase{"a publication",
                   "CREATE PUBLICATION pub FOR TABLE t (id, boss) WHERE (boss > id) WITH"
                   " (publish = 'insert')",
                   true}));

// Two references of a table to itself, and pairs that refer to a pair: both narrow, one of them, none, and
// turned round.
TEST_F(SharedTwinsTest, SixTablesWhosePairsAreOfManyWidths) {
  sql("CREATE TABLE u (id int PRIMARY KEY, boss int REFERENCES u, mentor int REFERENCES u DEFERRABLE "
      "INITIALLY"
      " DEFERRED, UNIQUE (boss, mentor), UNIQUE (mentor, id));"
      "CREATE UNIQUE INDEX u3 ON u (boss, mentor, id) WHERE boss > mentor;"
      "CREATE VIEW uv AS SELECT id, boss, mentor FROM u WHERE boss IS DISTINCT FROM mentor;"
      "CREATE TABLE f (a int REFERENCES u, b int REFERENCES u, PRIMARY KEY (a, b));"
      "CREATE TABLE wide (k serial PRIMARY KEY, a bigint, b bigint, FOREIGN KEY (a, b) REFERENCES f ON DELETE"
      " CASCADE);"
      "CREATE TABLE mixed (a bigint, b int, k int PRIMARY KEY, FOREIGN KEY (a, b) REFERENCES f ON UPDATE "
      "CASCADE);"
      "CREATE INDEX ON mixed (a, b);"
      "CREATE TABLE narrow (k int PRIMARY KEY, a smallint REFERENCES u, b int REFERENCES u, UNIQUE (a, b));"
      "CREATE TABLE deep (x int, y int, FOREIGN KEY (x, y) REFERENCES narrow (b, a), PRIMARY KEY (x, y));"
      "INSERT INTO u SELECT g, nullif(g / 2, 0), nullif(g - 1, 0) FROM generate_series(1, 100) g;"
      "INSERT INTO f SELECT g, g % 100 + 1 FROM generate_series(1, 100) g; INSERT INTO wide (a, b) TABLE f;"
      "INSERT INTO mixed SELECT a, b, a FROM f; INSERT INTO narrow SELECT a, a, b FROM f;"
      "INSERT INTO deep SELECT b, a FROM narrow");
  const std::vector<std::string> all{"u", "f", "wide", "mixed", "narrow", "deep"};
  const auto before = lines(all);
  migrator_->start({spec("public.u")});
  EXPECT_EQ(value("SELECT string_agg(x, ' ' ORDER BY x COLLATE \"C\") FROM (SELECT format('%s.%s',"
                  " table_oid::regclass, binding -> 'column' ->> 'name') AS x FROM crossfade.migration) q"),
            "deep.x deep.y f.a f.b mixed.b narrow.a narrow.b u.boss u.id u.mentor");
  advance(Phase::switched);
  EXPECT_EQ(beside_ours(before, lines(all)), std::vector<std::string>{});
  EXPECT_EQ(value("SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND NOT convalidated"), "0");
  EXPECT_EQ(violation("INSERT INTO wide (a, b) VALUES (7, 7)"), "23503");
  EXPECT_EQ(
      violation("INSERT INTO u (id) VALUES (5000000000); INSERT INTO f (a, b) VALUES (5000000000, 1);"
                "INSERT INTO wide (a, b) VALUES (5000000000, 1); DELETE FROM f WHERE b = 1 AND a > 1000;"
                "DELETE FROM u WHERE id > 1000"),
      "none");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines(all), before);
  EXPECT_EQ(violation("INSERT INTO wide (a, b) VALUES (7, 7)"), "23503");
  migrator_->start({spec("public.u")});
  advance(Phase::dropped);
  EXPECT_EQ(
      value("SELECT count(*) FROM u JOIN f ON a = id JOIN deep ON (x, y) = (b, a) JOIN wide w ON (w.a, w.b)"
            " = (f.a, f.b) JOIN mixed m ON (m.a, m.b) = (f.a, f.b)"),
      "100");
}

// The planner knows the new columns together, as it knew the old ones.
TEST_F(SharedTwinsTest, StatisticsOfBothAreThereBeforeTheSwitch) {
  sql(kTree + "CREATE STATISTICS pair (ndistinct, mcv) ON boss, id FROM t; ANALYZE t");
  migrator_->start({spec("public.t")});
  advance(Phase::compare);
  EXPECT_EQ(value("SELECT count(*) FROM pg_stats_ext WHERE tablename = 't' AND n_distinct IS NOT NULL AND"
                  " cardinality(attnames) = 2"),
            "2");
  advance(Phase::dropped);
  EXPECT_EQ(value("SELECT attnames FROM pg_stats_ext WHERE tablename = 't' AND n_distinct IS NOT NULL"),
            "{id,boss}");
}

// The old twins shed what could fail a write that the new columns take: a sum that the old type cannot hold,
// and two pairs that are one when what does not fit has become NULL.
TEST_F(SharedTwinsTest, NoIndexOverTheOldColumnsFailsAWriteAfterTheSwitch) {
  if (session().identity().version_num < 150000) return;
  sql("CREATE TABLE p (k int PRIMARY KEY, code int UNIQUE);"
      "CREATE TABLE c (k int PRIMARY KEY, a int REFERENCES p (code), b int REFERENCES p (code));"
      "CREATE INDEX total ON c ((a + b)); CREATE UNIQUE INDEX pair ON c (b, a) NULLS NOT DISTINCT;"
      "INSERT INTO p SELECT g, g FROM generate_series(1, 50) g;"
      "INSERT INTO c SELECT g, g, g % 50 + 1 FROM generate_series(1, 50) g");
  const auto before = lines({"p", "c"});
  migrator_->start({spec("public.p", "code")});
  advance(Phase::switched);
  EXPECT_EQ(indexes("c"), "c_pkey pair total");
  EXPECT_EQ(violation("INSERT INTO p (k, code) VALUES (100, 2147483647), (101, 2147483646);"
                      "INSERT INTO c (k, a, b) VALUES (100, 2147483647, 2147483646)"),
            "none");
  const auto sum = [&] {
    try {
      roll_back(Phase::compare);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::rollback_refused) << error.message();
      return error.message();
    }
    return std::string("not refused");
  }();
  EXPECT_NE(sum.find("total"), std::string::npos) << sum;
  EXPECT_EQ(indexes("c"), "c_pkey pair total") << "nothing is left of a way back that was refused";
  sql("DELETE FROM c WHERE k = 100");
  EXPECT_EQ(violation("INSERT INTO p (k, code) VALUES (102, 3000000000), (103, 3000000001);"
                      "INSERT INTO c (k, a, b) VALUES (102, 1, 3000000000), (103, 1, 3000000001)"),
            "none");
  const std::vector<Acceptance> lost{{"misfits_open", "they may go"}};
  const auto pairs = [&] {
    try {
      patiently([&] { migrator_->rollback("m", {.to = Phase::compare, .accept = lost}); });
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("not refused");
  }();
  EXPECT_NE(pairs.find("keys {\"102\"} and {\"103\"}"), std::string::npos) << pairs;
  sql("DELETE FROM c WHERE k = 103; DELETE FROM p WHERE k = 103");
  // The rest comes back as NULL.
  EXPECT_THROW(roll_back(Phase::compare), Error);
  sql("DELETE FROM c WHERE k = 102; DELETE FROM p WHERE k >= 100");
  roll_back(Phase::rolled_back);
  EXPECT_EQ(lines({"p", "c"}), before);
}

// --- What remains refused
// --------------------------------------------------------------------------------------------------

TEST_F(SharedTwinsTest, WhatCannotBeCarriedIsRefusedByName) {
  const auto refused = [&](const std::string& ddl, const std::string& object, const std::string& undo) {
    sql(ddl);
    const auto plan = migrator_->plan({spec("public.t")});
    EXPECT_TRUE(std::ranges::any_of(plan.refusals, [&](const Finding& finding) {
      return finding.id == "dependent_not_carried" && finding.message.find(object) != std::string::npos;
    })) << object;
    EXPECT_THROW(migrator_->start({spec("public.t")}), Error);
    sql(undo);
  };
  sql(kTree);
  const auto drop = [](const std::string& name) { return "ALTER TABLE t DROP CONSTRAINT " + name; };
  refused("ALTER TABLE t ADD CONSTRAINT late UNIQUE (boss, id) DEFERRABLE", "late", drop("late"));
  refused(
      "ALTER TABLE t ADD CONSTRAINT apart EXCLUDE USING gist (int4range(boss, id, '[]') WITH &&) WHERE (n >"
      " 99)",
      "apart", drop("apart"));
  refused("ALTER TABLE t ADD COLUMN total int GENERATED ALWAYS AS (boss + id) STORED", "total",
          "ALTER TABLE t DROP COLUMN total");
  refused("CREATE MATERIALIZED VIEW mv AS SELECT id, boss FROM t", "mv", "DROP MATERIALIZED VIEW mv");
  refused(
      "CREATE VIEW shows AS SELECT id FROM t; CREATE RULE writes AS ON INSERT TO shows DO INSTEAD INSERT "
      "INTO t"
      " (id, boss) VALUES (NEW.id, 1)",
      "writes", "DROP VIEW shows");
  refused("CREATE INDEX whole ON t ((t IS NULL), boss, id)", "whole", "DROP INDEX whole");
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.migration"), "0");
}

// One that is built, dropped or altered after the plan is told, whoever carries it.
TEST_F(SharedTwinsTest, AChangeOfWhatStandsOnBothShutsTheGate) {
  sql(kTree + "CREATE INDEX both_of ON t (boss, id)");
  migrator_->start({spec("public.t")});
  advance(Phase::compare);
  sql("DROP INDEX both_of; CREATE INDEX both_of ON t (boss, id DESC)");
  try {
    migrator_->next("m", {});
    ADD_FAILURE() << "switched over another index than the one that was planned for";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("both_of"), std::string::npos) << error.message();
  }
  sql("DROP INDEX both_of; CREATE INDEX both_of ON t (boss, id)");
  advance(Phase::switched);
  sql("CREATE INDEX after ON t (top, id)");
  try {
    patiently([&] { migrator_->rollback("m"); });
    ADD_FAILURE() << "an index that somebody built would be lost";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("after"), std::string::npos) << error.message();
  }
  sql("DROP INDEX after");
  roll_back(Phase::rolled_back);
}

}  // namespace
}  // namespace crossfade::test

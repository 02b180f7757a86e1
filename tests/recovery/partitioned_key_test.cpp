// A partitioned table whose key becomes wide, killed where its constraint goes over.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "crossfade/core/error.hpp"
#include "kill_points.hpp"
#include "recovery_test.hpp"

namespace crossfade::test {
namespace {

class PartitionedKeyRecoveryTest : public RecoveryTest {
 protected:
  void make_parts() {
    sql("CREATE TABLE t (b serial, p int NOT NULL, n int NOT NULL DEFAULT 0, CONSTRAINT whole PRIMARY KEY "
        "(b, p))"
        " PARTITION BY RANGE (p);"
        "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE t_b PARTITION OF t FOR VALUES FROM (10) TO (20) PARTITION BY LIST (p);"
        "CREATE TABLE t_b_1 PARTITION OF t_b DEFAULT;"
        "INSERT INTO t (p) SELECT g % 20 FROM generate_series(1, 300) g");
    names_ = names();
    write_text(
        spec_path(),
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
        "[switch]\nattempts = 1000\n[drop]\nsoak = \"0s\"\n");
    succeed({"init"});
  }

  std::string names() {
    return value(
        "SELECT string_agg(concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)), ', '"
        " ORDER BY conrelid::regclass::text) FROM pg_constraint WHERE contype = 'p' AND conrelid IN"
        " (SELECT relid FROM pg_partition_tree('t'))");
  }

  // In either form of the column: the key is there under its names, and refuses what it must.
  void expect_key(Phase phase) {
    EXPECT_EQ(value("SELECT phase FROM crossfade.migration"), to_text(phase));
    EXPECT_EQ(
        value("SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname"
              " = 'b'"),
        phase == Phase::switched ? "bigint" : "integer");
    EXPECT_EQ(names(), names_);
    for (const auto* leaf : {"t_a", "t_b_1"}) {
      EXPECT_THROW(sql(fmt::format("INSERT INTO t (b, p) SELECT b, p FROM {} LIMIT 1", leaf)), Error) << leaf;
    }
    sql("INSERT INTO t (p) SELECT g FROM generate_series(0, 19) g");
    EXPECT_EQ(value("SELECT count(*) - count(DISTINCT b) FROM t"), "0");
  }

  void dies(const Arguments& command, const std::string& point, Phase phase) {
    SCOPED_TRACE(point);
    killed(command, point + "=abort");
    expect_key(phase);
  }

  std::string names_;
};

TEST_F(PartitionedKeyRecoveryTest, KilledAroundTheSwitchInBothDirections) {
  make_parts();
  succeed({"start", spec_path()});
  succeed(next(Phase::backfill));
  // An index of the two leaves, begun and built.
  dies(next(Phase::dual_write), "twin.intent", Phase::dual_write);
  dies(next(Phase::dual_write), "twin.built", Phase::dual_write);
  succeed(next(Phase::compare));
  for (const auto moment : kMoments) {
    const auto after = moment == "sent" ? Phase::switched : Phase::compare;
    dies(next(Phase::switched), kill_point(Phase::compare, Phase::switched, moment), after);
  }
  succeed(next(Phase::switched));
  // What a way back builds again, half of it there.
  const std::string owed =
      "SELECT count(*) FROM pg_class WHERE relkind = 'i' AND relname LIKE '%\\_cfold\\_%'";
  dies(back(Phase::compare), "twin.built", Phase::switched);
  EXPECT_EQ(value(owed), "1");
  succeed(next(Phase::switched));
  EXPECT_EQ(value(owed), "0") << "what a way back that was given up had built";
  for (const auto moment : kMoments) {
    const auto after = moment == "sent" ? Phase::compare : Phase::switched;
    dies(back(Phase::compare), kill_point(Phase::switched, Phase::compare, moment), after);
  }
  succeed(next(Phase::switched));
  expect_key(Phase::switched);
}

}  // namespace
}  // namespace crossfade::test

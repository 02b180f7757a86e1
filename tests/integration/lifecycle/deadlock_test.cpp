// Transactions of the application that lock many rows against the order of the sweep.
#include <fmt/format.h>

#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class DeadlockTest : public DatabaseTest {};

LiveTransaction against_the_sweep(Draw& draw) {
  LiveTransaction transaction{draw.lock_several()};
  const auto last = draw.stable();
  for (std::int64_t n = last; n > last - 20 && n >= 0; --n) {
    transaction.push_back({fmt::format("UPDATE {{table}} SET n = n + 1 WHERE id = {}", n)});
  }
  return transaction;
}

TEST_F(DeadlockTest, TheApplicationIsNeverTheVictimAndNobodyElseIs) {
  auto s = integer_scenario();
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT 1, n int NOT NULL DEFAULT 0);"
      "INSERT INTO t SELECT g, g FROM generate_series(0, 1999) g";
  s.live.rows = 2000;
  s.operations = {{"against the sweep", against_the_sweep}};
  s.writers.writers = 4;
  Lifecycle life(dsn(), s);
  life.start();
  for (int sweep = 0; sweep < 4; ++sweep) {
    life.advance_to(Phase::backfill);
    life.roll_back();
  }
  life.advance_to(Phase::switched);
  life.writers().stop();
  super_sql("SELECT pg_stat_force_next_flush()");
  EXPECT_EQ(super_value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), "0");
}

}  // namespace
}  // namespace crossfade::test

// 121: https://github.com/redis/redis/issues/4496, https://aphyr.com/posts/283-jepsen-redis: Redis is lost,
// emptied, or comes back with what it held before. It costs time, never a row and never a phase.
#include "case_test.hpp"
#include "support/lifecycle.hpp"
#include "support/redis_server.hpp"

namespace crossfade::test {
namespace {

class RedisCases : public CaseTest {
 protected:
  // Keys and their content, kept in the same server under other names.
  static void remember(const RedisServer& redis) {
    redis.command(
        {"EVAL",
         "for _, k in ipairs(redis.call('KEYS', 'crossfade:*')) do redis.call('COPY', k, 'old:' .. k,"
         " 'REPLACE') redis.call('PERSIST', 'old:' .. k) end return 1",
         "0"});
  }
  static void bring_back(const RedisServer& redis) {
    redis.command(
        {"EVAL",
         "for _, k in ipairs(redis.call('KEYS', 'crossfade:*')) do redis.call('DEL', k) end"
         " for _, k in ipairs(redis.call('KEYS', 'old:*')) do redis.call('COPY', k, string.sub(k, 5),"
         " 'REPLACE') end return #redis.call('KEYS', 'old:*')",
         "0"});
  }

  struct Result {
    std::string rows, history, passes;
    bool operator==(const Result&) const = default;
  };

  // The same migration with the same writes between its phases; `disturb` is called before each of them.
  Result migrate(const std::string& redis, const std::function<void(int)>& disturb) {
    Migrator migrator({.dsn = dsn(), .redis = redis, .operator_name = "ada", .host = "lovelace"});
    migrator.init();
    sql("DROP TABLE IF EXISTS t");
    make_table(3000);
    const auto id =
        migrator.start({spec("b", "bigint", "[tuning]\nworkers = 1\nrows_per_second = 20000\n")}).id;
    int step = 0;
    const auto next = [&](Phase phase) {
      disturb(++step);
      sql(fmt::format(
          "UPDATE t SET b = b + 1 WHERE id % 7 = {0} % 7; UPDATE t SET id = -id WHERE id = {0} + 100;"
          "DELETE FROM t WHERE id = {0} + 200; INSERT INTO t (id, b) VALUES ({0} + 5000, {0})",
          step));
      migrator.next("m", {.until = phase, .confirm = phase == Phase::dropped ? "m" : "", .accept = {}});
    };
    const auto back = [&] {
      disturb(++step);
      migrator.rollback("m");
    };
    next(Phase::dry_run);
    next(Phase::backfill);
    back();
    next(Phase::backfill);
    next(Phase::dual_write);
    next(Phase::compare);
    back();
    next(Phase::compare);
    next(Phase::switched);
    back();
    next(Phase::switched);
    next(Phase::dropped);
    const auto of = " WHERE migration_id = '" + id + "'";
    return {value("SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM t"),
            value("SELECT string_agg(from_phase || ' ' || to_phase, ', ' ORDER BY number) FROM "
                  "crossfade.transition" +
                  of),
            value("SELECT string_agg(concat_ws(' ', kind, state, rows_read, rows_written, differences), ', ' "
                  "ORDER BY id)"
                  " FROM crossfade.pass" +
                  of)};
  }
};

TEST_F(RedisCases, TheResultIsTheSameWithRedisAbsentUpEmptiedKilledAndBackWithOldData) {
  const auto absent = migrate("", [](int) {});
  EXPECT_NE(absent.history.find("switched dropped"), std::string::npos);
  RedisServer redis;
  EXPECT_EQ(migrate(redis.url(), [](int) {}), absent) << "up";
  EXPECT_EQ(migrate(redis.url(), [&](int) { redis.flush(); }), absent) << "emptied";
  const auto old_data = migrate(redis.url(), [&](int step) {
    if (step % 3 == 1) remember(redis);
    if (step % 3 == 0) bring_back(redis);
  });
  EXPECT_EQ(old_data, absent) << "back with old data";
  const auto killed = migrate(redis.url(), [&](int step) {
    if (step % 4 == 2) redis.kill();
    if (step % 4 == 0) redis.restart();
  });
  EXPECT_EQ(killed, absent) << "killed and restarted";
}

TEST_F(RedisCases, RedisIsEmptiedAndStoppedInTheMiddleOfASweep) {
  RedisServer redis;
  redis_ = redis.url();
  make_table();
  start(spec("b", "bigint", slowly()));
  advance_to(Phase::dry_run);
  stop_at("chunk.after");
  InBackground sweep([&] { sweep_all(); });
  wait_until_stopped();
  redis.flush();
  let_go();
  wait_until_true("SELECT sum(chunks) >= 3 FROM crossfade.unit");
  redis.kill();
  quickly();
  EXPECT_EQ(sweep.end(), std::nullopt) << sweep.message();
  EXPECT_EQ(stale(), "0");
  redis.restart();
  advance_to(Phase::switched);
}

TEST_F(RedisCases, ALifeCycleUnderWritersWithRedisLosesNothing) {
  RedisServer redis;
  auto s = integer_scenario();
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b int DEFAULT 1, n int NOT NULL DEFAULT 0);"
      "INSERT INTO t SELECT g, g FROM generate_series(0, 1999) g";
  s.live.rows = 2000;
  s.redis = redis.url();
  Lifecycle life(dsn(), s);
  life.start();
  life.advance_to(Phase::backfill);
  redis.flush();
  life.advance_to(Phase::compare);
  redis.kill();
  life.advance_to(Phase::switched);
  redis.restart();
  life.roll_back_to(Phase::dry_run);
  redis.flush();
  life.finish();
}

}  // namespace
}  // namespace crossfade::test

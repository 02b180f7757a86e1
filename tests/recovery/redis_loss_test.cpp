// Redis is emptied, killed, frozen, rewound, or refuses to write: the result is the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "recovery_test.hpp"
#include "support/redis_server.hpp"

namespace crossfade::test {
namespace {

struct Trouble {
  std::string name;
  std::function<void(RedisServer&)> cause, heal;
};

const std::vector<Trouble>& troubles() {
  static const auto nothing = [](RedisServer&) {};
  static const std::vector<Trouble> all{
      {"emptied", [](RedisServer& redis) { redis.flush(); }, nothing},
      {"killed", [](RedisServer& redis) { redis.kill(); }, [](RedisServer& redis) { redis.restart(); }},
      {"frozen", [](RedisServer& redis) { redis.sigstop(); }, [](RedisServer& redis) { redis.sigcont(); }},
      {"read-only",
       [](RedisServer& redis) {
         redis.command({"REPLICAOF", "127.0.0.1", "1"});
       },
       [](RedisServer& redis) {
         redis.command({"REPLICAOF", "NO", "ONE"});
       }},
      {"full",
       [](RedisServer& redis) {
         redis.command({"CONFIG", "SET", "maxmemory", "1"});
       },
       [](RedisServer& redis) {
         redis.command({"CONFIG", "SET", "maxmemory", "0"});
       }},
      // What SAVE kept of an earlier life comes back.
      {"rewound", [](RedisServer& redis) { redis.restart(); }, nothing},
  };
  return all;
}

class RedisLossTest : public RecoveryTest {
 protected:
  void trouble_at(const std::string& point, const Trouble& trouble, const Arguments& command) {
    SCOPED_TRACE(fmt::format("{} at {}", trouble.name, point));
    const auto stop = gate(fmt::format("{} {}", trouble.name, point));
    auto program = launch(command, point + "=wait:" + stop);
    wait_until_reached(stop, program);
    trouble.cause(redis_server_);
    open(stop);
    const auto result = program.wait();
    trouble.heal(redis_server_);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    check_in_step();
  }

  RedisServer redis_server_;
};

TEST_F(RedisLossTest, AtAnyPointOfSweepAndComparisonChangesNothing) {
  make_table();
  redis_ = redis_server_.url();
  start_writers();
  advance_to(Phase::dry_run);
  succeed(next(Phase::backfill));
  EXPECT_NE(redis_server_.command({"DBSIZE"}), "0");
  EXPECT_EQ(redis_server_.command({"SAVE"}), "OK");
  succeed(back(Phase::dry_run));
  for (const auto& trouble : troubles()) {
    trouble_at("chunk.after", trouble, next(Phase::backfill));
    succeed(next(Phase::dual_write));
    trouble_at("compare.range", trouble, next(Phase::compare));
    succeed(back(Phase::dry_run));
  }
}

TEST_F(RedisLossTest, AroundEveryPhaseChangeChangesNothing) {
  make_table();
  redis_ = redis_server_.url();
  start_writers();
  advance_to(Phase::planned);
  const auto& all = troubles();
  std::size_t n = 0;
  const std::vector<Phase> way{Phase::planned,    Phase::dry_run, Phase::backfill,
                               Phase::dual_write, Phase::compare, Phase::switched};
  for (std::size_t i = 1; i < way.size(); ++i) {
    const auto point =
        fmt::format("{}_to_{}.{}", to_text(way[i - 1]), to_text(way[i]), i % 2 == 0 ? "locked" : "sent");
    trouble_at(point, all[n++ % all.size()], next(way[i]));
    EXPECT_EQ(phase(), way[i]);
  }
  for (std::size_t i = way.size() - 1; i > 0; --i) {
    const auto point =
        fmt::format("{}_to_{}.{}", to_text(way[i]), to_text(way[i - 1]), i % 2 == 0 ? "locked" : "sent");
    trouble_at(point, all[n++ % all.size()], back(way[i - 1]));
    EXPECT_EQ(phase(), way[i - 1]);
  }
  succeed(back(Phase::rolled_back));
  check_restored();
}

TEST_F(RedisLossTest, FromTheBeginningIsOnlyANotice) {
  make_table();
  redis_ = redis_server_.url();
  redis_server_.kill();
  start_writers();
  advance_to(Phase::switched);
  check_in_step();
}

// What observers see; nobody decides by it.
TEST_F(RedisLossTest, WorkersSayHowFastTheyAreAndAreUnknownWithoutIt) {
  make_table({.rows = 4000, .tuning = "rows_per_second = 200", .switching = {}});
  redis_ = redis_server_.url();
  advance_to(Phase::dry_run);
  auto program = launch(next(Phase::backfill));
  const auto shown = [&](const std::string& words) {
    const auto out = crossfade({"status", "m", "--json"}).out;
    return out.find("\"workers\":[{\"pid\":") != std::string::npos && out.find(words) != std::string::npos;
  };
  wait_until([&] { return shown("\"since\":\"20"); }, "a heartbeat");
  redis_server_.kill();
  EXPECT_TRUE(shown("\"rate_rows_per_second\":null,\"since\":null"));
  succeed({"tune", "m", "rows_per_second=0"});
  EXPECT_EQ(program.wait().exit_status, 0);
  check_in_step();
  EXPECT_NE(crossfade({"status", "m", "--json"}).out.find("\"workers\":[]"), std::string::npos);
}

TEST_F(RedisLossTest, ThePhaseIsRenewedWhileAnIndexIsBeingBuilt) {
  make_table();
  redis_ = redis_server_.url();
  advance_to(Phase::backfill);
  ApplicationSession holder(dsn());
  holder.run("BEGIN; INSERT INTO t VALUES (100001, 1)");
  auto program = launch(next(Phase::dual_write));
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
      " AND query LIKE 'CREATE % CONCURRENTLY %'");
  const auto key = fmt::format("crossfade:{{{}}}:phase", value("SELECT id FROM crossfade.migration"));
  redis_server_.command({"DEL", key});
  wait_until(
      [&] {
        return redis_server_.command({"GET", key}).find(" dual_write ") != std::string::npos;
      },
      "the phase, while the runner waits for PostgreSQL");
  EXPECT_TRUE(program.is_running());
  holder.run("ROLLBACK");
  EXPECT_EQ(program.wait().exit_status, 0);
}

// A cursor that is ahead of PostgreSQL moves nothing forward.
TEST_F(RedisLossTest, ACursorAheadOfPostgresIsNotBelieved) {
  make_table();
  redis_ = redis_server_.url();
  advance_to(Phase::dry_run);
  killed(next(Phase::backfill), "chunk.bounded=abort@1");
  const auto id = value("SELECT id FROM crossfade.migration");
  const auto pass = value("SELECT max(id) FROM crossfade.pass");
  for (const auto* token : {"SELECT token FROM crossfade.migration", "SELECT gen_random_uuid()"}) {
    redis_server_.command({"HSET", fmt::format("crossfade:{{{}}}:cursor:{}", id, pass), "1",
                           fmt::format("{} {} 3000 {{2999}}", id, value(token))});
  }
  succeed(next(Phase::backfill));
  check_in_step();
  succeed(next(Phase::switched));
  check_in_step();
}

}  // namespace
}  // namespace crossfade::test

// The server goes back in time: a standby that had not everything becomes the primary.
#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/redis_server.hpp"

namespace crossfade::test {
namespace {

class FailoverCases : public DatabaseTest {
 protected:
  static MigratorOptions options(const std::string& dsn, const std::string& redis) {
    return {.dsn = dsn, .redis = redis, .operator_name = "ada", .host = "lovelace"};
  }
};

// 123: https://github.com/patroni/patroni/issues/1894: asynchronous failover takes back phase, positions and
// rows of the application; Redis remembers what the new primary never had.
TEST_F(FailoverCases, APromotedStandbyThatLaggedIsComparedInFull) {
  PostgresServer primary;
  primary.admin().exec("CREATE DATABASE app OWNER app_owner");
  PostgresServer standby({.settings = {}, .role = PostgresOptions::Role::primary, .follows = &primary});
  RedisServer redis;
  const auto dsn = primary.dsn("app", "app_owner");
  auto application = open_session(dsn);
  application.exec("CREATE TABLE t (id int PRIMARY KEY, b int)");
  application.exec("INSERT INTO t SELECT g, g FROM generate_series(1, 5000) g");
  {
    Migrator migrator(options(dsn, redis.url()));
    migrator.init();
    migrator.start(
        {"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
         "[tuning]\nworkers = 1\n[drop]\nsoak = \"0s\"\n"});
    migrator.next("m", {.until = Phase::dry_run, .confirm = {}, .accept = {}});
    // Stops after some chunks; the standby has them, and nothing of what follows.
    failpoint::configure("chunk.bounded=error:42883@2");
    EXPECT_THROW(migrator.next("m", {.until = Phase::backfill, .confirm = {}, .accept = {}}), Error);
    failpoint::configure("");
    wait_until(
        [&] {
          return text_of(
                     standby.admin()
                         .exec("SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn",
                               {text_of(
                                   primary.admin().exec("SELECT pg_current_wal_flush_lsn()").one("lsn")[0])})
                         .one("replayed")[0]) == "t";
        },
        "the standby to replay");
    standby.stop_fast();
    // All this the new primary will never have had, while Redis has.
    migrator.next("m", {.until = Phase::compare, .confirm = {}, .accept = {}});
    application.exec("UPDATE t SET b = b + 1000000 WHERE id <= 10");
    EXPECT_EQ(migrator.status("m").phase, Phase::compare);
  }
  primary.stop_immediate();
  standby.restart();
  standby.promote();
  const auto promoted = standby.dsn("app", "app_owner");
  Migrator migrator(options(promoted, redis.url()));
  EXPECT_EQ(migrator.status("m").phase, Phase::backfill);
  try {
    migrator.next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
    ADD_FAILURE() << "went on with positions of another timeline";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::identity_mismatch) << error.message();
  }
  migrator.adopt();
  auto survivor = open_session(promoted);
  survivor.exec("UPDATE t SET b = b + 7 WHERE id > 4990");
  migrator.next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
  EXPECT_EQ(
      text_of(survivor.exec("SELECT count(*) FROM t WHERE b <> id + CASE WHEN id > 4990 THEN 7 ELSE 0 END")
                  .one("rows")[0]),
      "0");
  migrator.next("m", {.until = Phase::dropped, .confirm = "m", .accept = {}});
}

}  // namespace
}  // namespace crossfade::test

// The order of the pace controller, as a process that does not run it reads it.
#include "crossfade/shadow/pace_order.hpp"

#include <gtest/gtest.h>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/shadow/pace_governor.hpp"
#include "support/database_test.hpp"
#include "support/migration_fixture.hpp"
#include "support/redis_server.hpp"

namespace crossfade {
namespace {

class PaceOrderTest : public test::DatabaseTest {
 protected:
  PaceOrderTest() {
    fixture_.install_capture();
    sql("INSERT INTO crossfade.pass (migration_id, kind) SELECT id, 'backfill' FROM crossfade.migration");
  }
  SqlSession door(const std::string& role = "test") const {
    return SqlSession::connect({.dsn = dsn(), .application_name = "crossfade/m/" + role});
  }
  PaceOrder read() {
    const auto row = fixture_.migration().row;
    return read_pace_order(session_, row.id, row.token);
  }
  PaceGovernor::Setup setup() {
    const auto m = fixture_.migration();
    return {[this](const std::string& role) { return door(role); }, &cache_, m, fixture_.table(),
            m.row.token};
  }
  void tune(const std::string& key, const std::string& value) {
    sql("INSERT INTO crossfade.tuning (migration_id, key, value, changed_by)"
        " SELECT id, $1, $2, 'ada' FROM crossfade.migration ON CONFLICT (migration_id, key)"
        " DO UPDATE SET value = excluded.value",
        {key, value});
  }

  SqlSession session_ = door();
  test::MigrationFixture fixture_{session_,
                                  "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1)",
                                  test::column_spec("b", "bigint")};
  CursorCache cache_{std::string()};
};

TEST_F(PaceOrderTest, WithoutAControllerNothingMayBeWritten) {
  EXPECT_EQ(read().state, PaceState::paused);
  EXPECT_EQ(read().reason, "the runner has not said yet how fast the sweep may go");
}

TEST_F(PaceOrderTest, TheControllersWordReachesEveryProcessAndIsHistoryAfterwards) {
  {
    PaceGovernor governor(setup());
    EXPECT_EQ(governor.order().state, PaceState::running);
    test::wait_until([&] { return read().state == PaceState::running; }, "the word of the controller");
    tune("min_free_disk", "4MB");
    tune("disk_probe", "SELECT 1048576");
    test::wait_until([&] { return read().state == PaceState::paused; }, "the pause");
    test::wait_until([&] { return read().reason == "free disk 1.0 MB < 4.0 MB"; }, "the reason");
    EXPECT_EQ(governor.order().state, PaceState::paused);
    tune("min_free_disk", "off");
    test::wait_until([&] { return read().state == PaceState::throttled; }, "the end of the pause");
    EXPECT_EQ(read().limit_rows_per_second, 500) << "half of what is usual, since nothing was measured";
    EXPECT_EQ(read().reason, "recovering from free disk 1.0 MB < 4.0 MB");
  }
  EXPECT_EQ(read().state, PaceState::idle);
  const auto history =
      sql("SELECT kind, reason, ended_at > began_at FROM crossfade.pause ORDER BY id LIMIT 1");
  EXPECT_EQ(text_of(history[0][0]), "paused");
  EXPECT_TRUE(bool_of(history[0][2]));
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pause WHERE ended_at IS NULL"), "0");
}

TEST_F(PaceOrderTest, AReaderIsNotHeldByWhatOnlyWritingMakes) {
  tune("min_free_disk", "4MB");
  tune("disk_probe", "SELECT 1048576");
  auto reading = setup();
  reading.work = PacedWork::reading;
  PaceGovernor governor(reading);
  EXPECT_EQ(governor.order().state, PaceState::running);
  test::wait_until([&] { return read().state == PaceState::running; }, "the word of the controller");
  tune("probe", "SELECT nonsense");
  test::wait_until([&] { return governor.order().state == PaceState::paused; }, "the pause");
  EXPECT_EQ(governor.order().signal, "probe");
}

TEST_F(PaceOrderTest, AReaderOnAStandbyIsHeldByTheLagOfTheStandbysAlone) {
  tune("probe", "SELECT nonsense");
  auto reading = setup();
  reading.work = PacedWork::reading_on_standby;
  PaceGovernor governor(reading);
  test::wait_until([&] { return read().state == PaceState::running; }, "the word of the controller");
  super_sql("GRANT pg_read_all_stats TO app_owner");
  tune("max_replication_lag", "10s");
  test::wait_until([&] { return governor.order().state == PaceState::paused; }, "the pause");
  EXPECT_NE(governor.order().reason.find("no standby streams"), std::string::npos);
  super_sql("REVOKE pg_read_all_stats FROM app_owner");
}

TEST_F(PaceOrderTest, AnOldWordHolds) {
  { PaceGovernor(setup()).order(); }
  sql("UPDATE crossfade.pace SET state = 'running', at = clock_timestamp() - interval '14 s'");
  EXPECT_EQ(read().state, PaceState::paused);
  EXPECT_EQ(read().reason, "the runner has not said for 14 s how fast the sweep may go");
}

TEST_F(PaceOrderTest, ARunnerThatWasSupersededSaysNothingMore) {
  PaceGovernor governor(setup());
  governor.order();
  test::wait_until([&] { return read().state == PaceState::running; }, "the word of the controller");
  sql("UPDATE crossfade.migration SET token = gen_random_uuid()");
  const auto before = value("SELECT at FROM crossfade.pace");
  tune("min_free_disk", "4MB");
  test::wait_until([&] { return governor.order().state == PaceState::paused; },
                   "the old controller to decide");
  EXPECT_EQ(value("SELECT at FROM crossfade.pace"), before);
  EXPECT_EQ(value("SELECT count(*) FROM crossfade.pause"), "0");
  EXPECT_EQ(read().state, PaceState::paused) << "its word is not the new runner's";
}

TEST_F(PaceOrderTest, WhatADeadRunnerLeftOpenEndsWhenItWasLastHeard) {
  { PaceGovernor(setup()).order(); }
  sql("UPDATE crossfade.pace SET at = clock_timestamp() - interval '1 h'");
  sql("INSERT INTO crossfade.pause (migration_id, kind, reason, changed_by, began_at)"
      " SELECT id, 'paused', 'x', 'ada', clock_timestamp() - interval '2 h' FROM crossfade.migration");
  sql("INSERT INTO crossfade.pause (migration_id, kind, reason, changed_by)"
      " SELECT id, 'operator', 'lunch', 'ada' FROM crossfade.migration");
  { PaceGovernor(setup()).order(); }
  EXPECT_EQ(
      value(
          "SELECT p.ended_at - p.began_at < interval '61 min' FROM crossfade.pause p WHERE kind = 'paused'"),
      "t");
  EXPECT_EQ(value("SELECT ended_at FROM crossfade.pause WHERE kind = 'operator'"), "NULL")
      << "what an operator began, an operator ends";
}

TEST_F(PaceOrderTest, ThePaceIsHeldWhenTheControllersSessionIsLostAndGoesOnWithANewOne) {
  PaceGovernor governor(setup());
  governor.order();
  const std::string sessions = "pg_stat_activity WHERE application_name = 'crossfade/m/pace'";
  const auto pid = super_value("SELECT pid FROM " + sessions);
  super_sql("SELECT pg_terminate_backend($1::integer)", {pid});
  wait_until_true("SELECT count(*) > 0 FROM " + sessions + " AND pid <> $1::integer", {pid});
  tune("min_free_disk", "4MB");
  test::wait_until([&] { return read().state == PaceState::paused; }, "the new session's word");
}

TEST_F(PaceOrderTest, AChangeIsAnnouncedOverRedis) {
  test::RedisServer redis;
  CursorCache cache(redis.url());
  auto with_redis = setup();
  with_redis.cache = &cache;
  ControlListener listener(redis.url(), with_redis.migration.row.id);
  PaceGovernor governor(with_redis);
  bool held = false;
  // Again and again: what is said before the listener has subscribed is said to nobody.
  test::wait_until(
      [&] {
        tune("min_free_disk", (held = !held) ? "4MB" : "off");
        const auto wanted = held ? PaceState::paused : PaceState::throttled;
        test::wait_until([&] { return governor.order().state == wanted; }, "the change");
        return listener.wait(std::chrono::milliseconds(500));
      },
      "the announcement");
}

TEST_F(PaceOrderTest, EveryStatementOfTheControllerIsReadInARealTable) {
  for (const auto& [key, value] : {std::pair<const char*, const char*>{"probe", "canary"},
                                   {"probe_p99", "60s"},
                                   {"max_slot_wal", "16TB"},
                                   {"max_wal_rate", "1TB"},
                                   {"yield_to_vacuum", "any"},
                                   {"max_dead_tuples", "1000000"},
                                   {"disk_probe", "SELECT 1e15"},
                                   {"min_free_disk", "1MB"}}) {
    tune(key, value);
  }
  PaceGovernor governor(setup());
  EXPECT_EQ(governor.order().state, PaceState::running) << governor.order().reason;
  test::wait_until([&] { return read().state == PaceState::running; }, "the word of the controller");
  EXPECT_EQ(value("SELECT string_agg(s ->> 'signal', ' ' ORDER BY n) FROM crossfade.pace,"
                  " jsonb_array_elements(signals) WITH ORDINALITY AS e (s, n)"),
            "free_disk vacuum dead_tuples lock_waiters wal_rate probe");
}

}  // namespace
}  // namespace crossfade

// Each signal of the pace against a server that has what it is about.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "pace/latency.hpp"
#include "pace/signals.hpp"
#include "support/application_session.hpp"
#include "support/database_test.hpp"
#include "support/migration_fixture.hpp"
#include "support/wait_until.hpp"

namespace crossfade::pace {
namespace {

using std::chrono::milliseconds;

Tuning with(std::string_view key, std::string_view value) {
  Tuning tuning;
  set_tuning(tuning, key, value);
  return tuning;
}

const Reading& only(const Readings& readings) {
  EXPECT_EQ(readings.size(), 1U);
  return readings.at(0);
}

Time now() { return std::chrono::steady_clock::now(); }

class PaceSignalTest : public test::DatabaseTest {
 protected:
  SqlSession door() { return SqlSession::connect({.dsn = dsn(), .application_name = "crossfade/m/pace"}); }
  Oid table() { return Oid{static_cast<std::uint32_t>(std::stoul(value("SELECT 't'::regclass::oid")))}; }
  void wait_until_pressure(const std::function<Readings()>& read, const std::function<bool(double)>& holds) {
    test::wait_until(
        [&] {
          const auto readings = read();
          return readings.size() == 1 && readings[0].pressure && holds(*readings[0].pressure);
        },
        "the signal");
  }
};

TEST_F(PaceSignalTest, SessionsThatWaitForOurWorkersAreCounted) {
  auto session = door();
  test::MigrationFixture fixture(session,
                                 "CREATE TABLE t (id int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1)",
                                 test::column_spec("b", "bigint"));
  LockWaiters signal(fixture.migration().row.id);
  const Tuning tuning = with("max_lock_waiters", "1");
  test::ApplicationSession worker(dsn()), stranger(dsn()), first(dsn()), second(dsn()), third(dsn());
  worker.run("BEGIN; UPDATE t SET b = 2 WHERE id = 1");
  first.send("UPDATE t SET b = 3 WHERE id = 1");
  wait_until_blocked(first.backend_pid());
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, 0)
      << "no unit is leased to it: it is not ours";
  sql("INSERT INTO crossfade.pass (migration_id, kind) SELECT id, 'backfill' FROM crossfade.migration");
  sql("INSERT INTO crossfade.unit (pass_id, number, relation, high, lease_pid, lease_until)"
      " SELECT id, 1, 't'::regclass, '{9}', $1::integer, clock_timestamp() + interval '1 h'"
      " FROM crossfade.pass",
      {std::to_string(worker.backend_pid())});
  wait_until_pressure([&] { return signal.read(session, tuning, now()); }, [](double p) { return p == 1; });
  // Behind the first in the queue for the row is behind us, too; for another lock it is not.
  second.send("UPDATE t SET b = 4 WHERE id = 1");
  stranger.run("BEGIN; SELECT pg_advisory_xact_lock(7)");
  third.send("SELECT pg_advisory_xact_lock(7)");
  wait_until_blocked(third.backend_pid());
  wait_until_pressure([&] { return signal.read(session, tuning, now()); },
                      [](double p) { return p >= 1 && p <= 2; });
  worker.run("COMMIT");
  first.finish();
  second.finish();
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, 0);
  EXPECT_TRUE(signal.read(session, with("max_lock_waiters", "0"), now()).empty());
  stranger.run("COMMIT");
  third.finish();
}

TEST_F(PaceSignalTest, AStuckSlotKeepsWal) {
  auto session = door();
  SlotWal signal;
  const auto tuning = with("max_slot_wal", "1MB");
  super_sql("SELECT pg_create_physical_replication_slot('stuck', true)");
  super_sql("CREATE TABLE filler AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 4000)");
  const auto read = signal.read(session, tuning, now());
  super_sql("SELECT pg_drop_replication_slot('stuck')");
  EXPECT_GT(*only(read).pressure, 1) << only(read).value;
  EXPECT_TRUE(only(read).value.starts_with("slot stuck keeps ")) << only(read).value;
  EXPECT_TRUE(signal.read(session, tuning, now()).empty()) << "no slot, nothing to keep";
}

TEST_F(PaceSignalTest, TheServersWalIsMeasured) {
  auto session = door();
  WalRate signal;
  const auto tuning = with("max_wal_rate", "64kB");
  const auto began = now();
  signal.read(session, tuning, began);
  super_sql("CREATE TABLE filler AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 4000)");
  const auto read = signal.read(session, tuning, began + std::chrono::seconds(4));
  EXPECT_GT(*only(read).pressure, 1) << only(read).value;
}

TEST_F(PaceSignalTest, AVacuumOfTheTableIsSeenAndOneOfAnotherIsNot) {
  sql("CREATE TABLE t AS SELECT g AS id, repeat('x', 500) AS x FROM generate_series(1, 20000) g");
  sql("CREATE TABLE other (id int)");
  sql("DELETE FROM t WHERE id % 2 = 0");
  auto session = door();
  TableVacuum signal(table());
  const auto tuning = with("yield_to_vacuum", "any");
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, 0);
  // The signal's own session is no superuser, and the vacuum belongs to one: most of it is hidden.
  test::ApplicationSession vacuum(superuser_dsn(), "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1");
  vacuum.send("VACUUM public.t");
  wait_until_pressure([&] { return signal.read(session, tuning, now()); }, [](double p) { return p > 1; });
  EXPECT_EQ(only(signal.read(session, tuning, now())).value,
            fmt::format("vacuum of the table by pid {}", vacuum.backend_pid()));
  EXPECT_EQ(only(signal.read(session, Tuning{}, now())).pressure, 0) << "it is none to prevent wraparound";
  TableVacuum of_other(Oid{static_cast<std::uint32_t>(std::stoul(value("SELECT 'other'::regclass::oid")))});
  EXPECT_EQ(only(of_other.read(session, tuning, now())).pressure, 0);
  super_sql("SELECT pg_cancel_backend($1::integer)", {std::to_string(vacuum.backend_pid())});
  EXPECT_THROW(vacuum.finish(), test::ApplicationError);
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, 0);
}

TEST_F(PaceSignalTest, AVacuumOfATableThatMustBeFrozenIsOneToPreventWraparound) {
  sql("CREATE TABLE t AS SELECT g AS id, repeat('x', 500) AS x FROM generate_series(1, 20000) g");
  sql("ALTER TABLE t SET (autovacuum_enabled = off, autovacuum_freeze_max_age = 100000)");
  // The oldest table of the cluster: its age is set, because two hundred thousand transactions take long.
  super_sql(
      "UPDATE pg_class SET relfrozenxid = (txid_current() % 4294967296 - 200000 + 4294967296)::bigint"
      "::text::xid WHERE oid = 'public.t'::regclass");
  auto session = door();
  TableVacuum signal(table());
  test::ApplicationSession vacuum(superuser_dsn(), "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1");
  vacuum.send("VACUUM public.t");
  wait_until_pressure([&] { return signal.read(session, Tuning{}, now()); }, [](double p) { return p > 1; });
  super_sql("SELECT pg_cancel_backend($1::integer)", {std::to_string(vacuum.backend_pid())});
  EXPECT_THROW(vacuum.finish(), test::ApplicationError);
}

TEST_F(PaceSignalTest, DeadTuplesAreThoseOfTheTable) {
  sql("CREATE TABLE t (id int) WITH (autovacuum_enabled = off)");
  sql("INSERT INTO t SELECT generate_series(1, 100)");
  super_sql("UPDATE t SET id = -id");
  super_sql("SELECT pg_stat_force_next_flush()");  // else told ten seconds later
  auto session = door();
  DeadTuples signal(table());
  wait_until_pressure([&] { return signal.read(session, with("max_dead_tuples", "50"), now()); },
                      [](double p) { return p == 2; });
}

TEST_F(PaceSignalTest, DeadTuplesAndVacuumOfAPartitionedTableAreThoseOfItsPartitions) {
  sql("CREATE TABLE t (id int, x text) PARTITION BY RANGE (id);"
      "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (10000) WITH (autovacuum_enabled = off);"
      "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (10000) TO (20000) WITH (autovacuum_enabled = off);"
      "INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(0, 19999) g");
  super_sql("UPDATE t SET x = 'y' WHERE id % 100 = 0");
  super_sql("SELECT pg_stat_force_next_flush()");
  auto session = door();
  DeadTuples dead(table());
  wait_until_pressure([&] { return dead.read(session, with("max_dead_tuples", "100"), now()); },
                      [](double p) { return p == 2; });
  TableVacuum signal(table());
  const auto tuning = with("yield_to_vacuum", "any");
  test::ApplicationSession vacuum(superuser_dsn(), "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1");
  vacuum.send("VACUUM public.t_high");
  wait_until_pressure([&] { return signal.read(session, tuning, now()); }, [](double p) { return p > 1; });
  EXPECT_EQ(only(signal.read(session, tuning, now())).value,
            fmt::format("vacuum of partition public.t_high by pid {}", vacuum.backend_pid()));
  super_sql("SELECT pg_cancel_backend($1::integer)", {std::to_string(vacuum.backend_pid())});
  EXPECT_THROW(vacuum.finish(), test::ApplicationError);
}

TEST_F(PaceSignalTest, TheOldestSnapshotIsHiddenUntilTheRightIsGiven) {
  auto session = door();
  OldestXmin signal;
  const auto tuning = with("max_xmin_age", "10");
  try {
    signal.read(session, tuning, now());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::permission_denied);
    EXPECT_EQ(error.hint(), "GRANT pg_read_all_stats TO app_owner; or turn max_xmin_age off");
  }
  super_sql("GRANT pg_read_all_stats TO app_owner");
  test::ApplicationSession old(superuser_dsn());
  old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
  for (int i = 0; i < 30; ++i) super_sql("SELECT txid_current()");
  const auto read = signal.read(session, tuning, now());
  super_sql("REVOKE pg_read_all_stats FROM app_owner");
  EXPECT_GE(*only(read).pressure, 3) << only(read).value;
  old.run("COMMIT");
}

TEST_F(PaceSignalTest, FreeDiskIsWhatTheOperatorsQuerySays) {
  auto session = door();
  FreeDisk signal;
  auto tuning = with("min_free_disk", "4MB");
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, std::nullopt);
  set_tuning(tuning, "disk_probe", "SELECT 1048576");
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, 4);
  set_tuning(tuning, "disk_probe", "SELECT NULL");
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, std::nullopt);
  set_tuning(tuning, "disk_probe", "CREATE TABLE public.trace ()");
  EXPECT_THROW(signal.read(session, tuning, now()), Error) << "it may read only";
  set_tuning(tuning, "disk_probe", "SELECT 1; DROP TABLE IF EXISTS public.nothing");
  EXPECT_THROW(signal.read(session, tuning, now()), Error) << "and is one statement";
  EXPECT_EQ(text_of(session.exec("SHOW default_transaction_read_only").one("setting")[0]), "off");
}

// --- the canary

class PaceProbeTest : public PaceSignalTest {
 protected:
  ProbeLatency::Connect connect() {
    return [this](const std::string& role) {
      return SqlSession::connect({.dsn = dsn(), .application_name = "crossfade/m/" + role});
    };
  }
};

TEST_F(PaceProbeTest, ASlowProbeIsOverItsLimitAndAFastOneIsNot) {
  auto session = door();
  ProbeLatency signal(connect(), "SELECT 1");
  auto tuning = with("probe", "SELECT pg_sleep(0.03)");
  set_tuning(tuning, "probe_p99", "20ms");
  wait_until_pressure([&] { return signal.read(session, tuning, now()); }, [](double p) { return p > 1; });
  signal.rate_lowered();
  EXPECT_EQ(only(signal.read(session, tuning, now())).pressure, kUndecided);
  set_tuning(tuning, "probe", "canary");
  set_tuning(tuning, "probe_p99", "60s");
  wait_until_pressure([&] { return signal.read(session, tuning, now()); },
                      [](double p) { return p < kClear; });
  EXPECT_TRUE(signal.read(session, Tuning{}, now()).empty());
}

// A probe that waits for a lock is ended by its timeout, and that counts as what it took at least.
TEST_F(PaceProbeTest, AProbeThatIsBlockedIsSlowAndNotUnreadable) {
  sql("CREATE TABLE t (id int)");
  test::ApplicationSession holder(dsn());
  holder.run("BEGIN; LOCK TABLE t");
  auto session = door();
  ProbeLatency signal(connect(), "SELECT 1");
  auto tuning = with("probe", "canary");
  set_tuning(tuning, "probe", "SELECT count(*) FROM public.t");
  wait_until_pressure([&] { return signal.read(session, tuning, now()); }, [](double p) { return p > 1; });
  holder.run("COMMIT");
}

TEST_F(PaceProbeTest, AProbeThatFailsOrWritesCannotBeRead) {
  sql("CREATE TABLE t (id int)");
  auto session = door();
  ProbeLatency signal(connect(), "SELECT 1");
  const auto broken = signal.read(session, with("probe", "SELECT nonsense FROM public.t"), now());
  EXPECT_EQ(only(broken).pressure, std::nullopt);
  EXPECT_TRUE(only(broken).value.starts_with("the probe fails: ")) << only(broken).value;
  const auto writing = signal.read(session, with("probe", "INSERT INTO public.t VALUES (1)"), now());
  EXPECT_EQ(only(writing).pressure, std::nullopt);
  EXPECT_EQ(value("SELECT count(*) FROM t"), "0");
}

TEST_F(PaceProbeTest, ALongProbeDoesNotHoldUpTheEnd) {
  auto session = door();
  std::optional<ProbeLatency> signal;
  signal.emplace(connect(), "SELECT 1");
  auto tuning = with("probe", "SELECT pg_sleep(100)");
  set_tuning(tuning, "probe_p99", "60s");
  std::thread reader([&] { signal->read(session, tuning, now()); });
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'crossfade/m/probe'"
      " AND query LIKE '%pg_sleep%' AND state = 'active'");
  super_sql(
      "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'crossfade/m/probe'");
  reader.join();
  wait_until_true(
      "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'crossfade/m/probe'"
      " AND query LIKE '%pg_sleep%' AND state = 'active'");
  signal.reset();
  EXPECT_EQ(super_value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crossfade/m/probe'"
                        " AND state = 'active'"),
            "0");
}

// --- standbys and the archiver, on servers of their own

TEST(PaceReplicationTest, AStandbyThatStopsReplayingLagsAndOneThatGoesVanishes) {
  test::PostgresServer primary;
  primary.admin().exec("GRANT pg_read_all_stats TO app_owner");
  auto standby = std::make_unique<test::PostgresServer>(test::PostgresOptions{{}, {}, &primary});
  auto session =
      SqlSession::connect({.dsn = primary.dsn("postgres", "app_owner"), .application_name = "pace"});
  ReplicationLag signal;
  auto tuning = with("max_replication_lag", "100ms");
  set_tuning(tuning, "max_replication_bytes", "1MB");
  const auto read = [&] { return signal.read(session, tuning, now()); };
  const auto pressure = [](const Readings& readings, std::size_t at) {
    return readings.size() > at && readings[at].pressure ? *readings[at].pressure : -1.0;
  };
  test::wait_until([&] { return pressure(read(), 0) == 0; }, "the standby to be in step");
  standby->admin().exec("SELECT pg_wal_replay_pause()");
  primary.admin().exec("CREATE TABLE filler AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 4000)");
  test::wait_until([&] { return pressure(read(), 0) > 1 && pressure(read(), 1) > 1; }, "the lag");
  EXPECT_TRUE(read()[0].value.starts_with("replay lag ")) << read()[0].value;
  standby->admin().exec("SELECT pg_wal_replay_resume()");
  test::wait_until([&] { return pressure(read(), 0) == 0; }, "the standby to be in step again");
  standby.reset();
  test::wait_until([&] { return read().size() == 1; }, "the standby to be missed");
  EXPECT_EQ(read()[0].pressure, std::nullopt);
  EXPECT_NE(read()[0].value.find(" is gone for "), std::string::npos) << read()[0].value;
  primary.admin().exec("REVOKE pg_read_all_stats FROM app_owner");
  EXPECT_THROW(read(), Error) << "a right that was taken back cannot be read over";
}

TEST(PaceArchiverTest, AnArchiverThatFailsFallsBehindAndCatchesUp) {
  test::PostgresServer server({{"archive_mode=on"}});
  const auto archive_by = [&](const std::string& command) {
    server.admin().exec(fmt::format("ALTER SYSTEM SET archive_command = '{}'", command));
    server.admin().exec("SELECT pg_reload_conf()");
  };
  archive_by("false");
  auto session =
      SqlSession::connect({.dsn = server.dsn("postgres", "app_owner"), .application_name = "pace"});
  ArchiveBacklog signal;
  const auto tuning = with("max_archive_backlog", "1MB");
  const auto read = [&] { return only(signal.read(session, tuning, now())); };
  read();
  server.admin().exec("CREATE TABLE filler AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 4000)");
  server.admin().exec("SELECT pg_switch_wal()");
  test::wait_until([&] { return *read().pressure > 1 && read().value.find("failing") != std::string::npos; },
                   "the archiver to be behind");
  archive_by("true");
  test::wait_until([&] { return *read().pressure < 1; }, "the archiver to catch up",
                   std::chrono::seconds(90));
}

}  // namespace
}  // namespace crossfade::pace

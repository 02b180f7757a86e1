// What each signal makes of what the server says, on a clock of its own.
#include <gtest/gtest.h>

#include "pace/latency.hpp"
#include "pace/signals.hpp"

namespace crossfade::pace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kMegabyte = 1 << 20;

const Reading& only(const Readings& readings) {
  EXPECT_EQ(readings.size(), 1U);
  return readings.at(0);
}

Tuning with(std::string_view key, std::string_view value) {
  Tuning tuning;
  set_tuning(tuning, key, value);
  return tuning;
}

// Replay that stands still tells nothing of its own lag any more: time goes on.
TEST(PaceSignalsTest, LagIsCountedFromWhenTheServerWasPastThePosition) {
  LagTracker tracker;
  Time now{};
  tracker.wrote(100, now);
  tracker.wrote(200, now += seconds(1));
  tracker.wrote(300, now += seconds(1));
  EXPECT_EQ(tracker.seconds_behind(300, now), 0);
  EXPECT_EQ(tracker.seconds_behind(200, now), 0);
  EXPECT_EQ(tracker.seconds_behind(150, now), 1);
  EXPECT_EQ(tracker.seconds_behind(150, now + seconds(10)), 11);
  EXPECT_EQ(tracker.seconds_behind(0, now), 2);
}

TEST(PaceSignalsTest, TheTrackerForgetsDetailsNotTheBeginning) {
  LagTracker tracker;
  Time now{};
  for (int i = 1; i <= 10'000; ++i) tracker.wrote(i, now += seconds(1));
  EXPECT_EQ(tracker.seconds_behind(0, now), 9999);
}

TEST(PaceSignalsTest, TheSlowestStandbyCounts) {
  ReplicationLag signal;
  const auto tuning = with("max_replication_lag", "10s");
  Time now{};
  signal.judge({1000, {{"near", 1000, 0}, {"far", 1000, 0}}}, tuning, now);
  signal.judge({2000, {{"near", 2000, 0}, {"far", 1000, 0}}}, tuning, now += seconds(1));
  const auto lagging =
      signal.judge({2000, {{"near", 2000, 0}, {"far", 1000, 3}}}, tuning, now += seconds(14));
  EXPECT_EQ(only(lagging).signal, "replay_lag");
  EXPECT_DOUBLE_EQ(*only(lagging).pressure, 1.4);
  EXPECT_EQ(only(lagging).value, "replay lag of far 14 s");
  EXPECT_EQ(only(lagging).limit, "10 s");
  const auto reported = signal.judge({3000, {{"near", 2500, 25}, {"far", 3000, 99}}}, tuning, now);
  EXPECT_DOUBLE_EQ(*only(reported).pressure, 2.5) << "what is not behind has no lag, whatever it says";
}

TEST(PaceSignalsTest, LagHasALimitInBytesToo) {
  ReplicationLag signal;
  const auto read = signal.judge({20 * kMegabyte, {{"a", 4 * kMegabyte, 0}, {"b", 5 * kMegabyte, 0}}},
                                 with("max_replication_bytes", "8MB"), Time{});
  EXPECT_EQ(only(read).signal, "replay_bytes");
  EXPECT_DOUBLE_EQ(*only(read).pressure, 2.0);
  EXPECT_EQ(only(read).value, "replay of a behind by 16 MB");
}

TEST(PaceSignalsTest, AStandbyThatVanishesOrNeverWasCannotBeRead) {
  ReplicationLag signal;
  auto tuning = with("max_replication_lag", "10s");
  Time now{};
  EXPECT_EQ(only(signal.judge({1, {}}, tuning, now)).pressure, std::nullopt);
  EXPECT_TRUE(only(signal.judge({1, {{"a", 1, 0}, {"b", 1, 0}}}, tuning, now)).pressure);
  const auto gone = signal.judge({1, {{"a", 1, 0}}}, tuning, now += seconds(14));
  EXPECT_EQ(only(gone).pressure, std::nullopt);
  EXPECT_TRUE(only(gone).value.starts_with("standby b is gone for 14 s")) << only(gone).value;
  EXPECT_TRUE(only(signal.judge({1, {{"a", 1, 0}, {"b", 1, 0}}}, tuning, now)).pressure) << "it came back";
  signal.judge({1, {{"a", 1, 0}}}, tuning, now);
  set_tuning(tuning, "max_replication_lag", "11s");
  EXPECT_TRUE(only(signal.judge({1, {{"a", 1, 0}}}, tuning, now)).pressure)
      << "tuned: whoever is there counts";
}

TEST(PaceSignalsTest, OfTwoStandbysOfOneNameOneMayVanish) {
  ReplicationLag signal;
  const auto tuning = with("max_replication_lag", "10s");
  signal.judge({1, {{"walreceiver", 1, 0}, {"walreceiver", 1, 0}}}, tuning, Time{});
  EXPECT_EQ(only(signal.judge({1, {{"walreceiver", 1, 0}}}, tuning, Time{})).pressure, std::nullopt);
}

TEST(PaceSignalsTest, ASlotIsJudgedByHalfOfWhatTheServerKeeps) {
  const Tuning automatic;
  EXPECT_TRUE(SlotWal::judge({"s", 900 * kMegabyte, -1}, automatic).empty()) << "the server keeps all";
  const auto half = SlotWal::judge({"s", 900 * kMegabyte, 1000 * kMegabyte}, automatic);
  EXPECT_DOUBLE_EQ(*only(half).pressure, 1.8);
  EXPECT_EQ(only(half).value, "slot s keeps 900 MB of WAL");
  EXPECT_DOUBLE_EQ(*only(SlotWal::judge({"s", 5 * kMegabyte, -1}, with("max_slot_wal", "10MB"))).pressure,
                   0.5);
  EXPECT_TRUE(SlotWal::judge({}, with("max_slot_wal", "10MB")).empty());
}

TEST(PaceSignalsTest, TheArchiverIsBehindByWhatItHasNotArchived) {
  ArchiveBacklog signal;
  const auto tuning = with("max_archive_backlog", "32MB");
  EXPECT_TRUE(signal.judge({false, 900 * kMegabyte, {}, {}, {}}, tuning).empty());
  const auto behind = signal.judge({true, 80 * kMegabyte, 16 * kMegabyte, {}, 12.0}, tuning);
  EXPECT_DOUBLE_EQ(*only(behind).pressure, 2.0);
  EXPECT_EQ(only(behind).value, "archiver behind by 64 MB, failing since 12 s at least");
  EXPECT_DOUBLE_EQ(*only(signal.judge({true, 80 * kMegabyte, 96 * kMegabyte, {}, {}}, tuning)).pressure, 0)
      << "the segment at hand may be archived before it is full";
}

TEST(PaceSignalsTest, AnArchiverThatNeverArchivedIsBehindSinceItsFailureOrSinceWeLook) {
  const auto tuning = with("max_archive_backlog", "32MB");
  ArchiveBacklog failing;
  EXPECT_DOUBLE_EQ(*only(failing.judge({true, 48 * kMegabyte, {}, 16 * kMegabyte, 1.0}, tuning)).pressure, 1);
  ArchiveBacklog silent;
  EXPECT_DOUBLE_EQ(*only(silent.judge({true, 48 * kMegabyte, {}, {}, {}}, tuning)).pressure, 0);
  EXPECT_DOUBLE_EQ(*only(silent.judge({true, 64 * kMegabyte, {}, {}, {}}, tuning)).pressure, 0.5);
}

TEST(PaceSignalsTest, TheWalRateIsThatOfTheLastSeconds) {
  WalRate signal;
  const auto tuning = with("max_wal_rate", "1MB");
  Time now{};
  EXPECT_EQ(only(signal.judge(0, tuning, now)).pressure, kUndecided);
  EXPECT_EQ(only(signal.judge(kMegabyte, tuning, now += seconds(1))).pressure, kUndecided);
  EXPECT_DOUBLE_EQ(*only(signal.judge(4 * kMegabyte, tuning, now += seconds(1))).pressure, 2);
  Reading last;
  for (int i = 0; i < 10; ++i) last = only(signal.judge(4 * kMegabyte, tuning, now += seconds(1)));
  EXPECT_DOUBLE_EQ(*last.pressure, 0);
  EXPECT_EQ(last.value, "WAL rate 0 B/s");
  signal.rate_lowered();
  EXPECT_EQ(only(signal.judge(9 * kMegabyte, tuning, now += seconds(1))).pressure, kUndecided)
      << "what was written at another rate does not count";
}

TEST(PaceSignalsTest, WaitersAreCountedAgainstTheirLimit) {
  const auto read = LockWaiters::judge({15, 0.25}, Tuning{});
  EXPECT_DOUBLE_EQ(*only(read).pressure, 1.5);
  EXPECT_EQ(only(read).response, Response::slows);
  EXPECT_EQ(only(read).value, "15 sessions wait for locks of the sweep (up to 250 ms)");
}

TEST(PaceSignalsTest, TheVacuumThatIsYieldedToIsChosen) {
  const TableVacuum::Facts none, ordinary{7, false}, wraparound{8, true};
  EXPECT_EQ(only(TableVacuum::judge(none, with("yield_to_vacuum", "any"))).pressure, 0);
  EXPECT_EQ(only(TableVacuum::judge(ordinary, with("yield_to_vacuum", "any"))).pressure, 2);
  EXPECT_EQ(only(TableVacuum::judge(ordinary, Tuning{})).pressure, 0);
  const auto read = TableVacuum::judge(wraparound, Tuning{});
  EXPECT_EQ(only(read).pressure, 2);
  EXPECT_EQ(only(read).value, "vacuum of the table to prevent wraparound by pid 8");
}

TEST(PaceSignalsTest, CountsAndSizesAreComparedWithTheirLimits) {
  EXPECT_DOUBLE_EQ(*only(DeadTuples::judge(300, with("max_dead_tuples", "200"))).pressure, 1.5);
  const auto old = OldestXmin::judge({5000, "pid 7 (ada)"}, with("max_xmin_age", "10000"));
  EXPECT_DOUBLE_EQ(*only(old).pressure, 0.5);
  EXPECT_EQ(only(old).value, "oldest snapshot 5000 transactions old, of pid 7 (ada)");
  const auto disk = FreeDisk::judge(2.0 * kMegabyte, with("min_free_disk", "4MB"));
  EXPECT_DOUBLE_EQ(*only(disk).pressure, 2);
  EXPECT_EQ(only(disk).relation, '<');
  EXPECT_GT(*only(FreeDisk::judge(0, with("min_free_disk", "4MB"))).pressure, 1);
}

TEST(PaceSignalsTest, TheProbeIsJudgedByItsNinetyNinthPercentile) {
  LatencyWindow window;
  Time now{};
  for (int i = 0; i < 9; ++i) window.add(5, now);
  EXPECT_EQ(window.p99(now), std::nullopt) << "nine samples say nothing";
  window.add(80, now);
  EXPECT_EQ(window.p99(now), 80);
  for (int i = 0; i < 90; ++i) window.add(i % 10, now);
  EXPECT_EQ(window.p99(now), 9) << "one of a hundred may be as slow as it likes";
  window.add(80, now);
  EXPECT_EQ(window.p99(now), 80) << "two may not";
  for (int i = 0; i < 100; ++i) window.add(1, now);
  EXPECT_EQ(window.p99(now), 1) << "the hundred latest count";
  EXPECT_EQ(window.p99(now + seconds(31)), std::nullopt) << "what is old says nothing";
  window.clear();
  window.add(1000, now);
  EXPECT_EQ(window.p99(now + seconds(5)), std::nullopt);
  window.add(1000, now + seconds(1));
  EXPECT_EQ(window.p99(now + seconds(1)), 1000) << "one that is blocked comes back seldom";
  const auto read = ProbeLatency::judge(80, with("probe_p99", "50ms"));
  EXPECT_DOUBLE_EQ(*only(read).pressure, 1.6);
  EXPECT_EQ(only(read).value, "probe p99 80 ms");
  EXPECT_EQ(only(ProbeLatency::judge(std::nullopt, with("probe_p99", "50ms"))).pressure, kUndecided);
}

TEST(PaceSignalsTest, NumbersAreWrittenAsPeopleReadThem) {
  EXPECT_EQ(seconds_text(0.25), "0.25 s");
  EXPECT_EQ(seconds_text(14.2), "14 s");
  EXPECT_EQ(milliseconds_text(79.6), "80 ms");
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1536), "1.5 kB");
  EXPECT_EQ(size_text(3.0 * kMegabyte * 1024 * 1024), "3.0 TB");
}

}  // namespace
}  // namespace crossfade::pace

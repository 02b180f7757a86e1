#include "crossfade/core/tuning.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/printable.hpp"

namespace crossfade {

namespace {

using std::chrono::milliseconds;

struct Entry {
  TuningKey key;
  bool (*set)(Tuning&, std::string_view);  // false: outside the bounds
  std::string (*get)(const Tuning&);
};

template <class Integer>
bool set_integer(Integer& target, std::string_view text, Integer low, Integer high) {
  Integer value{};
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc{} || rest != end || value < low || value > high) return false;
  target = value;
  return true;
}

std::optional<milliseconds> duration_within(std::string_view text, milliseconds low, milliseconds high) {
  const std::optional<milliseconds> value = parse_duration(text);
  return value && *value >= low && *value <= high ? value : std::nullopt;
}

bool set_duration(milliseconds& target, std::string_view text, milliseconds low, milliseconds high) {
  const std::optional<milliseconds> value = duration_within(text, low, high);
  if (value) target = *value;
  return value.has_value();
}

std::string_view order_text(SweepOrder order) {
  switch (order) {
    case SweepOrder::automatic:
      return "auto";
    case SweepOrder::key:
      return "key";
    case SweepOrder::physical:
      return "physical";
  }
  std::abort();
}

bool set_order(Tuning& tuning, std::string_view text) {
  for (const SweepOrder order : {SweepOrder::automatic, SweepOrder::key, SweepOrder::physical}) {
    if (order_text(order) != text) continue;
    tuning.order = order;
    return true;
  }
  return false;
}

bool set_interleave(Tuning& tuning, std::string_view text) {
  if (text != "auto") return set_integer(tuning.interleave, text, 1, 64);
  tuning.interleave = 0;
  return true;
}

bool set_replication_lag(Tuning& tuning, std::string_view text) {
  if (text == "off") {
    tuning.max_replication_lag.reset();
    return true;
  }
  const auto lag = duration_within(text, milliseconds(100), std::chrono::hours(24));
  if (lag) tuning.max_replication_lag = lag;
  return lag.has_value();
}

bool set_sql(std::string& target, std::string_view text) {
  constexpr std::size_t kLongest = 10'000;
  if (text.size() > kLongest || text.find('\0') != std::string_view::npos) return false;
  target = text;
  return true;
}

constexpr std::int64_t kMegabyte = 1 << 20;
constexpr std::int64_t kTerabyte = kMegabyte << 20;

bool set_bytes(std::int64_t& target, std::string_view text, std::int64_t low, std::int64_t high) {
  if (text == "off") {
    target = 0;
    return true;
  }
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < low || *bytes > high) return false;
  target = *bytes;
  return true;
}

std::string bytes_text(std::int64_t bytes) { return bytes == 0 ? std::string("off") : format_bytes(bytes); }

bool set_slot_wal(Tuning& tuning, std::string_view text) {
  if (text != "auto") return set_bytes(tuning.max_slot_wal, text, kMegabyte, 16 * kTerabyte);
  tuning.max_slot_wal = Tuning::kAutomaticSlotWal;
  return true;
}

std::string_view yield_text(YieldToVacuum yield) {
  switch (yield) {
    case YieldToVacuum::off:
      return "off";
    case YieldToVacuum::wraparound:
      return "wraparound";
    case YieldToVacuum::any:
      return "any";
  }
  std::abort();
}

bool set_yield(Tuning& tuning, std::string_view text) {
  for (const auto yield : {YieldToVacuum::off, YieldToVacuum::wraparound, YieldToVacuum::any}) {
    if (yield_text(yield) != text) continue;
    tuning.yield_to_vacuum = yield;
    return true;
  }
  return false;
}

constexpr std::int64_t kBillion = 1'000'000'000;

constexpr auto kEntries = std::to_array<Entry>({
    {{"workers", "2", "1..64", "Workers that sweep, or read, at the same time in one process."},
     [](Tuning& t, std::string_view v) { return set_integer(t.workers, v, 1, 64); },
     [](const Tuning& t) { return std::to_string(t.workers); }},
    {{"rows_per_second", "0", "0..1000000000",
      "Rows that all workers together may write in a second; 0 sets no fixed limit."},
     [](Tuning& t, std::string_view v) {
       return set_integer(t.rows_per_second, v, std::int64_t{0}, kBillion);
     },
     [](const Tuning& t) { return std::to_string(t.rows_per_second); }},
    {{"chunk_target", "100ms", "10ms..10s", "Time that the transaction of one chunk should take."},
     [](Tuning& t, std::string_view v) {
       return set_duration(t.chunk_target, v, milliseconds(10), std::chrono::seconds(10));
     },
     [](const Tuning& t) { return format_duration(t.chunk_target); }},
    {{"order", "auto", "auto | key | physical", "Order in which the table is swept."},
     set_order,
     [](const Tuning& t) { return std::string(order_text(t.order)); }},
    {{"interleave", "auto", "auto | 1..64",
      "Visits in which a window of pages is swept, so that updates stay on their page; 1 turns it off."},
     set_interleave,
     [](const Tuning& t) { return t.interleave == 0 ? std::string("auto") : std::to_string(t.interleave); }},
    {{"max_rejects", "0", "0..1000000000",
      "Rows that may fail before the sweep stops; 0 stops at the first one."},
     [](Tuning& t, std::string_view v) { return set_integer(t.max_rejects, v, std::int64_t{0}, kBillion); },
     [](const Tuning& t) { return std::to_string(t.max_rejects); }},
    {{"max_replication_lag", "off", "off | 100ms..1d",
      "Replay lag of a standby above which the sweep waits."},
     set_replication_lag,
     [](const Tuning& t) {
       return t.max_replication_lag ? format_duration(*t.max_replication_lag) : std::string("off");
     }},
    {{"probe", "", "canary, SQL of at most 10000 bytes, or nothing",
      "Statement run as a canary on the live path, whose latency the sweep yields to."},
     [](Tuning& t, std::string_view v) { return set_sql(t.probe, v); },
     [](const Tuning& t) { return t.probe; }},
    {{"probe_p99", "50ms", "1ms..60s",
      "99th percentile of the probe's latency above which the sweep slows down."},
     [](Tuning& t, std::string_view v) {
       return set_duration(t.probe_p99, v, milliseconds(1), std::chrono::seconds(60));
     },
     [](const Tuning& t) { return format_duration(t.probe_p99); }},
    {{"max_lock_waiters", "10", "0..10000",
      "Sessions waiting for locks of the workers above which the sweep slows down; 0 turns it off."},
     [](Tuning& t, std::string_view v) {
       return set_integer(t.max_lock_waiters, v, std::int64_t{0}, std::int64_t{10'000});
     },
     [](const Tuning& t) { return std::to_string(t.max_lock_waiters); }},
    {{"max_replication_bytes", "off", "off | 1MB..16TB",
      "WAL that a standby has yet to replay above which the sweep waits."},
     [](Tuning& t, std::string_view v) {
       return set_bytes(t.max_replication_bytes, v, kMegabyte, 16 * kTerabyte);
     },
     [](const Tuning& t) { return bytes_text(t.max_replication_bytes); }},
    {{"max_slot_wal", "auto", "auto | off | 1MB..16TB",
      "WAL kept for a replication slot above which the sweep waits; auto is half of max_slot_wal_keep_size."},
     set_slot_wal,
     [](const Tuning& t) {
       return t.max_slot_wal == Tuning::kAutomaticSlotWal ? std::string("auto") : bytes_text(t.max_slot_wal);
     }},
    {{"max_archive_backlog", "1GB", "off | 1MB..16TB",
      "WAL that the archiver has yet to archive above which the sweep waits."},
     [](Tuning& t, std::string_view v) {
       return set_bytes(t.max_archive_backlog, v, kMegabyte, 16 * kTerabyte);
     },
     [](const Tuning& t) { return bytes_text(t.max_archive_backlog); }},
    {{"max_wal_rate", "off", "off | 64kB..1TB",
      "WAL that the server writes in a second above which the sweep slows down."},
     [](Tuning& t, std::string_view v) { return set_bytes(t.max_wal_rate, v, kMegabyte / 16, kTerabyte); },
     [](const Tuning& t) { return bytes_text(t.max_wal_rate); }},
    {{"yield_to_vacuum", "wraparound", "off | wraparound | any",
      "Vacuum of the table that the sweep waits for."},
     set_yield,
     [](const Tuning& t) { return std::string(yield_text(t.yield_to_vacuum)); }},
    {{"max_dead_tuples", "0", "0..1000000000000",
      "Dead rows of the table above which the sweep waits; 0 turns it off."},
     [](Tuning& t, std::string_view v) {
       return set_integer(t.max_dead_tuples, v, std::int64_t{0}, 1000 * kBillion);
     },
     [](const Tuning& t) { return std::to_string(t.max_dead_tuples); }},
    {{"max_xmin_age", "0", "0..2000000000",
      "Age in transactions of the oldest snapshot above which the sweep waits; 0 turns it off."},
     [](Tuning& t, std::string_view v) {
       return set_integer(t.max_xmin_age, v, std::int64_t{0}, 2 * kBillion);
     },
     [](const Tuning& t) { return std::to_string(t.max_xmin_age); }},
    {{"min_free_disk", "off", "off | 1MB..1024TB",
      "Free bytes, as disk_probe answers them, below which the sweep waits."},
     [](Tuning& t, std::string_view v) { return set_bytes(t.min_free_disk, v, kMegabyte, 1024 * kTerabyte); },
     [](const Tuning& t) { return bytes_text(t.min_free_disk); }},
    {{"disk_probe", "", "SQL of at most 10000 bytes, or nothing",
      "Query whose one value is the free bytes of the server's disk, which PostgreSQL itself does not know."},
     [](Tuning& t, std::string_view v) { return set_sql(t.disk_probe, v); },
     [](const Tuning& t) { return t.disk_probe; }},
});

constexpr auto kKeys = [] {
  std::array<TuningKey, kEntries.size()> keys;
  std::ranges::transform(kEntries, keys.begin(), &Entry::key);
  return keys;
}();

const Entry& entry_of(std::string_view key) {
  for (const Entry& entry : kEntries) {
    if (entry.key.name == key) return entry;
  }
  std::vector<std::string_view> names;
  for (const TuningKey& known : kKeys) names.push_back(known.name);
  const auto suggestion = nearest(key, names);
  throw Error(
      ErrorCode::unknown_tuning_key,
      fmt::format("There is no tuning key \"{}\"; known are {}.", printable(key), fmt::join(names, ", ")),
      suggestion ? fmt::format("Did you mean \"{}\"?", *suggestion) : std::string(), std::string(key));
}

}  // namespace

std::span<const TuningKey> tuning_keys() { return kKeys; }

void set_tuning(Tuning& tuning, std::string_view key, std::string_view value) {
  const Entry& entry = entry_of(key);
  if (entry.set(tuning, value)) return;
  throw Error(ErrorCode::tuning_out_of_bounds,
              fmt::format("The tuning key \"{}\" cannot be \"{}\"; allowed is {}.", key, printable(value),
                          entry.key.bounds),
              {}, std::string(key));
}

std::string tuning_value(const Tuning& tuning, std::string_view key) { return entry_of(key).get(tuning); }

}  // namespace crossfade

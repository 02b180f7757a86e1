// How a migration runs: every value may change at any time without a restart. One table holds name, default,
// bounds and sentence; the spec parser, `tune`, --help and docs/spec.md read it there.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace crossfade {

enum class SweepOrder { automatic, key, physical };
// Which vacuum of the table the sweep waits for.
enum class YieldToVacuum { off, wraparound, any };

struct Tuning {
  int workers = 2;
  std::int64_t rows_per_second = 0;  // 0: no fixed limit
  std::chrono::milliseconds chunk_target{100};
  SweepOrder order = SweepOrder::automatic;
  int interleave = 0;  // 0: auto, 1: off, k
  std::int64_t max_rejects = 0;
  std::optional<std::chrono::milliseconds> max_replication_lag;  // absent: off
  std::string probe;                                             // empty: off; kBuiltInProbe; or SQL
  std::chrono::milliseconds probe_p99{50};
  // Of those that count, 0 is off; bytes unless the name says otherwise.
  std::int64_t max_lock_waiters = 10;
  std::int64_t max_replication_bytes = 0;
  std::int64_t max_slot_wal = kAutomaticSlotWal;
  std::int64_t max_archive_backlog = std::int64_t{1} << 30;
  std::int64_t max_wal_rate = 0;  // per second
  YieldToVacuum yield_to_vacuum = YieldToVacuum::wraparound;
  std::int64_t max_dead_tuples = 0;
  std::int64_t max_xmin_age = 0;  // in transactions
  std::int64_t min_free_disk = 0;
  std::string disk_probe;
  bool operator==(const Tuning&) const = default;

  static constexpr std::string_view kBuiltInProbe = "canary";
  // Half of max_slot_wal_keep_size, where the server has one.
  static constexpr std::int64_t kAutomaticSlotWal = -1;
};

struct TuningKey {
  std::string_view name;
  std::string_view default_text;
  std::string_view bounds;    // as shown to people: "1..64", "10ms..10s", "auto | key | physical"
  std::string_view sentence;  // one sentence
};
std::span<const TuningKey> tuning_keys();

// Sets one value from its text form. Throws unknown_tuning_key (with the nearest known key) or
// tuning_out_of_bounds.
void set_tuning(Tuning& tuning, std::string_view key, std::string_view value);
std::string tuning_value(const Tuning& tuning, std::string_view key);

// "200ms", "1h", "24h", "90s", "15min", "1d": digits and one unit of ms, s, min, h, d. nullopt when
// malformed.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
// In the largest of these units that is exact.
std::string format_duration(std::chrono::milliseconds duration);

// "64kB", "16MB", "1GB", "2TB": digits and one unit of B, kB, MB, GB, TB, each 1024 times the one before.
// nullopt when malformed.
std::optional<std::int64_t> parse_bytes(std::string_view text);
// In the largest of these units that is exact.
std::string format_bytes(std::int64_t bytes);

// The member of `known` with the smallest edit distance, when that is at most three and something of the word
// is left.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace crossfade

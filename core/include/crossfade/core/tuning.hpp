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

struct Tuning {
  int workers = 2;
  std::int64_t rows_per_second = 0;  // 0: no fixed limit
  std::chrono::milliseconds chunk_target{100};
  SweepOrder order = SweepOrder::automatic;
  int interleave = 0;  // 0: auto, 1: off, k
  std::int64_t max_rejects = 0;
  std::optional<std::chrono::milliseconds> max_replication_lag;  // absent: off
  std::string probe;
  std::chrono::milliseconds probe_p99{50};
  bool operator==(const Tuning&) const = default;
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

// The member of `known` with the smallest edit distance, when that is at most three and something of the word
// is left.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace crossfade

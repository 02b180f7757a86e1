#include "crossfade/core/tuning.hpp"

#include <gtest/gtest.h>

#include "crossfade/core/error.hpp"

namespace crossfade {
namespace {

bool accepts(std::string_view key, std::string_view value) {
  Tuning tuning;
  try {
    set_tuning(tuning, key, value);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::tuning_out_of_bounds);
    EXPECT_EQ(tuning, Tuning{}) << "a refused value was kept";
    return false;
  }
}

// The value of a bound and one of its smallest unit more or less.
std::string beside(const std::string& bound, int step) {
  if (const auto time = parse_duration(bound))
    return format_duration(*time + std::chrono::milliseconds(step));
  if (const auto bytes = parse_bytes(bound)) return format_bytes(*bytes + step);
  return std::to_string(std::stoll(bound) + step);
}

TEST(TuningTest, TheTableHasTheDefaultsOfTheStructure) {
  const Tuning fresh;
  for (const TuningKey& key : tuning_keys())
    EXPECT_EQ(tuning_value(fresh, key.name), key.default_text) << key.name;
}

TEST(TuningTest, EveryDefaultCanBeSet) {
  Tuning tuning;
  for (const TuningKey& key : tuning_keys()) set_tuning(tuning, key.name, key.default_text);
  EXPECT_EQ(tuning, Tuning{});
}

TEST(TuningTest, EveryKeyHasBoundsAndOneSentence) {
  for (const TuningKey& key : tuning_keys()) {
    EXPECT_FALSE(key.bounds.empty()) << key.name;
    EXPECT_TRUE(key.sentence.ends_with('.')) << key.name;
  }
}

TEST(TuningTest, WhatIsSetIsReadBack) {
  const std::pair<const char*, const char*> values[] = {{"workers", "8"},
                                                        {"rows_per_second", "2000"},
                                                        {"chunk_target", "250ms"},
                                                        {"order", "physical"},
                                                        {"interleave", "8"},
                                                        {"max_rejects", "100"},
                                                        {"max_replication_lag", "10s"},
                                                        {"probe", "SELECT 1"},
                                                        {"probe_p99", "1s"},
                                                        {"interleave", "1"},
                                                        {"interleave", "auto"},
                                                        {"max_replication_lag", "off"},
                                                        {"probe", "canary"},
                                                        {"max_lock_waiters", "0"},
                                                        {"max_replication_bytes", "64MB"},
                                                        {"max_slot_wal", "3GB"},
                                                        {"max_slot_wal", "off"},
                                                        {"max_slot_wal", "auto"},
                                                        {"max_archive_backlog", "off"},
                                                        {"max_wal_rate", "1536kB"},
                                                        {"yield_to_vacuum", "any"},
                                                        {"yield_to_vacuum", "off"},
                                                        {"max_dead_tuples", "5"},
                                                        {"max_xmin_age", "1000000"},
                                                        {"min_free_disk", "20GB"},
                                                        {"disk_probe", "SELECT 1"}};
  Tuning tuning;
  for (const auto& [key, value] : values) {
    set_tuning(tuning, key, value);
    EXPECT_EQ(tuning_value(tuning, key), value) << key;
  }
}

TEST(TuningTest, TheBoundsShownAreTheBoundsKept) {
  for (const TuningKey& key : tuning_keys()) {
    std::string_view bounds = key.bounds;
    if (const auto bar = bounds.rfind("| "); bar != std::string_view::npos) bounds.remove_prefix(bar + 2);
    const auto dots = bounds.find("..");
    if (dots == std::string_view::npos) continue;
    const std::string low(bounds.substr(0, dots)), high(bounds.substr(dots + 2));
    EXPECT_TRUE(accepts(key.name, low)) << key.name;
    EXPECT_TRUE(accepts(key.name, high)) << key.name;
    EXPECT_FALSE(accepts(key.name, beside(low, -1))) << key.name;
    EXPECT_FALSE(accepts(key.name, beside(high, 1))) << key.name;
  }
}

TEST(BytesTest, AreDigitsAndOneUnit) {
  EXPECT_EQ(parse_bytes("0B"), 0);
  EXPECT_EQ(parse_bytes("64kB"), 65536);
  EXPECT_EQ(parse_bytes("16TB"), std::int64_t{16} << 40);
  for (const char* text : {"", "5", "kB", "-1kB", "1.5MB", "1 MB", "1mb", "1KB", "1MBs",
                           "9223372036854775807kB", "99999999999999999999B"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(BytesTest, AreWrittenInTheLargestExactUnit) {
  for (const char* text : {"0B", "1B", "1023B", "1kB", "1536kB", "1GB", "1025GB", "3TB"})
    EXPECT_EQ(format_bytes(*parse_bytes(text)), text);
  EXPECT_EQ(format_bytes(2048), "2kB");
}

TEST(TuningTest, AnUnknownKeySuggestsTheNearest) {
  Tuning tuning;
  try {
    set_tuning(tuning, "worker", "3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unknown_tuning_key);
    EXPECT_EQ(error.exit_status(), 2);
    EXPECT_EQ(error.hint(), "Did you mean \"workers\"?");
  }
  EXPECT_THROW(tuning_value(tuning, ""), Error);
}

TEST(TuningTest, MalformedValuesAreOutOfBounds) {
  for (const char* value : {"", " 2", "2 ", "two", "2.0", "-1", "+2", "99999999999999999999"}) {
    EXPECT_FALSE(accepts("workers", value)) << value;
    EXPECT_FALSE(accepts("rows_per_second", value)) << value;
    EXPECT_FALSE(accepts("interleave", value)) << value;
    EXPECT_FALSE(accepts("chunk_target", value)) << value;
    EXPECT_FALSE(accepts("max_replication_lag", value)) << value;
  }
  EXPECT_FALSE(accepts("order", "random"));
  EXPECT_FALSE(accepts("probe", std::string_view("a\0b", 3)));
  EXPECT_FALSE(accepts("probe", std::string(10'001, 'x')));
}

}  // namespace
}  // namespace crossfade

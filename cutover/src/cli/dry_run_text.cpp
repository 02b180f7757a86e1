#include "dry_run_text.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace crossfade::cli {

namespace {

std::string share_of(std::int64_t count, std::int64_t total) {
  if (total <= 0) return "";
  return fmt::format(" ({:.1f} %)", 100.0 * static_cast<double>(count) / static_cast<double>(total));
}

std::string key_text(const Key& key) { return one_line(fmt::format("{}", fmt::join(key.parts, ", ")), 60); }

std::string samples_text(const ErrorSamples& samples) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> keys;
  for (const Key& key : samples.keys) {
    if (keys.size() == kMost) break;
    keys.push_back(key.parts.size() == 1 ? key_text(key) : fmt::format("({})", key_text(key)));
  }
  if (keys.empty()) return "";
  return fmt::format(", for example key {}", fmt::join(keys, ", "));
}

std::string collision_text(const IndexCollisions& collisions, const Style& style) {
  const auto index = one_line(collisions.index, 60);
  std::string found = fmt::format("none possible under unique index {}: the conversion is one-to-one", index);
  if (!collisions.proved) found = fmt::format("none under unique index {}", index);
  if (collisions.rows > 0) {
    found = style.red(fmt::format("{} rows in {} groups become equal under unique index {}",
                                  grouped(collisions.rows), grouped(collisions.groups), index));
    for (std::size_t i = 0; i < collisions.samples.size() && i < 2; ++i) {
      found += fmt::format("{}keys ({}) and ({})", i == 0 ? ", for example " : "; ",
                           key_text(collisions.samples[i].first), key_text(collisions.samples[i].second));
    }
  }
  return fmt::format("  {:<12} {}\n", "collisions", found);
}

// "12" or "12 to 15": a forecast is a range.
std::string range_text(const std::string& low, const std::string& high) {
  return low == high ? low : fmt::format("{} to {}", low, high);
}

}  // namespace

std::string dry_run_text(const ProfileReport& report, const Style& style, const std::string& of) {
  std::string text = style.bold("dry run" + of) + "\n";
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("  {:<12} {}\n", label, value);
  };
  const auto counted = [&](std::string_view label, std::int64_t count, std::string_view meaning) {
    line(label, fmt::format("{}{}  {}", grouped(count), share_of(count, report.rows), style.dim(meaning)));
  };
  line("rows",
       fmt::format("{}, {} each, read in {} at {} rows/s", grouped(report.rows), byte_size(report.row_bytes),
                   clock_time(report.seconds), grouped(static_cast<long long>(report.rows_per_second))));
  counted("changed", report.changed, "values that become another value");
  counted("NULLs in", report.nulls_in, "old values that are NULL");
  counted("NULLs out", report.nulls_out, "new values that are NULL");
  counted("errors", report.errors, "rows whose forward expression fails");
  for (const auto& [sqlstate, samples] : report.errors_by_sqlstate) {
    line("", style.red(fmt::format("{}: {} rows{}", sqlstate, grouped(samples.rows), samples_text(samples))));
  }
  counted("lossy", report.lossy, "values that do not survive the way forward and back");
  counted("rounded", report.rounded, "values that the new type's modifier changes");
  counted("respelled", report.respelled, "values that come back equal in another spelling");
  for (const auto& collisions : report.collisions) {
    text += collision_text(collisions, style);
  }
  text += style.bold("forecast") + "\n";
  line("backfill", range_text(clock_time(report.seconds_low), clock_time(report.seconds_high)));
  line("WAL", range_text(byte_size(report.wal_bytes_low), byte_size(report.wal_bytes_high)));
  line("disk growth", byte_size(report.disk_growth_bytes));
  return text;
}

}  // namespace crossfade::cli

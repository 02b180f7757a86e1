#include "status_pace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace crossfade {

namespace {

// The controller speaks while something is swept or read; everything else goes as fast as it can.
void add_order(SqlSession& session, const MigrationRow& row, StatusReport& report) {
  const auto found = session.exec(
      "SELECT p.state, p.limit_rows_per_second, p.reason, p.since, p.starved_seconds, p.signals"
      " FROM crossfade.pace p WHERE p.migration_id = $1 AND p.token = $2 AND p.state <> 'idle'"
      // What is older was said of work that is over, by a session that broke before it could say so.
      " AND p.at > clock_timestamp() - interval '15 s'",
      {row.id.text, row.token.text});
  if (found.empty()) return;
  const auto& order = found[0];
  report.pace.state = text_of(order[0]);
  if (const auto limit = int_of(order[1]); limit > 0) {
    auto& lesser = report.pace.limit_rows_per_second;
    lesser = lesser == 0 ? limit : std::min(lesser, limit);
  }
  if (const auto reason = text_of(order[2]); !reason.empty()) report.pace.reason = reason;
  report.pace.since = text_of(order[3]);
  if (order[4]) report.pace.starved_seconds = int_of(order[4]);
  for (const auto& signal : nlohmann::json::parse(text_of(order[5]))) {
    StatusReport::Signal one{signal.at("signal"), signal.at("value"), {}, {}};
    if (!signal.at("limit").is_null()) one.limit = signal.at("limit").get<std::string>();
    if (!signal.at("pressure").is_null()) one.pressure = signal.at("pressure").get<double>();
    report.pace.signals.push_back(std::move(one));
  }
}

}  // namespace

void add_pace(SqlSession& session, const MigrationRow& row, const Tuning& tuning, StatusReport& report) {
  auto& pace = report.pace;
  pace.limit_rows_per_second = tuning.rows_per_second;
  if (row.status == Status::paused) {
    pace.state = "paused";
    pace.reason = row.reason;
    report.eta_seconds.reset();
    return;
  }
  // A settled phase can be compared again.
  if (!row.lease_live || row.status == Status::failed) return;
  if (row.status == Status::running) pace.state = "running";
  add_order(session, row, report);
  if (pace.state == "running" && tuning.rows_per_second > 0 &&
      report.rate_rows_per_second > 0.9 * static_cast<double>(tuning.rows_per_second)) {
    pace.state = "throttled";
    pace.reason = fmt::format("rows_per_second = {}", tuning.rows_per_second);
  }
  if (pace.state == "paused") report.eta_seconds.reset();
  const auto limit = pace.limit_rows_per_second;
  if (limit > 0 && report.eta_seconds && report.rate_rows_per_second > static_cast<double>(limit)) {
    const auto left = std::max<std::int64_t>(report.rows.estimated - report.rows.done, 0) / limit;
    report.eta_seconds = {std::max(report.eta_seconds->first, left * 8 / 10),
                          std::max(report.eta_seconds->second, left * 14 / 10 + 1)};
  }
}

}  // namespace crossfade

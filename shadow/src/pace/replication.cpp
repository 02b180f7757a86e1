#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"
#include "signals.hpp"

namespace crossfade::pace {

namespace {

// Every second for half an hour; older ones are thinned out.
constexpr std::size_t kMostSamples = 2000;

// A receiver that replays nothing (pg_receivewal) and the senders of logical slots are no standbys; the ones
// that copy tables come and go.
constexpr const char* kStandbys =
    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, r.name,"
    " pg_wal_lsn_diff(r.replay_lsn, '0/0')::bigint, coalesce(extract(epoch FROM r.replay_lag), 0)"
    " FROM (SELECT) one LEFT JOIN (SELECT coalesce(nullif(s.application_name, ''), 'standby') ||"
    " coalesce(' at ' || host(s.client_addr), '') AS name, s.replay_lsn, s.replay_lag"
    " FROM pg_stat_replication s WHERE s.state IN ('streaming', 'catchup') AND s.replay_lsn IS NOT NULL"
    " AND NOT EXISTS (SELECT FROM pg_replication_slots l WHERE l.active_pid = s.pid"
    " AND l.slot_type = 'logical')) r ON true ORDER BY r.name";

}  // namespace

void LagTracker::wrote(std::int64_t lsn, Time now) {
  if (!samples_.empty() && samples_.back().first >= lsn) return;
  samples_.emplace_back(lsn, now);
  if (samples_.size() <= kMostSamples) return;
  std::deque<std::pair<std::int64_t, Time>> kept;
  for (std::size_t i = 0; i < samples_.size(); i += 2) kept.push_back(samples_[i]);
  samples_ = std::move(kept);
}

double LagTracker::seconds_behind(std::int64_t lsn, Time now) const {
  const auto first = std::ranges::upper_bound(samples_, lsn, {}, &std::pair<std::int64_t, Time>::first);
  if (first == samples_.end()) return 0;
  return std::chrono::duration<double>(now - first->second).count();
}

void require_statistics(SqlSession& session, std::string_view key) {
  const auto role = session
                        .exec_prepared(
                            "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), "
                            "quote_ident(current_user)")
                        .one("role");
  if (bool_of(role[0])) return;
  const auto name = text_of(role[1]);
  throw Error(ErrorCode::permission_denied,
              fmt::format("role {} may not read what {} needs (statistics_hidden)", name, key),
              fmt::format("GRANT pg_read_all_stats TO {}; or turn {} off", name, key), name);
}

Readings ReplicationLag::read(SqlSession& session, const Tuning& tuning, Time now) {
  if (!tuning.max_replication_lag && tuning.max_replication_bytes == 0) return {};
  require_statistics(session, tuning.max_replication_lag ? "max_replication_lag" : "max_replication_bytes");
  const auto found = session.exec_prepared(kStandbys);
  Facts facts;
  facts.written = int_of(found.one("standbys")[0]);
  for (const auto& row : found.rows) {
    if (row[1]) facts.standbys.push_back({text_of(row[1]), int_of(row[2]), double_of(row[3])});
  }
  return judge(facts, tuning, now);
}

// Who was there and is not any more: its lag is not zero, it is unknown.
std::optional<Reading> ReplicationLag::missing(const Facts& facts, Time now) {
  std::map<std::string, int> present;
  for (const auto& standby : facts.standbys) ++present[standby.name];
  for (const auto& [name, count] : present) {
    auto& known = known_[name];
    if (count >= known.first) known = {count, now};
  }
  for (const auto& [name, known] : known_) {
    if (present[name] >= known.first) continue;
    return Reading{
        this->name(), Response::waits, std::nullopt,
        fmt::format("standby {} is gone for {}, so that its lag is unknown; if it is gone for good, set"
                    " max_replication_lag to another value",
                    name, seconds_text(std::chrono::duration<double>(now - known.second).count())),
        ""};
  }
  if (!facts.standbys.empty()) return std::nullopt;
  return Reading{this->name(), Response::waits, std::nullopt,
                 "no standby streams from this server, so that the replay lag is unknown", ""};
}

Readings ReplicationLag::judge(const Facts& facts, const Tuning& tuning, Time now) {
  tracker_.wrote(facts.written, now);
  const auto limits =
      fmt::format("{} {}", tuning.max_replication_lag ? tuning.max_replication_lag->count() : 0,
                  tuning.max_replication_bytes);
  if (limits != limits_) known_.clear();
  limits_ = limits;
  if (auto gone = missing(facts, now)) return {std::move(*gone)};
  Readings readings;
  const auto several = facts.standbys.size() > 1;
  const auto of = [&](const Standby& standby) { return several ? " of " + standby.name : std::string(); };
  if (tuning.max_replication_lag) {
    const Standby* worst = nullptr;
    double longest = -1;
    for (const auto& standby : facts.standbys) {
      const bool behind = standby.replayed < facts.written;
      const double lag =
          behind ? std::max(tracker_.seconds_behind(standby.replayed, now), standby.reported_lag) : 0;
      if (lag > longest) worst = &standby, longest = lag;
    }
    const double most = std::chrono::duration<double>(*tuning.max_replication_lag).count();
    readings.push_back({"replay_lag", Response::waits, longest / most,
                        fmt::format("replay lag{} {}", of(*worst), seconds_text(longest)),
                        seconds_text(most)});
  }
  if (tuning.max_replication_bytes > 0) {
    const auto& worst = *std::ranges::min_element(facts.standbys, {}, &Standby::replayed);
    const auto bytes = static_cast<double>(std::max<std::int64_t>(facts.written - worst.replayed, 0));
    const auto most = static_cast<double>(tuning.max_replication_bytes);
    readings.push_back({"replay_bytes", Response::waits, bytes / most,
                        fmt::format("replay{} behind by {}", of(worst), size_text(bytes)), size_text(most)});
  }
  return readings;
}

}  // namespace crossfade::pace

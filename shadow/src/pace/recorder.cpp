#include "recorder.hpp"

#include <nlohmann/json.hpp>

namespace crossfade::pace {

namespace {

constexpr const char* kWrite =
    "INSERT INTO crossfade.pace AS p (migration_id, token, state, signal, reason, limit_rows_per_second,"
    " starved_seconds, signals) SELECT m.id, m.token, $3, $4, $5, $6::bigint, $7::bigint, $8::jsonb"
    " FROM crossfade.migration m WHERE m.id = $1::uuid AND m.token = $2::uuid"
    " ON CONFLICT (migration_id) DO UPDATE SET token = excluded.token, state = excluded.state,"
    " signal = excluded.signal, reason = excluded.reason,"
    " limit_rows_per_second = excluded.limit_rows_per_second, starved_seconds = excluded.starved_seconds,"
    " signals = excluded.signals, since = CASE WHEN p.token = excluded.token AND p.state = excluded.state"
    " AND p.signal = excluded.signal THEN p.since ELSE clock_timestamp() END, at = clock_timestamp()";

constexpr const char* kBegin =
    "UPDATE crossfade.pause p SET ended_at = coalesce((SELECT greatest(h.at, p.began_at) FROM crossfade.pace "
    "h"
    " WHERE h.migration_id = p.migration_id), clock_timestamp()) WHERE p.migration_id = $1::uuid"
    " AND p.kind <> 'operator' AND p.ended_at IS NULL"
    " AND EXISTS (SELECT FROM crossfade.migration m WHERE m.id = $1::uuid AND m.token = $2::uuid)";

constexpr const char* kClose =
    "UPDATE crossfade.pause p SET ended_at = clock_timestamp() WHERE p.migration_id = $1::uuid"
    " AND p.kind <> 'operator' AND p.ended_at IS NULL"
    " AND EXISTS (SELECT FROM crossfade.migration m WHERE m.id = $1::uuid AND m.token = $2::uuid)";

constexpr const char* kOpen =
    "INSERT INTO crossfade.pause (migration_id, kind, reason, changed_by) SELECT m.id, $3, $4,"
    " 'pace of ' || coalesce(m.runner_operator, m.operator) FROM crossfade.migration m"
    " WHERE m.id = $1::uuid AND m.token = $2::uuid";

// A sweep that goes on for months keeps the newest thousand.
constexpr const char* kTrim =
    "DELETE FROM crossfade.pause p WHERE p.migration_id = $1::uuid AND p.kind <> 'operator'"
    " AND p.ended_at IS NOT NULL AND p.id < (SELECT min(k.id) FROM (SELECT k.id FROM crossfade.pause k"
    " WHERE k.migration_id = $1::uuid ORDER BY k.id DESC LIMIT 1000) k)";

std::string signals_json(const Readings& readings) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& reading : readings) {
    list.push_back({{"signal", reading.signal},
                    {"value", reading.value},
                    {"limit", reading.limit.empty() ? nlohmann::json() : nlohmann::json(reading.limit)},
                    {"pressure", reading.pressure ? nlohmann::json(*reading.pressure) : nlohmann::json()}});
  }
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void Recorder::begin(SqlSession& session) {
  session.exec_prepared(kBegin, {leader_.text, token_.text});
  open_.clear();
}

void Recorder::close(SqlSession& session) {
  if (open_.empty()) return;
  session.exec_prepared(kClose, {leader_.text, token_.text});
  open_.clear();
}

void Recorder::write(SqlSession& session, const PaceOrder& order, const Readings& readings) {
  const std::string state(to_text(order.state));
  session.exec_prepared(kWrite,
                        {leader_.text, token_.text, state, order.signal, order.reason,
                         std::to_string(order.limit_rows_per_second),
                         order.starved ? SqlValue(std::to_string(order.starved->count())) : SqlValue(),
                         signals_json(readings)});
  const auto now = order.state == PaceState::running ? std::string() : state + " " + order.signal;
  if (now == open_) return;
  close(session);
  if (now.empty()) return;
  session.exec_prepared(kOpen, {leader_.text, token_.text, state, order.reason});
  open_ = now;
  session.exec_prepared(kTrim, {leader_.text});
}

void Recorder::end(SqlSession& session) {
  close(session);
  session.exec_prepared(kWrite, {leader_.text, token_.text, "idle", "", "", "0", SqlValue(), "[]"});
}

}  // namespace crossfade::pace

#include "crossfade/core/phase_request.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "crossfade/core/identifier.hpp"

namespace crossfade {

namespace {
// The lease decides, by PostgreSQL's clock, and the backend that holds it. One whose start is hidden from us
// counts as alive while its pid is there.
constexpr const char* kAlive =
    "(m.token = r.token AND m.lease_until > clock_timestamp() AND EXISTS (SELECT 1 FROM pg_stat_activity a"
    " WHERE a.pid = m.runner_pid AND coalesce(a.backend_start, m.runner_backend_start) ="
    " m.runner_backend_start))";

nlohmann::ordered_json or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}
}  // namespace

std::string to_text(const PhaseRequest& request) {
  std::string text = fmt::format("{} requested by {} on {} at {}", request.to_phase, request.operator_name,
                                 request.host, request.since);
  if (!request.alive) return text + "; that command has ended without an answer";
  if (!request.cancelled_by.empty()) return text + "; cancelled by " + request.cancelled_by;
  if (request.waits_for.empty()) return text + "; at work";
  text += ", waiting for " + request.waits_for;
  if (request.attempt > 0) text += fmt::format(" (attempt {} of {})", request.attempt, request.attempts);
  return text;
}

std::string to_json(const PhaseRequest& request) {
  const nlohmann::ordered_json json{{"event", request.event},
                                    {"to", request.to_phase},
                                    {"operator", request.operator_name},
                                    {"host", request.host},
                                    {"pid", request.pid},
                                    {"since", request.since},
                                    {"until", or_null(request.until)},
                                    {"waiting_for", or_null(request.waits_for)},
                                    {"attempt", request.attempt},
                                    {"attempts", request.attempts},
                                    {"blockers", nlohmann::ordered_json::parse(request.blockers)},
                                    {"cancelled_by", or_null(request.cancelled_by)},
                                    {"alive", request.alive}};
  return json.dump();
}

void PhaseRequests::open(const MigrationId& id, const Token& token, const PhaseRequest& request) {
  SqlValue until;
  if (!request.until.empty()) until = request.until;
  session_.exec(
      "INSERT INTO crossfade.request (migration_id, token, event, to_phase, operator, host, pid, attempts,"
      " give_up_at) VALUES ($1, $2, $3, $4, $5, $6, pg_backend_pid(), $7, clock_timestamp() + $8::interval)"
      " ON CONFLICT (migration_id) DO UPDATE SET token = excluded.token, event = excluded.event,"
      " to_phase = excluded.to_phase, operator = excluded.operator, host = excluded.host,"
      " pid = excluded.pid, attempts = excluded.attempts, give_up_at = excluded.give_up_at,"
      " since = clock_timestamp(), waits_for = '', attempt = 0, blockers = '[]', cancelled_by = NULL",
      {id.text, token.text, request.event, request.to_phase, request.operator_name, request.host,
       std::to_string(request.attempts), until});
}

std::optional<std::string> PhaseRequests::cancelled_by(const MigrationId& id, const Token& token) {
  const auto found = session_.exec_prepared(
      "SELECT r.cancelled_by FROM crossfade.request r WHERE r.migration_id = $1 AND r.token = $2",
      {id.text, token.text});
  return found.empty() ? std::nullopt : found[0][0];
}

std::optional<std::string> PhaseRequests::tell(const MigrationId& id, const Token& token,
                                               const std::string& waits_for, int attempt,
                                               const std::string& blockers) {
  const auto told = session_.exec_prepared(
      "UPDATE crossfade.request r SET waits_for = $3, attempt = $4::integer, blockers = $5::jsonb"
      " WHERE r.migration_id = $1 AND r.token = $2 RETURNING r.cancelled_by",
      {id.text, token.text, waits_for, std::to_string(attempt), blockers});
  return told.empty() ? std::nullopt : told[0][0];
}

void PhaseRequests::close(const MigrationId& id, const Token& token) noexcept {
  try {
    session_.exec("DELETE FROM crossfade.request WHERE migration_id = $1 AND token = $2",
                  {id.text, token.text});
  } catch (const std::exception&) {
    // The session broke: with the lease the row is dead too.
  }
}

std::optional<PhaseRequest> PhaseRequests::find(const MigrationId& id) {
  const auto found = session_.exec(
      fmt::format("SELECT r.event, r.to_phase, r.operator, r.host, r.pid, r.since,"
                  " coalesce(r.give_up_at::text, ''), r.waits_for, r.attempt, r.attempts, r.blockers::text,"
                  " coalesce(r.cancelled_by, ''), {} FROM crossfade.request r"
                  " JOIN crossfade.migration m ON m.id = r.migration_id WHERE r.migration_id = $1",
                  kAlive),
      {id.text});
  if (found.empty()) return std::nullopt;
  const auto& row = found[0];
  PhaseRequest request;
  request.event = text_of(row[0]);
  request.to_phase = text_of(row[1]);
  request.operator_name = text_of(row[2]);
  request.host = text_of(row[3]);
  request.pid = static_cast<int>(int_of(row[4]));
  request.since = text_of(row[5]);
  request.until = text_of(row[6]);
  request.waits_for = text_of(row[7]);
  request.attempt = static_cast<int>(int_of(row[8]));
  request.attempts = static_cast<int>(int_of(row[9]));
  request.blockers = text_of(row[10]);
  request.cancelled_by = text_of(row[11]);
  request.alive = row[12] && bool_of(row[12]);
  return request;
}

bool PhaseRequests::cancel(const MigrationId& id, const std::string& who) {
  return session_
             .exec(fmt::format("UPDATE crossfade.request r SET cancelled_by = $2 FROM crossfade.migration m"
                               " WHERE m.id = r.migration_id AND r.migration_id = $1"
                               " AND r.cancelled_by IS NULL AND {}",
                               kAlive),
                   {id.text, who})
             .affected_rows == 1;
}

Error request_cancelled(const std::string& to_phase, const std::string& who) {
  return {ErrorCode::request_cancelled,
          fmt::format("the request for {} was cancelled{}", to_phase, who.empty() ? "" : " by " + who),
          "nothing changed; run the command again if it is wanted all the same"};
}

std::string fulfil_request_sql(const MigrationId& id, const Token& token) {
  return fmt::format(
      "DELETE FROM crossfade.request r WHERE r.migration_id = {}::uuid AND r.token = {}::uuid"
      " AND r.cancelled_by IS NULL;\n"
      "IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'CF002', MESSAGE = 'the request was cancelled';"
      " END IF;\n",
      quote_literal(id.text), quote_literal(token.text));
}

}  // namespace crossfade

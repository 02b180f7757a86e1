#include "open_request.hpp"

#include <fmt/format.h>

namespace crossfade {

namespace {
constexpr std::chrono::milliseconds kBetweenLooks{500};
}  // namespace

OpenRequest::OpenRequest(SqlSession& session, MigrationId id, Token token, const PhaseRequest& request)
    : session_(session), id_(std::move(id)), token_(std::move(token)), to_phase_(request.to_phase) {
  PhaseRequests(session_).open(id_, token_, request);
}

OpenRequest::~OpenRequest() { PhaseRequests(session_).close(id_, token_); }

void OpenRequest::tell(const std::string& waits_for, int attempt, const std::string& blockers) {
  auto told = fmt::format("{} {} {}", attempt, waits_for, blockers);
  if (told == told_) return check();
  if (const auto who = PhaseRequests(session_).tell(id_, token_, waits_for, attempt, blockers))
    throw request_cancelled(to_phase_, *who);
  told_ = std::move(told);
  looked_ = std::chrono::steady_clock::now();
}

void OpenRequest::check() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kBetweenLooks || session_.in_transaction()) return;
  looked_ = now;
  if (const auto who = PhaseRequests(session_).cancelled_by(id_, token_))
    throw request_cancelled(to_phase_, *who);
}

}  // namespace crossfade

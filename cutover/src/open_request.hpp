// The row of a phase change that this command asks for, as long as it asks.
#pragma once

#include <chrono>
#include <string>

#include "crossfade/core/phase_request.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

class OpenRequest {
 public:
  // `session` is the runner's and outlives this.
  OpenRequest(SqlSession& session, MigrationId id, Token token, const PhaseRequest& request);
  ~OpenRequest();
  OpenRequest(const OpenRequest&) = delete;
  OpenRequest& operator=(const OpenRequest&) = delete;

  // What it waits for from now on. Throws request_cancelled, which says by whom.
  void tell(const std::string& waits_for, int attempt = 0, const std::string& blockers = "[]");
  // Looks at most once in half a second whether somebody cancelled it; throws as tell does.
  void check();

 private:
  SqlSession& session_;
  MigrationId id_;
  Token token_;
  std::string to_phase_, told_;
  std::chrono::steady_clock::time_point looked_{};
};

}  // namespace crossfade

// A phase change that somebody asked for and that waits: for time, for a lock, for a snapshot to end. It is a
// row, so that another terminal sees it and can cancel it. It lives as long as the lease of the command that
// made it: a row whose command has died is told apart, and replaced by the next one.
#pragma once

#include <optional>
#include <string>

#include "crossfade/core/error.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

struct PhaseRequest {
  std::string event, to_phase;
  std::string operator_name, host;
  int pid = 0;            // backend of the command
  std::string since;      // when it was asked for
  std::string until;      // when it gives up; empty: not by itself
  std::string waits_for;  // empty: it is at work
  int attempt = 0, attempts = 0;
  std::string blockers = "[]";  // JSON array, see lock_attempts.hpp
  std::string cancelled_by;     // empty: nobody
  bool alive = false;           // the command that waits holds its lease
};

// Who waits, in one sentence.
std::string to_text(const PhaseRequest& request);
std::string to_json(const PhaseRequest& request);

class PhaseRequests {
 public:
  explicit PhaseRequests(SqlSession& session) : session_(session) {}

  // Of the holder of the lease with that token; what a dead one left is replaced.
  void open(const MigrationId& id, const Token& token, const PhaseRequest& request);
  // Who cancelled it; nullopt while it is wanted.
  std::optional<std::string> cancelled_by(const MigrationId& id, const Token& token);
  // Stores what it waits for now. Returns as cancelled_by does.
  std::optional<std::string> tell(const MigrationId& id, const Token& token, const std::string& waits_for,
                                  int attempt, const std::string& blockers);
  void close(const MigrationId& id, const Token& token) noexcept;

  std::optional<PhaseRequest> find(const MigrationId& id);
  // Cancels the one that is alive; false when there is none, or when its phase change was faster.
  bool cancel(const MigrationId& id, const std::string& who);

 private:
  SqlSession& session_;
};

// What a command ends with whose request was cancelled. who: empty when the row is gone.
Error request_cancelled(const std::string& to_phase, const std::string& who);

// PL/pgSQL for the transaction of the phase change: takes the request away, so that a cancel comes before or
// too late and never in between; raises CF002 when it was cancelled.
std::string fulfil_request_sql(const MigrationId& id, const Token& token);

}  // namespace crossfade

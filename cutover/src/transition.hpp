// One phase change: the machine decides, the handlers compose, one transaction commits effect and phase row.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "crossfade/cutover/machine.hpp"
#include "crossfade/phases/phase_handler.hpp"

namespace crossfade {

struct TransitionRequest {
  MigrationId id;
  Event event = Event::advance;
  std::string operator_name, host;
  std::function<void(const std::string&)> notice;
  // Called once the gate was found open, before the first attempt and outside any transaction; throws to
  // veto.
  std::function<void(Phase from, Phase to)> before;
  // Throws what should end it: an interrupt, a lost lease, a cancelled request.
  std::function<void()> check;
  // What it waits for now, for whoever looks; throws request_cancelled. Present when a row of
  // crossfade.request stands for it, which the phase change takes away in its own transaction.
  std::function<void(const std::string& waits_for, int attempt, const std::string& blockers)> tell;
};

struct TransitionResult {
  Phase from = Phase::planned, to = Phase::planned;
  Status status = Status::running;
  std::vector<Blocker> refused;  // not empty: the gate was shut and nothing changed
};

// Locks the migration row, fires `event` on a machine restored from it, and commits what the handlers
// composed together with the phase row and the history. Attempts for the table lock are bounded by the spec
// (then lock_attempts_exhausted); none is made while a holder older than the budget exists. Throws
// illegal_transition, superseded, not_ready (the re-check under the lock failed), outcome_unknown. A
// connection lost at COMMIT is probed on a new session, which replaces env.session.
TransitionResult change_phase(PhaseEnv& env, const TransitionRequest& request);

// In switched: removes the backward capture and installs it anew, under the lock budget; the phase stays, its
// comparison is made again and finds what was missed in between.
void reinstall_backward_capture(PhaseEnv& env, const TransitionRequest& request);

// pause, resume, settle, fail, retry: fires the event and stores the status. False when it is not legal here.
// token: when present the row must still carry it (a runner's own events). also: what is written with it, in
// the same transaction.
bool change_status(SqlSession& session, const MigrationId& id, Event event, const std::string& reason,
                   const std::optional<Token>& token, const std::function<void()>& also = {});

// How the crossings of a group, some of which lock their table, begin: all locks in one statement, then what
// must still hold of all of them. Shared with `plan`.
std::string lock_and_recheck_sql(SqlSession& session, const std::vector<Migration>& group,
                                 const std::vector<Crossing>& crossings, std::chrono::milliseconds wait);

}  // namespace crossfade

// One class per phase; each is implemented in the file of its name.
#pragma once

#include <optional>

#include "crossfade/phases/paced_read.hpp"
#include "crossfade/phases/paced_sweep.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/profile.hpp"

namespace crossfade {

// Short locks on the user's table outside a phase change (checks, SET NOT NULL, a broken twin): as polite as
// the switch, and bounded like it.
class ShortLock {
 public:
  // How long the next try may wait; nullopt while somebody older than the budget holds the table or one of
  // `beside`, who is told and, if the operator said so, signalled. Throws lock_attempts_exhausted.
  std::optional<std::chrono::milliseconds> next(PhaseEnv& env, const Migration& migration,
                                                const std::vector<Oid>& beside = {});
  // Before the next try after a miss.
  std::chrono::milliseconds pause() const { return pause_after(attempt_); }
  void got() { attempt_ = 0; }

 private:
  int attempt_ = 0;
  HolderWatch watch_;
  std::vector<std::string> unreached_;
};

// What PostgreSQL said when a build of this run met values that the index refuses. Its leftover may fail live
// writes, and goes before anything is told.
using RefusedBuild = std::optional<std::string>;

// Around a statement that runs for long and may be cancelled when the operator interrupts.
class Interruptible {
 public:
  explicit Interruptible(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  ~Interruptible() { flag_ = false; }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  std::atomic<bool>& flag_;
};

class PlannedHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;
};

class DryRunHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;

 private:
  bool read(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice, const PassRow& pass);
  bool began_ = false;
  PacedRead paced_;
  std::unique_ptr<Profiler> profiler_;
  std::string table_;  // as it was called
};

class BackfillHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;

 private:
  PacedSweep sweep_;
};

class DualWriteHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;

 private:
  ShortLock lock_;
  RefusedBuild refused_;
  PacedSweep sweep_;  // of partitions that came since the backfill
};

class CompareHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  StepResult refresh(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  StepResult prepare_rollback(PhaseEnv& env, const Migration& migration) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  void before_attempt(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;

 private:
  ShortLock lock_;
  RefusedBuild refused_;
  StepResult replay(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice);
  StepResult resolve_and_compare(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice);
  PacedSweep sweep_;
  PacedComparison comparison_;
  int replays_that_wrote_ = 0;
};

class SwitchedHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  StepResult refresh(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  StepResult abandon_rollback(PhaseEnv& env, const Migration& migration) override;
  StepResult prepare_rollback(PhaseEnv& env, const Migration& migration) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  std::vector<Blocker> rollback_blockers(PhaseEnv& env, const Migration& migration) override;
  void before_attempt(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;

 private:
  StepResult archive(PhaseEnv& env, const Migration& migration);
  ShortLock lock_;
  RefusedBuild refused_;
  PacedComparison comparison_;
};

class DroppedHandler : public PhaseHandler {
 public:
  StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) override;
  std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) override;
  Crossing enter(PhaseEnv& env, const Migration& migration) override;
  Crossing leave_back(PhaseEnv& env, const Migration& migration) override;
};

// --- shared by several phases, in handler_support.cpp
// -----------------------------------------------------------

// The key by which rows are found is no longer a unique index over NOT NULL columns; says which and what to
// do.
std::optional<Blocker> lost_key(SqlSession& session, const Migration& migration);
// Throws table_changed for it, which fails the phase. Asked before each slice of what goes by the key.
void require_key(SqlSession& session, const Migration& migration);
// The preflight, as a gate; refusals only.
std::vector<Blocker> preflight_blockers(SqlSession& session, const Migration& migration);
// The newest comparison that counts: ended, no difference, no repair, fingerprint as it is now, fresh enough.
std::vector<Blocker> comparison_blockers(PhaseEnv& env, const Migration& migration,
                                         CompareDirection direction);
// A slice of the newest comparison, a new one when the newest does not count any more. settled or failed at
// its end.
StepResult run_comparison(PhaseEnv& env, const Migration& migration, CompareDirection direction,
                          std::chrono::milliseconds slice, PacedComparison& comparison);
// What hangs on the column is no longer what the ledger says.
std::vector<Blocker> dependent_blockers(PhaseEnv& env, const Migration& migration);
// Snapshots older than our last write of the shadow: pid, age and query each.
std::vector<Blocker> old_snapshot_blockers(PhaseEnv& env, const Migration& migration);
// Runs `work` with the wait of one try for a short lock; settled when it answers true.
StepResult with_short_lock(PhaseEnv& env, const Migration& migration, ShortLock& lock,
                           const std::function<bool(std::chrono::milliseconds)>& work,
                           const std::vector<Oid>& beside = {});
// One step towards every twin; settled when all are valid, failed when the values of some rows do not go into
// one.
StepResult build_twins(PhaseEnv& env, const Migration& migration, ShortLock& lock, RefusedBuild& refused);
// Phase switched: one step towards what the way back owes; settled when all of it is valid, waiting with
// rollback_refused when the old values of some rows do not go into it.
StepResult build_owed(PhaseEnv& env, const Migration& migration, ShortLock& lock, RefusedBuild& refused);
// Before a switch in either direction: a step towards the foreign keys of partitioned tables over the columns
// that are to bear the names; settled when each leaf has its own, valid. And what undoes it.
StepResult build_forerunners(PhaseEnv& env, const Migration& migration, ShortLock& lock);
StepResult drop_forerunners(PhaseEnv& env, const Migration& migration, ShortLock& lock);
std::vector<Blocker> forerunner_blockers(PhaseEnv& env, const Migration& migration);
// Rows that would violate a carried check if the column `physical` bore the name. Reads the table.
std::vector<Blocker> check_blockers(PhaseEnv& env, const Migration& migration, const std::string& physical);
// What a switch left to do on `column` (NOT NULL and constraints, validated online); nullopt when nothing is.
std::optional<StepResult> settle_column(PhaseEnv& env, const Migration& migration, const std::string& column,
                                        ShortLock& lock);
// Under the lock: nothing relevant changed since the newest comparison began.
std::string comparison_recheck_sql(PhaseEnv& env, const Migration& migration, CompareDirection direction);
// Phase switched: what hangs on the old column and is not the migration's own.
std::vector<Blocker> old_column_blockers(PhaseEnv& env, const Migration& migration);
// Rejects that are open now, after the notes were resolved by the caller.
std::vector<Blocker> reject_blockers(PhaseEnv& env, const Migration& migration);
// PL/pgSQL: raises CF001 naming `what` unless `condition` holds.
std::string raise_unless(const std::string& condition, const std::string& what);

}  // namespace crossfade

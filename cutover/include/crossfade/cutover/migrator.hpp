// The library's entry point. The command line uses nothing else.
//
//   Migrator migrator({.dsn = "host=/run/postgresql dbname=app", .operator_name = "ada"});
//   migrator.init();
//   migrator.start({.text = spec, .file = "spec.toml"});
//   while (migrator.next("accounts_balance_bigint").phase != Phase::switched) {}
//
// Every call connects, does its work and disconnects. Errors are crossfade::Error. One Migrator may be used
// from one thread at a time; request_stop() from any thread or signal handler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/finding.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/spec.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/cutover/plan_report.hpp"
#include "crossfade/cutover/status_report.hpp"
#include "crossfade/cutover/sweep_options.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/profile.hpp"
#include "crossfade/shadow/rejects.hpp"

namespace crossfade {

struct MigratorOptions {
  std::string dsn;                  // libpq conninfo or URI without a password; empty: libpq's environment
  std::string redis;                // empty: none
  // A standby on which dry run and comparison read; empty: on the primary. Needs the same role and database.
  std::string read_dsn = {};
  // How long it may take to show what the primary has committed.
  std::chrono::milliseconds read_patience{60000};
  std::string operator_name, host;  // for the history; empty: the login and the host name
  bool cancel_blockers = false;     // pg_cancel_backend on who stands in the way of a lock attempt
  bool terminate_blockers = false;  // pg_terminate_backend; neither touches autovacuum or replication
};

struct Progress {
  std::string migration;
  Phase phase;
  std::int64_t rows_done = 0, rows_estimated = 0;  // rows_done -1: nothing to count
  std::string note;
};

// Called from the thread that called the Migrator, between steps. Must not throw.
class ProgressListener {
 public:
  virtual ~ProgressListener() = default;
  virtual void on_progress(const Progress&) {}
  virtual void on_phase(const std::string& /*migration*/, Phase /*from*/, Phase /*to*/) {}
  virtual void on_settled(const std::string& /*migration*/, Phase) {}
  // A sentence for a person: a lock attempt that missed, a blocker, a retry.
  virtual void on_notice(const std::string& /*sentence*/) {}
};

// NAME means the open migration, else the newest of that name; an id picks one exactly.
struct MigrationRef {
  std::string name;
  std::optional<std::string> id;
  MigrationRef(const char* n) : name(n) {}             // NOLINT: a name is a reference
  MigrationRef(std::string n) : name(std::move(n)) {}  // NOLINT
  MigrationRef(std::string n, std::optional<std::string> i) : name(std::move(n)), id(std::move(i)) {}
};

struct SpecSource {
  std::string text;
  std::string file = "spec";  // for messages
};

struct StartReport {
  std::string name, id;
  bool already_started = false;
  std::vector<Finding> findings;
};

struct PhaseReport {
  std::string name;
  Phase phase = Phase::planned;
  Status status = Status::running;
  bool changed = true;  // false: it was so already, and nothing was done
};

struct NextOptions {
  std::optional<Phase> until;
  std::string confirm;
  std::vector<Acceptance> accept;
  // Waits at most so long for what time alone brings: the soak, a comparison, locks, old snapshots. max():
  // without an end. Absent: throws what it would wait for.
  std::optional<std::chrono::milliseconds> wait = {};
};

struct PauseReport {
  bool changed = false;            // false: nothing had to be done
  bool request_cancelled = false;  // a phase change that waited was called off
  Status status = Status::paused;
};

struct RollbackOptions {
  std::optional<Phase> to;
  std::vector<Acceptance> accept;
};

// What the dry run found of one column: the migrated one, or one that follows it.
struct DryRunReport {
  std::string table, column;
  ProfileReport found;
};

struct DifferenceValues {
  DifferenceRow difference;
  std::string table = {};  // of a member of a group; empty: the migration's own
  // Old and new value as text, NULL as nullopt; only when asked for.
  std::optional<std::pair<std::optional<std::string>, std::optional<std::string>>> values = {};
};

class Migrator {
 public:
  explicit Migrator(MigratorOptions options, ProgressListener* listener = nullptr);
  ~Migrator();

  // Creates the schema; false when it was there. remove: drops it when nothing is open.
  bool init();
  void remove();

  // Throws nothing for findings; they are in the report. Changes nothing.
  PlanReport plan(const SpecSource& spec);
  // Registers. Throws finding_refused when a refusal is not accepted, spec_conflict, table_has_migration.
  StartReport start(const SpecSource& spec, const std::vector<Acceptance>& accept = {});
  // Continues an unsettled phase until it is settled, or enters the next one and works until that is settled;
  // `until` repeats. Throws the guard's Error when it is not ready, busy, superseded, interrupted.
  PhaseReport next(const MigrationRef& ref, const NextOptions& options = {});
  PhaseReport rollback(const MigrationRef& ref, const RollbackOptions& options = {});

  // One more worker process: takes part in the sweeps of another process's run until there is nothing to
  // sweep in the phase any more; waits, and says for what, as long as nobody runs it or it is held. Throws
  // worker_mismatch, interrupted, and what ends a sweep.
  WorkReport work(const MigrationRef& ref, const WorkOptions& options = {});
  // Sweeps again, before the switch: writes what differs and nothing else; comparisons are void. Throws
  // illegal_transition in another phase, paused, unknown_unit, busy, and what ends a sweep.
  RedriveReport redrive(const MigrationRef& ref, const RedriveOptions& options);

  StatusReport status(const MigrationRef& ref);
  std::vector<StatusReport> list();  // brief: no readiness is computed
  std::vector<TransitionRecord> history(const MigrationRef& ref);
  // What operators did beside phase changes, oldest first.
  std::vector<ActionRecord> actions(const MigrationRef& ref);
  // Each attempt to lock the table, the newest first.
  std::vector<LockAttempt> lock_attempts(const MigrationRef& ref);
  std::optional<ProfileReport> dry_run_report(const MigrationRef& ref);
  // Of the migrated column and of each that follows it, as far as their dry runs have ended.
  std::vector<DryRunReport> dry_run_reports(const MigrationRef& ref);

  // Cancels a phase change that is asked for and waits, and holds the phase. A settled phase can be paused,
  // too: the next one is not entered until resume. Throws illegal_transition when the phase has failed or the
  // migration is closed, and nothing waits.
  PauseReport pause(const MigrationRef& ref, const std::string& reason);
  // False when it was so already.
  bool resume(const MigrationRef& ref);
  // The values in force.
  Tuning tuning(const MigrationRef& ref);
  // All or nothing: every pair is checked before any is stored.
  void tune(const MigrationRef& ref, const std::vector<std::pair<std::string, std::string>>& settings);

  // A full comparison pass now (compare or switched). Returns the ended pass.
  PassRow compare(const MigrationRef& ref);
  enum class ShowValues { no, yes };
  // The newest comparison that was not given up, of the direction that counts in the phase; its differences
  // are those of differences(). nullopt: none.
  std::optional<PassRow> newest_comparison(const MigrationRef& ref);
  std::vector<DifferenceValues> differences(const MigrationRef& ref, ShowValues show = ShowValues::no);
  std::int64_t repair(const MigrationRef& ref);
  std::vector<RejectRow> rejects(const MigrationRef& ref);
  Resolution retry_rejects(const MigrationRef& ref);
  std::vector<RejectRow> misfits(const MigrationRef& ref);

  // Re-creates the capture after a foreign change; passes are void, the sweep begins again.
  PhaseReport recapture(const MigrationRef& ref);
  // Accepts state that moved with a restored, cloned or failed-over database.
  void adopt();

  // Ends the running call cleanly after its current step: it throws interrupted. Async-signal-safe.
  void request_stop() noexcept { stop_.store(true); }

 private:
  struct Impl;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace crossfade

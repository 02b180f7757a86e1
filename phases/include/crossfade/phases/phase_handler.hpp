// The contract of a phase. A handler composes effects and does bounded steps of work; it never loops, never
// commits a phase change and never decides legality: loops live in the runner, commits in the transition,
// legality in the machine.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/replica.hpp"

namespace crossfade {

// Why a gate is shut. Shown by status as waiting_for, thrown by next as an Error of the code.
struct Blocker {
  ErrorCode code = ErrorCode::not_ready;
  std::string text;     // "units: 52 of 64 not at their bound"
  std::string finding;  // the finding id that --accept may name; empty when nothing can override it
  std::string hint;
  bool compares_first = false;  // the command that asks makes the comparison again before it goes
};

// What a handler may use. The session is the runner's (autocommit); `token` is its lease.
struct PhaseEnv {
  SqlSession& session;
  CursorCache& cache;
  std::function<SqlSession(const std::string& role)> connect;
  Token token;
  std::string confirmation;  // what --confirm named; empty when absent
  std::vector<Acceptance> accepted;
  const std::atomic<bool>& stop;
  // Set around a statement of `session` that runs for long and may be cancelled when the operator interrupts.
  std::atomic<bool>& interruptible;
  // total below zero: that of the table. With a total it may be called from another thread than the runner's,
  // while the runner waits for a statement.
  std::function<void(std::int64_t done, std::int64_t total, const std::string& note)> progress;
  SignalPolicy signals{};      // what may be done to who holds the table
  Replica* replica = nullptr;  // where dry run and comparison read; null: on `session`
};

// The order of what the switch does, in either direction. Each stage is done for all migrations of a group
// before the next: a foreign key goes before the key that it refers to and comes back after it, whichever
// table is whose.
enum class Stage {
  views_off,     // before the table is locked: who reads through a view locks it before the table
  sequences,     // before it too: who draws from one keeps its lock to the end of the transaction
  probe_before,  // the user's triggers, tried as they are
  triggers_off,  // first under the lock: between the renames they would name columns that are not there
  foreign_keys_off,
  let_go,    // other followers, the last made first
  keys_off,  // unique constraints and primary keys
  rename,
  carry,        // NOT NULL where it goes, default, comment
  carry_twins,  // indexes and the constraints on them
  release,      // NOT NULL where it was
  follow,       // followers, in the order in which they can be made
  foreign_keys,
  capture,
  user_triggers,
  probe_after,  // and as they will be
};

struct SwitchPart {
  Stage stage;
  std::string sql;  // ';'-terminated
};

// The effect of a phase change: statements that commit in one message with the phase row.
struct Crossing {
  bool locks_table = false;              // ACCESS EXCLUSIVE within the lock budget, taken first
  std::string views_recheck;             // as recheck, run before the views go
  std::vector<std::string> also_locks;   // relations locked with the table, as SQL shows them
  std::string recheck;                   // body of a PL/pgSQL block that raises CF001 when the world moved on
  std::vector<SwitchPart> parts;         // of the switch, in either direction
  std::string statements;                // SQL, ';'-terminated; after the parts
  int position = 0;                      // of the statements among those of a group, the lowest first
  std::vector<std::string> assignments;  // SET items of crossfade.migration; after all statements
  std::string evidence = "{}";           // json object for the history
};
// What runs before the tables are locked, and what runs under their locks, for the crossings of a group (or
// of one migration): stage by stage. What two of them share (a view over both columns) is done once.
std::string before_lock_sql(const std::vector<Crossing>& crossings);
std::string under_lock_sql(const std::vector<Crossing>& crossings);

struct StepResult {
  enum class Kind {
    again,    // more to do
    settled,  // work done, exit conditions hold
    waiting,  // work done as far as possible; `blockers` say what an operator or time must change
    held,     // the fence was empty: read the migration row again
    failed,   // an operator must act; `blockers` say why
  };
  Kind kind = Kind::again;
  std::vector<Blocker> blockers;
  std::chrono::milliseconds pause{0};  // before the next step
};

class PhaseHandler {
 public:
  virtual ~PhaseHandler() = default;
  // One bounded piece of work (at most about `slice`). Called while the phase is running.
  virtual StepResult step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice) = 0;
  // Work that a settled phase owes before it is left in either direction (a fresh comparison, for example).
  // settled when nothing is owed.
  virtual StepResult refresh(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice);
  // A bounded piece of what must be put right online before going back, whatever the state of the phase's
  // work. settled when nothing is owed.
  virtual StepResult prepare_rollback(PhaseEnv& env, const Migration& migration);
  // A bounded piece of undoing what prepare_rollback left when the way back was given up, before going
  // forward.
  virtual StepResult abandon_rollback(PhaseEnv& env, const Migration& migration);
  // What shuts the gate to the next phase. Computed when asked; no side effect.
  virtual std::vector<Blocker> exit_blockers(PhaseEnv& env, const Migration& migration) = 0;
  // What forbids going back.
  virtual std::vector<Blocker> rollback_blockers(PhaseEnv& env, const Migration& migration);
  // Called before each attempt of a phase change out of this phase, outside its transaction: the last thing
  // that may take time. Writes nothing in the user's table.
  virtual void before_attempt(PhaseEnv& env, const Migration& migration);
  // Effects. `enter` is composed while `migration` is still in the phase before this one; `leave_back` while
  // in it.
  virtual Crossing enter(PhaseEnv& env, const Migration& migration) = 0;
  virtual Crossing leave_back(PhaseEnv& env, const Migration& migration) = 0;
};

// The drop of the old column is confirmed by the migration's name; `options` stand before --confirm in the
// hint.
std::optional<Blocker> missing_confirmation(const std::string& name, const std::string& given,
                                            std::string_view options);

// How what hangs on the column is marked (shadow/dependents.hpp): views apart, since they are gone under the
// lock.
struct DependentMarks {
  std::string views, view_oids, others;
};
DependentMarks read_dependent_marks(SqlSession& session, const Migration& migration);

// What SwitchedHandler::enter sends when what hangs on the column is marked so. For `plan`, which may not ask
// for more than it can know before the twins are built.
Crossing switch_crossing(PhaseEnv& env, const Migration& migration, const DependentMarks& marks,
                         bool not_null_check_valid);

// The backward capture installed anew, fingerprint and comparisons with it. Requires: phase switched.
Crossing recapture_crossing(PhaseEnv& env, const Migration& migration);

// The handler of a phase. Stateful within one run (a sweep keeps its workers), owned by the runner.
std::unique_ptr<PhaseHandler> make_phase_handler(Phase phase);

// The blockers that no acceptance covers.
std::vector<Blocker> unaccepted(const std::vector<Blocker>& blockers,
                                const std::vector<Acceptance>& accepted);
// Of the stored acceptances those that count beyond the command which gave them: what a rollback loses is
// accepted for that rollback only, since by the next one it is something else.
std::vector<Acceptance> standing(std::vector<Acceptance> stored);
// The Error of the first blocker, the others in its message.
Error error_of(const std::vector<Blocker>& blockers, const std::string& name);

// The table's current name. Throws table_changed when it is gone or its oid now means another migration's
// table.
QualifiedName current_table(SqlSession& session, const Migration& migration);

}  // namespace crossfade

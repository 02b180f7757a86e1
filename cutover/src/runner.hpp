// The one loop: drives a phase step by step until it is settled, with signals, lease, pause and fingerprint
// looked at between steps.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "crossfade/cutover/migrator.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "hooks.hpp"
#include "lease_keeper.hpp"
#include "open_request.hpp"
#include "redrive.hpp"
#include "transition.hpp"

namespace crossfade {

// The planner's count of rows, for progress and estimates; 0 when it is unknown or the table is gone.
std::int64_t estimated_rows(SqlSession& session, Oid table);

class Runner {
 public:
  struct Setup {
    MigrationId id;
    std::function<SqlSession(const std::string& role)> connect;
    std::function<SqlSession()> connect_reader = {};  // absent: dry run and comparison read on the primary
    const MigratorOptions* options = nullptr;
    ProgressListener* listener = nullptr;
    std::atomic<bool>* stop = nullptr;  // the caller's
    std::string confirmation;
    std::vector<Acceptance> accepted;
    std::chrono::milliseconds patience = kLeaseLength;
    Contention contention = Contention::give_up;
  };
  explicit Runner(Setup setup);

  // With it, settle() and advance() wait until then for what time alone brings: the soak, a fresh comparison,
  // a lock, old snapshots.
  using WaitUntil = std::optional<std::chrono::steady_clock::time_point>;
  // Works until the phase is settled, of every migration of the group; throws the Error of what it waits for
  // or failed on.
  void settle(const WaitUntil& wait = std::nullopt);
  // Does what the settled phase owes, then changes the phase; throws the Error of a shut gate.
  void advance(const WaitUntil& wait = std::nullopt);
  void go_back();
  // What a way back that was killed had prepared; it costs the application's writes.
  void abandon_rollback();
  void reinstall_backward_capture();
  // Sweeps again and ends; the phase is running then, and settles with the next settle(). The passes it made.
  std::vector<PassRow> redrive(const RedriveOptions& options);
  // The after hook that a runner before this one still owes.
  void run_owed_hook();

  Migration load();  // the leader
  // The members first, the leader last: in this order they are worked on, so that the leader is settled when
  // all are.
  std::vector<Migration> load_in_working_order();
  PhaseEnv& env() { return env_; }
  void check();
  // Returns when an operator does not pause it, or no longer.
  void hold_while_paused();

 private:
  void settle_once();
  void take_back_what_was_prepared();
  void pass_on_interrupt();
  void fail(const Migration& migration, const std::string& reason);
  Migration load(const MigrationId& id);
  void settle_one(const MigrationId& id);
  std::optional<StepResult> guarded(const Migration& migration, bool& followed,
                                    const std::function<StepResult()>& step);
  void require_not_failed(const Migration& migration);
  void finish_redrives();
  void follow_progress(const Migration& migration);
  Error cause_of(const Error& error, const Migration& migration);
  void repeat(const Migration& migration, const std::function<StepResult()>& step);
  void refresh(PhaseHandler& handler, const MigrationId& id);
  // True when the work of the phase was changed by it: the migration is to be read again.
  bool watch_fingerprint(const Migration& migration);
  bool follow(const Migration& migration, const std::string& fingerprint);
  bool follow_storage(const Migration& migration, const std::string& fingerprint);
  void begin_again_if_settled(const std::string& reason);
  TransitionRequest request(Event event);
  void ask_for(std::string_view event, Phase to, int attempts, const WaitUntil& wait);
  void advance_once(PhaseHandler& handler, const WaitUntil& wait);
  void wait_after(const Error& shut);
  void before_change(Event event, Phase from, Phase to);
  HookContext hooks();
  void change(Event event);
  void report(const Migration& migration, std::int64_t done, std::int64_t total, const std::string& note);

  Setup setup_;
  SqlSession session_;
  CursorCache cache_;
  std::atomic<bool> stop_{false}, interruptible_{false};
  std::optional<Replica> replica_;
  LeaseKeeper keeper_;
  PhaseEnv env_;
  Redriver redriver_;
  std::optional<OpenRequest> request_;  // while a phase change is asked for
  std::optional<Phase> hooked_for_;     // its before hook has said yes
  std::string told_;                    // what it waits for, as the listener heard it last
  std::chrono::steady_clock::time_point last_fingerprint_{};
};

}  // namespace crossfade

// Order of locks: migration row, table, the rest. The migration row is locked first and without the table, so
// that two operators meet here and not in the user's way; a chunk never locks it.
//
// If we die: before the message is sent, the transaction was only a row lock; after it, the server finishes
// alone. If the answer is lost, the probe takes the row lock, which the old backend holds until it has ended,
// and asks for the fate of the recorded transaction id.
#include "transition.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <thread>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {

class World : public MachineWorld {
 public:
  World(PhaseEnv& env, const Migration& migration, Event event)
      : env_(env), migration_(migration), event_(event) {}

  bool gate_open(Phase from, Phase) override {
    if (going_back_without_table()) return true;
    const auto handler = make_phase_handler(from);
    blockers = unaccepted(event_ == Event::advance ? handler->exit_blockers(env_, migration_)
                                                   : handler->rollback_blockers(env_, migration_),
                          env_.accepted);
    return blockers.empty();
  }

  void cross(Phase from, Phase to) override {
    if (going_back_without_table()) {
      // Column and triggers went with the table; what is left are functions that nothing calls.
      for (const auto* role : {"capture", "note"}) {
        crossing.statements += fmt::format("DROP FUNCTION IF EXISTS crossfade.{};\n",
                                           quote_identifier(migration_.generated.function(role)));
      }
      if (from == Phase::planned) crossing.statements += drop_functions_sql(migration_.binding.column);
      return;
    }
    crossing = event_ == Event::advance ? make_phase_handler(to)->enter(env_, migration_)
                                        : make_phase_handler(from)->leave_back(env_, migration_);
  }

  std::vector<Blocker> blockers;
  Crossing crossing;

 private:
  bool going_back_without_table() {
    return event_ == Event::rollback && !relation_name(env_.session, migration_.row.table_oid);
  }

  PhaseEnv& env_;
  const Migration& migration_;
  Event event_;
};

// For events without effect in the user's schema.
class NoWorld : public MachineWorld {
 public:
  bool gate_open(Phase, Phase) override { return false; }
  void cross(Phase, Phase) override {}
};

std::string failpoint_of(Phase from, Phase to, std::string_view where) {
  return fmt::format("{}_to_{}.{}", to_text(from), to_text(to), where);
}

std::string script_of(const Migration& m, const Crossing& crossing, const QualifiedName& table,
                      const PhaseChange& change, int attempt) {
  const auto to = std::string(to_text(change.to));
  std::string script;
  if (crossing.locks_table)
    script += lock_and_recheck_sql(m, crossing, table, lock_wait(attempt, m.spec.lock_timeout));
  script += crossing.statements + phase_change_sql(change);
  if (crossing.locks_table) script += record_success_sql(m.row.id, m.row.table_oid, to, attempt);
  return script;
}

// The phase changes whose effect is in the user's table.
bool changes_table(Phase from, Phase to) {
  return has_capture(from) != has_capture(to) || new_column_is_public(from) != new_column_is_public(to) ||
         (from == Phase::dual_write && to == Phase::backfill);
}

// Decides what became of a transaction whose COMMIT lost its answer.
void probe(PhaseEnv& env, const MigrationId& id, const std::string& xid, int old_pid) {
  auto session = env.connect("probe");
  session.set_lock_timeout(std::chrono::seconds(10));
  std::string fate;
  try {
    Transaction transaction(session);
    session.exec("SELECT 1 FROM crossfade.migration WHERE id = $1 FOR NO KEY UPDATE", {id.text});
    fate = session.exec("SELECT coalesce(pg_xact_status($1::xid8), 'forgotten')", {xid})
               .one("fate")[0]
               .value_or("");
    transaction.commit();
  } catch (const Error& error) {
    if (!error.is_lock_not_available()) throw;
  }
  session.set_lock_timeout(milliseconds(0));
  env.session = std::move(session);
  if (fate == "committed") return;
  if (fate == "aborted") {
    throw Error(ErrorCode::connection_lost,
                "the connection was lost during a phase change, which was not committed",
                "run the command again");
  }
  throw Error(ErrorCode::outcome_unknown,
              fmt::format("the connection was lost during a phase change and its outcome cannot be determined"
                          " (transaction {}, backend pid {})",
                          xid, old_pid),
              "look with 'crossfade status'; if that backend still runs, wait for it or end it")
      .with_effect(Effect::unknown);
}

struct Attempt {
  std::optional<TransitionResult> result;
  std::string missed;  // why the lock was not got
};

// The row, locked, and ours. Frozen between here and the one message that commits, we hold it: for no longer
// than a newcomer waits for the lease.
Migration lock_migration(PhaseEnv& env, const MigrationId& id) {
  env.session.exec("SET LOCAL lock_timeout = 10000");
  env.session.exec("SET LOCAL idle_in_transaction_session_timeout = 10000");
  auto m = migration_of(StateStore(env.session).get(id, LockMode::for_update));
  if (m.row.token != env.token) {
    throw Error(ErrorCode::superseded, "another runner took the migration over", "see 'crossfade status'",
                m.row.name);
  }
  return m;
}

// Sends effect, phase row and COMMIT as one message. Empty when committed, else why the lock was not got.
std::string commit_crossing(PhaseEnv& env, const TransitionRequest& request, const Migration& m,
                            const Crossing& crossing, const PhaseChange& change, int number) {
  auto& session = env.session;
  const auto table = relation_name(session, m.row.table_oid).value_or(m.row.table);
  const auto script = script_of(m, crossing, table, change, number);
  const auto xid = text_of(session.exec("SELECT pg_current_xact_id()").one("xid")[0]);
  if (change.from != change.to) failpoint::hit(failpoint_of(change.from, change.to, "locked"));
  const int pid = session.backend_pid();
  try {
    session.commit_with(script);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::connection_lost && error.effect() == Effect::unknown) {
      probe(env, request.id, xid, pid);
    } else if (error.is_lock_not_available()) {
      return "lock not available";
    } else if (error.is_query_canceled()) {
      return "lock budget used up";
    } else if (error.sqlstate() == "CF001") {
      throw Error(ErrorCode::not_ready, error.message(), "run the command again; it checks anew", m.row.name)
          .with_sqlstate(error.sqlstate());
    } else {
      throw;
    }
  }
  return {};
}

// What an operator overrode stands in the history of the change that it allowed.
std::string with_acceptances(const std::string& evidence, const std::vector<Acceptance>& accepted) {
  if (accepted.empty()) return evidence;
  auto json = nlohmann::json::parse(evidence);
  for (const auto& acceptance : accepted) json["accepted"][acceptance.id] = acceptance.reason;
  return json.dump();
}

Attempt attempt_change(PhaseEnv& env, const TransitionRequest& request, int number) {
  TransitionResult result;
  {
    Transaction transaction(env.session);
    const auto m = lock_migration(env, request.id);
    result.from = m.row.phase;
    World world(env, m, request.event);
    const auto outcome = fire(world, m.row.phase, m.row.status, request.event);
    if (outcome.verdict == Verdict::refused) {
      result.to = result.from;
      result.refused = world.blockers;
      return {result, {}};
    }
    if (outcome.verdict == Verdict::illegal) {
      // An operator was quicker.
      if (m.row.status == Status::paused) {
        throw Error(ErrorCode::paused, fmt::format("migration {} is paused: {}", m.row.name, m.row.reason),
                    "crossfade resume " + m.row.name, m.row.name);
      }
      throw Error(ErrorCode::illegal_transition,
                  fmt::format("{} is not possible in phase {} ({})", to_text(request.event),
                              to_text(m.row.phase), to_text(m.row.status)),
                  "see 'crossfade machine'", m.row.name);
    }
    result.to = outcome.phase;
    result.status = outcome.status;
    const PhaseChange change{m.row.id,
                             result.from,
                             result.to,
                             result.status,
                             std::string(to_text(request.event)),
                             request.operator_name,
                             request.host,
                             with_acceptances(world.crossing.evidence, env.accepted),
                             world.crossing.assignments};
    auto missed = commit_crossing(env, request, m, world.crossing, change, number);
    if (!missed.empty()) return {std::nullopt, std::move(missed)};
  }
  failpoint::hit(failpoint_of(result.from, result.to, "sent"));
  return {result, {}};
}

// True when an attempt may be made now. Otherwise the holders are named, and signalled if the operator asked
// for it.
bool way_is_free(PhaseEnv& env, const TransitionRequest& request, const Migration& m, const std::string& to,
                 int attempt) {
  const auto holders = old_holders(env.session, m.row.table_oid, m.spec.lock_timeout);
  if (holders.empty()) return true;
  record_miss(env.session, request.id, to, attempt, "older holder", holders);
  if (request.notice) request.notice(fmt::format("attempt {}: waiting for {}", attempt, holders.front().who));
  if (!request.cancel_blockers && !request.terminate_blockers) return false;
  for (const auto& holder : holders) {
    if (!holder.may_be_signalled) continue;
    const bool idle = holder.who.find("idle in transaction") != std::string::npos;
    // A cancel does nothing to an idle transaction.
    const bool terminate = request.terminate_blockers && (idle || !request.cancel_blockers);
    env.session.exec(
        terminate ? "SELECT pg_terminate_backend($1::integer)" : "SELECT pg_cancel_backend($1::integer)",
        {std::to_string(holder.pid)});
  }
  return false;
}

std::string holders_text(PhaseEnv& env, const Migration& m) {
  std::string text;
  for (const auto& holder : old_holders(env.session, m.row.table_oid, m.spec.lock_timeout)) {
    text += (text.empty() ? "; held by " : ", ") + holder.who;
  }
  return text;
}

}  // namespace

namespace {

// Repeats `attempt` until it gives a result; bounded by the spec, polite about who holds the table.
TransitionResult with_lock_attempts(PhaseEnv& env, const TransitionRequest& request, const Migration& m,
                                    const std::string& to, const std::function<Attempt(int)>& attempt_once) {
  std::string missed;
  for (int attempt = 1; attempt <= m.spec.switch_attempts; ++attempt) {
    if (env.stop) throw Error(ErrorCode::interrupted, "interrupted before the phase change", "", m.row.name);
    if (way_is_free(env, request, m, to, attempt)) {
      auto tried = attempt_once(attempt);
      if (tried.result) return *tried.result;
      missed = tried.missed;
      record_miss(env.session, request.id, to, attempt, missed, {});
      // A miss that queued nobody is the normal way under load and no news.
      if (request.notice && lock_wait(attempt, m.spec.lock_timeout).count() > 0) {
        request.notice(fmt::format("attempt {} of {}: {}", attempt, m.spec.switch_attempts, missed));
      }
    } else {
      missed = "a transaction older than the lock budget holds the table";
      std::this_thread::sleep_for(milliseconds(100));
    }
    std::this_thread::sleep_for(pause_after(attempt));
  }
  throw Error(
      ErrorCode::lock_attempts_exhausted,
      fmt::format("table {} could not be locked in {} attempts of {} ms ({}){}", m.row.table.display(),
                  m.spec.switch_attempts, m.spec.lock_timeout.count(), missed, holders_text(env, m)),
      "nothing changed; try again, or end the holders with --cancel-blockers or --terminate-blockers",
      m.row.table.display());
}

}  // namespace

std::string lock_and_recheck_sql(const Migration& m, const Crossing& crossing, const QualifiedName& table,
                                 std::chrono::milliseconds wait) {
  const auto body = "BEGIN\n" +
                    fmt::format(
                        "IF {}::regclass::oid <> {}::oid THEN RAISE EXCEPTION USING ERRCODE = 'CF001',"
                        " MESSAGE = 'the table was renamed or replaced'; END IF;\n",
                        quote_literal(table.sql()), m.row.table_oid.value) +
                    crossing.recheck + "END";
  auto tables = table.sql();
  for (const auto& other : crossing.also_locks) tables += ", " + other;
  return lock_table_sql(tables, wait, crossing.before_lock) + fmt::format("DO {};\n", quote_literal(body));
}

TransitionResult change_phase(PhaseEnv& env, const TransitionRequest& request) {
  const auto m = migration_of(StateStore(env.session).get(request.id));
  const auto target = request.event == Event::advance ? next_phase(m.row.phase) : rollback_phase(m.row.phase);
  if (!target) {
    throw Error(ErrorCode::illegal_transition,
                fmt::format("{} is not possible: the migration is closed ({})", to_text(request.event),
                            to_text(m.row.phase)),
                "", m.row.name);
  }
  failpoint::hit(failpoint_of(m.row.phase, *target, "before"));
  // A shut gate is told at once, not after the lock was waited for; the attempt asks again under the row
  // lock.
  if (World world(env, m, request.event); !world.gate_open(m.row.phase, *target)) {
    return {m.row.phase, m.row.phase, m.row.status, world.blockers};
  }
  const auto once = [&](int attempt) { return attempt_change(env, request, attempt); };
  const auto to = std::string(to_text(*target));
  const auto at_once = [&] {
    auto tried = once(1);
    if (tried.result) return *tried.result;
    throw Error(ErrorCode::busy, "the state of the migration is locked by another session: " + tried.missed,
                "run the command again", m.row.name);
  };
  const auto result =
      changes_table(m.row.phase, *target) ? with_lock_attempts(env, request, m, to, once) : at_once();
  if (result.refused.empty()) {
    log::write(log::Level::info, "phase_changed", {{"from", std::string(to_text(result.from))}, {"to", to}});
  }
  return result;
}

void reinstall_backward_capture(PhaseEnv& env, const TransitionRequest& request) {
  const auto m = migration_of(StateStore(env.session).get(request.id));
  const auto phase = std::string(to_text(m.row.phase));
  with_lock_attempts(env, request, m, phase, [&](int attempt) -> Attempt {
    Transaction transaction(env.session);
    const auto locked = lock_migration(env, request.id);
    const auto crossing = recapture_crossing(env, locked);
    const PhaseChange change{locked.row.id,   locked.row.phase,  locked.row.phase,
                             Status::running, "recapture",       request.operator_name,
                             request.host,    crossing.evidence, crossing.assignments};
    auto missed = commit_crossing(env, request, locked, crossing, change, attempt);
    if (!missed.empty()) return {std::nullopt, std::move(missed)};
    return {TransitionResult{locked.row.phase, locked.row.phase, Status::running, {}}, {}};
  });
}

bool change_status(SqlSession& session, const MigrationId& id, Event event, const std::string& reason,
                   const std::optional<Token>& token, const std::function<void()>& also) {
  Transaction transaction(session);
  StateStore store(session);
  const auto row = store.get(id, LockMode::for_update);
  if (token && row.token != *token) {
    throw Error(ErrorCode::superseded, "another runner took the migration over", "see 'crossfade status'",
                row.name);
  }
  NoWorld world;
  const auto outcome = fire(world, row.phase, row.status, event);
  if (outcome.verdict != Verdict::handled) return false;
  store.set_status(id, row.phase, row.status, outcome.status, reason);
  if (also) also();
  transaction.commit();
  return true;
}

}  // namespace crossfade

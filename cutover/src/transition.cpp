// Order of locks: migration row, table, the rest. The migration row is locked first and without the table, so
// that two operators meet here and not in the user's way; a chunk never locks it.
//
// If we die: before the message is sent, the transaction was only a row lock; after it, the server finishes
// alone. If the answer is lost, the probe takes the row lock, which the old backend holds until it has ended,
// and asks for the fate of the recorded transaction id.
#include "transition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>

#include "attempts.hpp"
#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/phase_request.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/archive.hpp"
#include "crossfade/shadow/transform.hpp"
#include "group.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {

// The machine's questions, asked of every migration of the group.
class World : public MachineWorld {
 public:
  World(PhaseEnv& env, const std::vector<Migration>& group, Event event)
      : env_(env), group_(group), event_(event) {}

  bool gate_open(Phase from, Phase) override {
    blockers = group_blockers(env_, group_, event_);
    const auto handler = make_phase_handler(from);
    for (const auto& m : group_) {
      if (going_back_without_table(m)) continue;
      auto shut =
          event_ == Event::advance ? handler->exit_blockers(env_, m) : handler->rollback_blockers(env_, m);
      for (auto& blocker : unaccepted(shut, env_.accepted))
        blockers.push_back(of_member(m, std::move(blocker)));
    }
    return blockers.empty();
  }

  void cross(Phase from, Phase to) override {
    for (const auto& m : group_) crossings.push_back(crossing_of(m, from, to));
  }

  std::vector<Blocker> blockers;
  std::vector<Crossing> crossings;  // one for each migration

 private:
  Crossing crossing_of(const Migration& m, Phase from, Phase to) {
    if (!going_back_without_table(m)) {
      return event_ == Event::advance ? make_phase_handler(to)->enter(env_, m)
                                      : make_phase_handler(from)->leave_back(env_, m);
    }
    // Column and triggers went with the table; what is left are functions that nothing calls.
    Crossing crossing;
    for (const auto* role : {"capture", "note"}) {
      crossing.statements += fmt::format("DROP FUNCTION IF EXISTS crossfade.{};\n",
                                         quote_identifier(m.generated.function(role)));
    }
    if (from == Phase::switched) crossing.statements += remove_archive_log_sql(m);
    if (from == Phase::planned) crossing.statements += drop_functions_sql(m.binding.column);
    return crossing;
  }

  bool going_back_without_table(const Migration& m) {
    return event_ == Event::rollback && !relation_name(env_.session, m.row.table_oid);
  }

  PhaseEnv& env_;
  const std::vector<Migration>& group_;
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

// Everything is in one message with COMMIT: after the first lock nothing waits for the client.
std::string script_of(PhaseEnv& env, const std::vector<Migration>& group,
                      const std::vector<Crossing>& crossings, const std::vector<PhaseChange>& changes,
                      int attempt, const std::string& fulfil) {
  const auto& leader = group.front();
  const bool locks = std::ranges::any_of(crossings, &Crossing::locks_table);
  std::string script;
  if (locks) {
    script +=
        lock_and_recheck_sql(env.session, group, crossings, lock_wait(attempt, leader.spec.lock_timeout));
  }
  if (!fulfil.empty()) script += fmt::format("DO {};\n", quote_literal("BEGIN\n" + fulfil + "END"));
  const auto effects = under_lock_sql(crossings);
  script += locks ? under_one_deadline_sql(effects) : effects;
  for (const auto& change : changes) script += phase_change_sql(change);
  if (!locks) return script;
  return script + record_success_sql(leader.row.id, tables_of(env.session, group),
                                     std::string(to_text(changes.front().to)), attempt);
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

// The rows, locked, and ours. Frozen between here and the one message that commits, we hold them: for no
// longer than a newcomer waits for the lease.
std::vector<Migration> lock_group(PhaseEnv& env, const MigrationId& id) {
  env.session.exec("SET LOCAL lock_timeout = 10000");
  env.session.exec("SET LOCAL idle_in_transaction_session_timeout = 10000");
  auto group = load_group(env.session, id, LockMode::for_update);
  for (const auto& m : group) {
    if (m.row.token == env.token) continue;
    throw Error(ErrorCode::superseded, "another runner took the migration over", "see 'crossfade status'",
                m.row.name);
  }
  return group;
}

// Sends effect, phase row and COMMIT as one message. The attempt has no result yet: it says why the lock was
// not got, nothing when it was.
Attempt commit_crossing(PhaseEnv& env, const TransitionRequest& request, const std::vector<Migration>& group,
                        const std::vector<Crossing>& crossings, const std::vector<PhaseChange>& changes,
                        int number, PauseSampler* sampler) {
  auto& session = env.session;
  const auto& change = changes.front();
  const auto script = script_of(env, group, crossings, changes, number,
                                request.tell ? fulfil_request_sql(request.id, env.token) : std::string());
  const auto xid = text_of(session.exec("SELECT pg_current_xact_id()").one("xid")[0]);
  if (change.from != change.to) failpoint::hit(failpoint_of(change.from, change.to, "locked"));
  const int pid = session.backend_pid();
  Attempt attempt;
  std::exception_ptr failure;
  if (sampler != nullptr) sampler->begin(pid);
  try {
    session.commit_with(script);
  } catch (const Error&) {
    failure = std::current_exception();
  }
  if (sampler != nullptr) attempt.cost = sampler->end();
  if (!failure) return attempt;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::connection_lost && error.effect() == Effect::unknown) {
      probe(env, request.id, xid, pid);
    } else if (error.is_lock_not_available()) {
      attempt.missed = "lock not available";
    } else if (error.is_query_canceled()) {
      attempt.missed = "lock budget used up";
    } else if (error.is_serialization_or_deadlock()) {
      attempt.missed = "undone by the server as the victim of a deadlock";
    } else if (error.sqlstate() == "CF001") {
      throw Error(ErrorCode::not_ready, error.message(), "run the command again; it checks anew",
                  group.front().row.name)
          .with_sqlstate(error.sqlstate());
    } else if (error.sqlstate() == "CF004") {
      throw Error(ErrorCode::trigger_fails,
                  fmt::format("in phase {} {}", to_text(change.to), error.message()),
                  "change the trigger's function so that it works with either type of the column, and run the"
                  " command again; nothing was changed",
                  group.front().row.table.display())
          .with_sqlstate(error.sqlstate());
    } else if (error.sqlstate() == "CF002") {
      const auto who = PhaseRequests(session).cancelled_by(request.id, env.token);
      throw request_cancelled(std::string(to_text(change.to)), who.value_or(""));
    } else {
      throw;
    }
  }
  return attempt;
}

// The change is durable; that its price could not be noted must not look like a failure.
void note_cost(PhaseEnv& env, const MigrationId& id, const AttemptCost& cost) {
  try {
    add_cost(env.session, id, cost);
  } catch (const Error& error) {
    log::write(log::Level::warn, "pause_not_recorded", {{"error", std::string(error.name())}});
  }
}

// What an operator overrode stands in the history of the change that it allowed.
std::string with_acceptances(const std::string& evidence, const std::vector<Acceptance>& accepted) {
  if (accepted.empty()) return evidence;
  auto json = nlohmann::json::parse(evidence);
  for (const auto& acceptance : accepted) json["accepted"][acceptance.id] = acceptance.reason;
  return json.dump();
}

Attempt attempt_change(PhaseEnv& env, const TransitionRequest& request, int number, PauseSampler* sampler) {
  TransitionResult result;
  Attempt attempt;
  {
    Transaction transaction(env.session);
    const auto group = lock_group(env, request.id);
    const auto& m = group.front();
    result.from = m.row.phase;
    World world(env, group, request.event);
    const auto outcome = fire(world, m.row.phase, m.row.status, request.event);
    if (outcome.verdict == Verdict::refused) {
      result.to = result.from;
      result.refused = world.blockers;
      attempt.result = result;
      return attempt;
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
    std::vector<PhaseChange> changes;
    for (std::size_t i = 0; i < group.size(); ++i) {
      changes.push_back({group[i].row.id, result.from, result.to, result.status,
                         std::string(to_text(request.event)), request.operator_name, request.host,
                         with_acceptances(world.crossings[i].evidence, env.accepted),
                         world.crossings[i].assignments});
    }
    attempt = commit_crossing(env, request, group, world.crossings, changes, number, sampler);
    if (!attempt.missed.empty()) return attempt;
  }
  failpoint::hit(failpoint_of(result.from, result.to, "sent"));
  note_cost(env, request.id, attempt.cost);
  attempt.result = result;
  return attempt;
}

}  // namespace

std::string lock_and_recheck_sql(SqlSession& session, const std::vector<Migration>& group,
                                 const std::vector<Crossing>& crossings, std::chrono::milliseconds wait) {
  std::string recheck;
  std::vector<std::string> tables;
  bool several = false;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (!crossings[i].locks_table) continue;
    const auto table = relation_name(session, group[i].row.table_oid).value_or(group[i].row.table).sql();
    tables.push_back(table);
    // LOCK TABLE takes the table first, then its partitions, level by level, in the order of their oids.
    several = several || group[i].binding.key.partitioned;
    tables.insert(tables.end(), crossings[i].also_locks.begin(), crossings[i].also_locks.end());
    recheck += fmt::format(
        "IF {}::regclass::oid <> {}::oid THEN RAISE EXCEPTION USING ERRCODE = 'CF001',"
        " MESSAGE = 'the table was renamed or replaced'; END IF;\n",
        quote_literal(table), group[i].row.table_oid.value);
  }
  for (const auto& crossing : crossings) recheck += crossing.recheck;
  tables = in_lock_order(session, tables);
  auto before = before_lock_sql(crossings);
  if (several || tables.size() > 1 || !before.empty()) {
    wait = wait_with_locks(session, wait);
    if (wait.count() > 0) before = calm_or_miss_sql() + before;
  }
  return lock_tables_sql(tables, wait, group.front().spec.lock_timeout, before) +
         fmt::format("DO {};\n", quote_literal("BEGIN\n" + recheck + "END"));
}

TransitionResult change_phase(PhaseEnv& env, const TransitionRequest& request) {
  const auto group = load_group(env.session, request.id);
  const auto& m = group.front();
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
  if (World world(env, group, request.event); !world.gate_open(m.row.phase, *target)) {
    return {m.row.phase, m.row.phase, m.row.status, world.blockers};
  }
  if (request.before) request.before(m.row.phase, *target);
  const auto once = [&](int attempt, PauseSampler& sampler) {
    // Shortly before: what can be answered outside the lock is not left for it.
    for (const auto& each : group) make_phase_handler(m.row.phase)->before_attempt(env, each);
    return attempt_change(env, request, attempt, &sampler);
  };
  const auto to = std::string(to_text(*target));
  const auto at_once = [&] {
    auto tried = attempt_change(env, request, 1, nullptr);
    if (tried.result) return *tried.result;
    throw Error(ErrorCode::busy, "the state of the migration is locked by another session: " + tried.missed,
                "run the command again", m.row.name);
  };
  const auto result =
      changes_table(m.row.phase, *target) ? with_lock_attempts(env, request, group, to, once) : at_once();
  if (result.refused.empty()) {
    log::write(log::Level::info, "phase_changed", {{"from", std::string(to_text(result.from))}, {"to", to}});
  }
  return result;
}

void reinstall_backward_capture(PhaseEnv& env, const TransitionRequest& request) {
  const auto seen = load_group(env.session, request.id);
  const auto phase = std::string(to_text(seen.front().row.phase));
  with_lock_attempts(env, request, seen, phase, [&](int number, PauseSampler& sampler) {
    Transaction transaction(env.session);
    const auto group = lock_group(env, request.id);
    std::vector<Crossing> crossings;
    std::vector<PhaseChange> changes;
    for (const auto& locked : group) {
      crossings.push_back(recapture_crossing(env, locked));
      changes.push_back({locked.row.id, locked.row.phase, locked.row.phase, Status::running, "recapture",
                         request.operator_name, request.host, crossings.back().evidence,
                         crossings.back().assignments});
    }
    auto attempt = commit_crossing(env, request, group, crossings, changes, number, &sampler);
    if (!attempt.missed.empty()) return attempt;
    note_cost(env, request.id, attempt.cost);
    const auto now = group.front().row.phase;
    attempt.result = TransitionResult{now, now, Status::running, {}};
    return attempt;
  });
}

bool change_status(SqlSession& session, const MigrationId& id, Event event, const std::string& reason,
                   const std::optional<Token>& token, const std::function<void()>& also) {
  Transaction transaction(session);
  StateStore store(session);
  const auto group = store.group(id, LockMode::for_update);
  const auto& row = group.front();
  if (token && row.token != *token) {
    throw Error(ErrorCode::superseded, "another runner took the migration over", "see 'crossfade status'",
                row.name);
  }
  NoWorld world;
  const auto outcome = fire(world, row.phase, row.status, event);
  if (outcome.verdict != Verdict::handled) return false;
  const auto unsettled = [](const MigrationRow& member) { return member.status != Status::settled; };
  if (event == Event::settle && std::ranges::any_of(group | std::views::drop(1), unsettled)) return false;
  store.set_status(id, row.phase, row.status, outcome.status, reason);
  // What holds of the leader holds of every member that can hear it; a member settles by itself, before.
  for (const auto& member : group | std::views::drop(1)) {
    const auto its = fire(world, member.phase, member.status, event);
    if (event == Event::settle || its.verdict != Verdict::handled) continue;
    store.set_status(member.id, member.phase, member.status, its.status, reason);
  }
  if (also) also();
  transaction.commit();
  return true;
}

}  // namespace crossfade

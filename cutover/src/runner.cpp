#include "runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "group.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kSlice{500};
constexpr std::chrono::seconds kFingerprintEvery{2};

// What a step may throw that only an operator can answer.
bool fails_the_phase(const Error& error) {
  switch (error.code()) {
    case ErrorCode::too_many_rejects:
    case ErrorCode::rows_suppressed:
    case ErrorCode::table_changed:
    case ErrorCode::fingerprint_changed:
    case ErrorCode::statement_failed:
    case ErrorCode::undefined_table:
    case ErrorCode::undefined_column:
    case ErrorCode::permission_denied:
    case ErrorCode::internal_error:
      return !error.is_transient();
    default:
      return false;
  }
}

std::optional<Replica> replica_of(const Runner::Setup& setup) {
  if (!setup.connect_reader) return std::nullopt;
  return Replica({setup.connect_reader, setup.options->read_patience,
                  [listener = setup.listener](const std::string& note) {
                    if (listener != nullptr) listener->on_notice(note);
                  }});
}

// The phase is failed now, whatever the statement's own code says of its class.
Error as_failed_phase(const Error& cause) {
  if (cause.exit_status() == error_info(ErrorCode::phase_failed).exit_status) return cause;
  return Error(ErrorCode::phase_failed, cause.message(), cause.hint(), cause.object())
      .with_sqlstate(cause.sqlstate());
}

}  // namespace

Runner::Runner(Setup setup)
    : setup_(std::move(setup)),
      session_(setup_.connect("runner")),
      cache_(setup_.options->redis),
      replica_(replica_of(setup_)),
      keeper_(
          setup_.connect, setup_.options->redis, setup_.id, setup_.options->operator_name,
          setup_.options->host, setup_.patience, setup_.contention, stop_, [this] { pass_on_interrupt(); },
          [this](Phase phase, Epoch epoch) {
            // An older epoch never takes a newer hint back, so this may come late.
            if (!is_closed(phase)) cache_.put_phase(setup_.id, {phase, epoch, keeper_.token()});
          }),
      env_{session_,
           cache_,
           setup_.connect,
           keeper_.token(),
           setup_.confirmation,
           setup_.accepted,
           stop_,
           interruptible_,
           {},
           {setup_.options->cancel_blockers, setup_.options->terminate_blockers},
           replica_ ? &*replica_ : nullptr} {
  silence_user_triggers(session_);
  const auto stored = standing(StateStore(session_).acceptances(setup_.id));
  env_.accepted.insert(env_.accepted.end(), stored.begin(), stored.end());
}

// From the keeper's thread. A statement of a phase change is never cancelled: only those that said they may
// be.
void Runner::pass_on_interrupt() {
  if (!setup_.stop->load() && !stop_) return;
  stop_ = true;
  if (!interruptible_) return;
  session_.cancel();
  if (replica_) replica_->cancel();
}

Migration Runner::load() { return load(setup_.id); }

Migration Runner::load(const MigrationId& id) {
  auto m = migration_of(StateStore(session_).get(id));
  if (m.row.token != env_.token) {
    keeper_.check();
    throw Error(ErrorCode::superseded, "another runner took the migration over", "see 'crossfade status'",
                m.row.name);
  }
  return m;
}

std::vector<Migration> Runner::load_in_working_order() {
  auto group = load_group(session_, setup_.id);
  std::ranges::rotate(group, group.begin() + 1);
  return group;
}

void Runner::check() {
  keeper_.check();
  if (request_) request_->check();
  if (!setup_.stop->load()) return;
  stop_ = true;
  throw Error(ErrorCode::interrupted, "interrupted; nothing is lost", "run the command again to go on");
}

std::int64_t estimated_rows(SqlSession& session, Oid table) {
  const auto estimate =
      session.exec("SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = $1::oid",
                   {std::to_string(table.value)});
  return estimate.empty() ? 0 : int_of(estimate[0][0]);
}

void Runner::report(const Migration& m, std::int64_t done, std::int64_t total, const std::string& note) {
  if (setup_.stop->load()) stop_ = true;
  if (setup_.listener == nullptr) return;
  // The session is asked only when the caller has no total, which the one beside a long statement has.
  if (total < 0) total = estimated_rows(session_, m.row.table_oid);
  setup_.listener->on_progress(
      {m.row.name, m.row.phase, done, total, m.row.leader ? m.row.table.display() + ": " + note : note});
}

void Runner::follow_progress(const Migration& m) {
  env_.progress = [this, m](std::int64_t done, std::int64_t total, const std::string& note) {
    report(m, done, total, note);
  };
}

// One that fails stops all of them: they change their phase together or not at all.
void Runner::fail(const Migration& m, const std::string& why) {
  const auto table = m.row.table.display();
  const auto reason = m.row.leader && !why.starts_with(table + ": ") ? table + ": " + why : why;
  change_status(session_, setup_.id, Event::fail, reason, env_.token);
  // The error that is thrown next tells it to a person; this is for the log.
  log::write(log::Level::info, "phase_failed", {{"reason", reason}});
}

void Runner::hold_while_paused() {
  bool told = false;
  while (load().row.status == Status::paused) {
    if (!told && setup_.listener != nullptr) setup_.listener->on_notice("paused: " + load().row.reason);
    told = true;
    check();
    std::this_thread::sleep_for(milliseconds(200));
  }
}

// Everything that the capture rests on is looked at every two seconds, so that a disabled trigger is found
// while the sweep runs and not at the comparison.
bool Runner::watch_fingerprint(const Migration& m) {
  const auto now = std::chrono::steady_clock::now();
  if (!has_capture(m.row.phase) || now - last_fingerprint_ < kFingerprintEvery) return false;
  last_fingerprint_ = now;
  current_table(session_, m);
  const auto fingerprint = read_fingerprint(session_, m);
  const auto changes = fingerprint_changes(m.row.fingerprint, fingerprint);
  if (changes.empty()) return false;
  if (m.binding.key.partitioned && follow(m, fingerprint)) return true;
  if (follow_storage(m, fingerprint)) return true;
  std::string all;
  for (const auto& change : changes) all += (all.empty() ? "" : ", ") + change;
  throw Error(ErrorCode::fingerprint_changed, fmt::format("{}: {}", m.row.table.display(), all),
              fmt::format("put it back, or re-create the capture with 'crossfade recapture {}'", m.row.name),
              m.row.table.display());
}

// A table that was dropped makes any statement fail; what is told is that it was dropped.
Error Runner::cause_of(const Error& error, const Migration& m) {
  try {
    current_table(session_, m);
  } catch (const Error& gone) {
    if (gone.code() == ErrorCode::table_changed) return gone;
  }
  return error;
}

void Runner::settle(const WaitUntil& wait) {
  while (true) {
    try {
      return settle_once();
    } catch (const Error& error) {
      // The short locks of a phase; everything else that its work waits for, it waits for by itself.
      const bool patient = wait && std::chrono::steady_clock::now() < *wait;
      if (!patient || error.code() != ErrorCode::lock_attempts_exhausted) throw;
      if (setup_.listener != nullptr) setup_.listener->on_notice("waiting: " + error.message());
    }
  }
}

void Runner::settle_once() {
  if (load().row.status == Status::failed) change_status(session_, setup_.id, Event::retry, "", env_.token);
  // A member that stopped being settled meanwhile keeps the leader from settling.
  while (load().row.status != Status::settled) {
    for (const auto& m : load_in_working_order()) settle_one(m.row.id);
  }
}

// nullopt: undone for a reason that passes, or not done because partitions came or went.
std::optional<StepResult> Runner::guarded(const Migration& m, bool& followed,
                                          const std::function<StepResult()>& step) {
  try {
    followed = watch_fingerprint(m);
    if (followed) return std::nullopt;
    return step();
  } catch (const Error& error) {
    check();
    if (error.is_transient()) {
      log::write(log::Level::info, "step_undone", {{"sqlstate", error.sqlstate()}});
      std::this_thread::sleep_for(milliseconds(200));
      return std::nullopt;
    }
    if (!fails_the_phase(error)) throw;
    const auto cause = cause_of(error, m);
    fail(m, cause.message());
    throw as_failed_phase(cause);
  }
}

// A worker process met what fails the phase, and said so under our token.
void Runner::require_not_failed(const Migration& m) {
  if (m.row.status != Status::failed) return;
  check();
  throw Error(ErrorCode::phase_failed, m.row.reason, "see 'crossfade status " + m.row.name + "'", m.row.name);
}

void Runner::settle_one(const MigrationId& id) {
  auto m = load(id);
  auto handler = make_phase_handler(m.row.phase);
  const auto phase = m.row.phase;
  follow_progress(m);
  last_fingerprint_ = {};
  while (m.row.status != Status::settled) {
    check();
    require_not_failed(m);
    if (m.row.status == Status::paused) hold_while_paused();
    cache_.put_phase(setup_.id, {m.row.phase, m.row.epoch, env_.token});
    bool followed = false;
    const auto done = guarded(m, followed, [&] {
      const auto again = redriver_.step(env_, m, kSlice);
      return again ? *again : handler->step(env_, m, kSlice);
    });
    if (followed) {
      // What a handler keeps (a sweep, how often a replay wrote) is of the partitions of before.
      handler = make_phase_handler(phase);
      m = load(id);
      continue;
    }
    if (!done) continue;
    const auto& result = *done;
    switch (result.kind) {
      case StepResult::Kind::again:
        std::this_thread::sleep_for(result.pause);
        break;
      case StepResult::Kind::held:
        std::this_thread::sleep_for(milliseconds(50));
        break;
      case StepResult::Kind::waiting:
        throw error_of(result.blockers, m.row.name);
      case StepResult::Kind::failed:
        fail(m, error_of(result.blockers, m.row.name).message());
        throw error_of(result.blockers, m.row.name);
      case StepResult::Kind::settled:
        failpoint::hit("settle.before");
        if (!change_status(session_, id, Event::settle, "", env_.token) && !m.row.leader) return;
        failpoint::hit("settle.after");
        if (setup_.listener != nullptr && !m.row.leader) setup_.listener->on_settled(m.row.name, phase);
        break;
    }
    m = load(id);
    if (m.row.phase != phase) {
      throw Error(ErrorCode::superseded,
                  fmt::format("the migration is in phase {} now", to_text(m.row.phase)),
                  "see 'crossfade status'", m.row.name);
    }
  }
}

void Runner::repeat(const Migration& m, const std::function<StepResult()>& step) {
  follow_progress(m);
  auto result = step();
  for (; result.kind == StepResult::Kind::again; result = step()) {
    check();
    std::this_thread::sleep_for(result.pause);
  }
  if (!result.blockers.empty()) throw error_of(result.blockers, m.row.name);
}

void Runner::refresh(PhaseHandler& handler, const MigrationId& id) {
  while (true) {
    check();
    const auto m = load(id);
    follow_progress(m);
    StepResult result;
    try {
      last_fingerprint_ = {};
      if (watch_fingerprint(m)) {
        settle_once();
        continue;
      }
      result = handler.refresh(env_, m, kSlice);
    } catch (const Error& error) {
      keeper_.check();
      if (!fails_the_phase(error)) throw;
      const auto cause = cause_of(error, m);
      fail(m, cause.message());
      throw as_failed_phase(cause);
    }
    if (result.kind == StepResult::Kind::settled) return;
    if (result.kind == StepResult::Kind::failed) {
      fail(m, error_of(result.blockers, m.row.name).message());
      throw error_of(result.blockers, m.row.name);
    }
    std::this_thread::sleep_for(result.pause);
  }
}

TransitionRequest Runner::request(Event event) {
  TransitionRequest request{setup_.id, event, setup_.options->operator_name, setup_.options->host, {}, {},
                            {},        {}};
  request.notice = [this](const std::string& sentence) {
    if (setup_.listener != nullptr) setup_.listener->on_notice(sentence);
  };
  request.before = [this, event](Phase from, Phase to) { before_change(event, from, to); };
  request.check = [this] { check(); };
  request.tell = [this](const std::string& waits_for, int attempt, const std::string& blockers) {
    request_->tell(waits_for, attempt, blockers);
  };
  return request;
}

void Runner::ask_for(std::string_view event, Phase to, int attempts, const WaitUntil& wait) {
  PhaseRequest request;
  request.event = std::string(event);
  request.to_phase = std::string(to_text(to));
  request.operator_name = setup_.options->operator_name;
  request.host = setup_.options->host;
  request.attempts = attempts;
  if (wait && *wait != std::chrono::steady_clock::time_point::max()) {
    const auto left = *wait - std::chrono::steady_clock::now();
    request.until = fmt::format("{} ms", std::chrono::duration_cast<milliseconds>(left).count());
  }
  request_.reset();
  request_.emplace(session_, setup_.id, env_.token, request);
}

void Runner::reinstall_backward_capture() {
  const auto m = load();
  ask_for("recapture", m.row.phase, m.spec.switch_attempts, std::nullopt);
  crossfade::reinstall_backward_capture(env_, request(Event::retry));
  request_.reset();
  cache_.publish_control(setup_.id, "recapture");
}

// Once in a command: what waits for a lock tries the phase change many times.
void Runner::before_change(Event event, Phase from, Phase to) {
  if (hooked_for_ == to) return;
  const auto m = load();
  run_before_hook(session_, m.row, m.spec,
                  {std::string(to_text(from)), std::string(to_text(event)), to, m.row.id.text}, hooks());
  hooked_for_ = to;
}

HookContext Runner::hooks() {
  return {*setup_.options, setup_.listener, [this] { check(); }};
}

void Runner::run_owed_hook() { crossfade::run_owed_hook(session_, load().row, hooks()); }

void Runner::change(Event event) {
  const auto result = change_phase(env_, request(event));
  const auto m = load();
  if (!result.refused.empty()) throw error_of(result.refused, m.row.name);
  cache_.put_phase(setup_.id, {m.row.phase, m.row.epoch, env_.token});
  cache_.publish_control(setup_.id, to_text(m.row.phase));
  if (is_closed(m.row.phase)) {
    for (const auto& member : load_group(session_, setup_.id)) cache_.forget(member.row.id);
  }
  hooked_for_.reset();
  if (setup_.listener != nullptr) setup_.listener->on_phase(m.row.name, result.from, result.to);
}

namespace {
// What opens without anybody doing anything about it.
bool time_brings(ErrorCode code) {
  return code == ErrorCode::soak_not_over || code == ErrorCode::not_ready ||
         code == ErrorCode::old_snapshot || code == ErrorCode::lock_attempts_exhausted;
}
}  // namespace

void Runner::advance_once(PhaseHandler& handler, const WaitUntil& wait) {
  const auto group = load_group(session_, setup_.id);
  const auto& m = group.front();
  abandon_rollback();
  if (const auto apart = group_blockers(env_, group, Event::advance); !apart.empty())
    throw error_of(apart, m.row.name);
  std::vector<Blocker> shut;
  for (const auto& each : group) {
    for (auto& blocker : unaccepted(handler.exit_blockers(env_, each), env_.accepted))
      shut.push_back(of_member(each, std::move(blocker)));
  }
  const auto is = [](ErrorCode code) { return [code](const Blocker& b) { return b.code == code; }; };
  // Whoever waits is told at once what no time brings.
  const auto confirmation = std::ranges::find_if(shut, is(ErrorCode::confirmation_missing));
  if (wait && confirmation != shut.end()) throw error_of({*confirmation}, m.row.name);
  // What only time or a person can open is told before anything is read again for it.
  if (confirmation == shut.end() && std::ranges::none_of(shut, is(ErrorCode::soak_not_over))) {
    for (const auto& each : load_in_working_order()) refresh(handler, each.row.id);
  }
  change(Event::advance);
}

void Runner::wait_after(const Error& shut) {
  constexpr milliseconds kBetweenTries{1000};
  const auto until = std::chrono::steady_clock::now() + kBetweenTries;
  request_->tell(shut.message(), 0, shut.blockers().empty() ? "[]" : shut.blockers());
  if (setup_.listener != nullptr && told_ != shut.message()) {
    setup_.listener->on_notice("waiting: " + shut.message());
    told_ = shut.message();
  }
  while (std::chrono::steady_clock::now() < until) {
    check();
    std::this_thread::sleep_for(milliseconds(50));
  }
}

void Runner::advance(const WaitUntil& wait) {
  const auto m = load();
  const auto handler = make_phase_handler(m.row.phase);
  const auto to = next_phase(m.row.phase);
  if (to) ask_for(to_text(Event::advance), *to, m.spec.switch_attempts, wait);
  while (true) {
    try {
      advance_once(*handler, wait);
      break;
    } catch (const Error& error) {
      const bool patient = wait && request_ && std::chrono::steady_clock::now() < *wait;
      if (!patient || !time_brings(error.code())) {
        request_.reset();
        throw;
      }
      wait_after(error);
    }
  }
  request_.reset();
  run_owed_hook();
}

}  // namespace crossfade

#include "crossfade/cutover/migrator.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/state_schema.hpp"
#include "migrator_impl.hpp"

namespace crossfade {

namespace {

std::string login_name() {
  const auto* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(geteuid());
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

Migrator::Migrator(MigratorOptions options, ProgressListener* listener) : impl_(std::make_unique<Impl>()) {
  refuse_password(options.dsn);
  refuse_password(options.read_dsn);
  if (options.operator_name.empty()) options.operator_name = login_name();
  if (options.host.empty()) options.host = host_name();
  impl_->options = std::move(options);
  impl_->listener = listener;
  failpoint::configure_from_environment();
}

Migrator::~Migrator() = default;

SqlSession Migrator::Impl::connect(const std::string& name, const std::string& role) const {
  return SqlSession::connect(
      {options.dsn, fmt::format("crossfade/{}/{}", name, role), std::chrono::seconds(10)});
}

SqlSession Migrator::Impl::open(const std::string& name, const std::string& role) const {
  auto session = connect(name, role);
  require_schema(session);
  return session;
}

MigrationRow Migrator::Impl::resolve(SqlSession& session, const MigrationRef& ref) const {
  StateStore store(session);
  if (!ref.id) return store.find(ref.name);
  auto row = store.get(MigrationId{*ref.id});
  if (!row.leader) return row;
  throw Error(ErrorCode::unknown_migration,
              fmt::format("{} belongs to migration {}, which it follows", row.id.text, row.name),
              "name that one: " + row.name, row.name);
}

// State that moved with the data to another server says nothing about the passes that were made on the old
// one.
void Migrator::Impl::require_identity(const SqlSession& session, const MigrationRow& row) const {
  const auto& now = session.identity();
  std::string what;
  if (!row.system_identifier.empty() && !now.system_identifier.empty() &&
      row.system_identifier != now.system_identifier) {
    what = fmt::format("system identifier {} instead of {}", now.system_identifier, row.system_identifier);
  } else if (row.database_oid != now.database_oid) {
    what = fmt::format("database oid {} instead of {}", now.database_oid, row.database_oid);
  } else if (!row.timeline.empty() && !now.timeline.empty() && row.timeline != now.timeline) {
    what = fmt::format("timeline {} instead of {}", now.timeline, row.timeline);
  }
  if (what.empty()) return;
  throw Error(
      ErrorCode::identity_mismatch,
      fmt::format("the state of {} belongs to another server or database ({}): it was restored, cloned or"
                  " failed over",
                  row.name, what),
      "run 'crossfade adopt' to accept it; positions and comparisons are made anew", row.name);
}

Runner::Setup Migrator::Impl::runner_setup(const MigrationRow& row, std::atomic<bool>& stop) const {
  Runner::Setup setup;
  setup.id = row.id;
  setup.connect = [this, name = row.name](const std::string& role) { return connect(name, role); };
  if (!options.read_dsn.empty()) {
    setup.connect_reader = [this, name = row.name] {
      return SqlSession::connect(
          {options.read_dsn, fmt::format("crossfade/{}/reader", name), std::chrono::seconds(10)},
          SqlSession::Target::allow_standby);
    };
  }
  setup.options = &options;
  setup.listener = listener;
  setup.stop = &stop;
  return setup;
}

HookContext Migrator::Impl::hook_context(std::atomic<bool>& stop) const {
  return {options, listener, [&stop] {
            if (stop) {
              throw Error(ErrorCode::interrupted, "interrupted; nothing is lost",
                          "run the command again to go on");
            }
          }};
}

void Migrator::Impl::store_acceptances(SqlSession& session, const MigrationRow& row,
                                       const std::vector<Acceptance>& accept) const {
  StateStore store(session);
  for (const auto& acceptance : accept) {
    const auto* info = find_finding(acceptance.id);
    if (info == nullptr) {
      throw Error(ErrorCode::unknown_finding, "there is no finding '" + acceptance.id + "'",
                  "see 'crossfade findings'");
    }
    if (!info->acceptable) {
      throw Error(ErrorCode::finding_refused, "finding " + acceptance.id + " can never be accepted",
                  "remove its cause", acceptance.id);
    }
    store.accept(row.id, acceptance, options.operator_name, options.host);
  }
}

bool Migrator::init() {
  auto session = impl_->connect("", "init");
  return install_schema(session);
}

void Migrator::remove() {
  auto session = impl_->connect("", "init");
  remove_schema(session);
}

namespace {

// The open migration that this spec started. Throws when another spec did.
std::optional<MigrationRow> open_as_given(SqlSession& session, const Spec& spec) {
  auto open = StateStore(session).find_open(spec.name);
  if (!open || open->spec_hash == spec_hash(session, spec)) return open;
  throw Error(ErrorCode::spec_conflict, "a different migration named '" + spec.name + "' is open",
              fmt::format("a spec cannot change once started: go back with 'crossfade rollback {} --to"
                          " rolled_back' first, or use another name",
                          spec.name),
              spec.name);
}

}  // namespace

PlanReport Migrator::plan(const SpecSource& spec) {
  auto session = impl_->connect("", "plan");
  // Everything that plan makes is undone: the transaction never commits.
  Transaction transaction(session);
  const auto connect = [this](const std::string& role) { return impl_->connect("", role); };
  const bool initialized = schema_presence(session) != SchemaPresence::absent;
  if (initialized) {
    require_schema(session);
    if (const auto open = open_as_given(session, parse_spec(spec.text, spec.file))) {
      auto report = plan_report(session, stored_registration(session, *open), connect);
      report.phase = open->phase;
      return report;
    }
  } else {
    session.script(schema_sql());
  }
  auto registration = register_spec(session, spec, impl_->options);
  if (registration.usable) {
    require_free_tables(session, registration);
    insert_registration(session, registration);
  }
  auto report = plan_report(session, registration, connect);
  report.initialized = initialized;
  return report;
}

namespace {

std::string refusal_text(const std::vector<Finding>& refusals) {
  std::string text;
  for (const auto& finding : refusals) {
    text += (text.empty() ? "" : "; ") + finding.id + ": " + finding.message;
  }
  return text;
}

std::string refusal_hint(const std::vector<Finding>& refusals) {
  const auto& first = refusals.front();
  std::string hint = first.hint;
  if (is_acceptable(first)) {
    hint += fmt::format("{}or accept it: the same command with --accept {} --reason \"why\"",
                        hint.empty() ? "" : "; ", first.id);
  }
  return hint;
}

}  // namespace

namespace {

// Checks and stores what the spec says, in the open transaction. Present: it was started already.
std::optional<StartReport> register_migration(SqlSession& session, const SpecSource& source, const Spec& spec,
                                              const MigratorOptions& options,
                                              const std::vector<Acceptance>& accept,
                                              Registration& registration) {
  // Two starts at once meet here; the second one finds the first one's row.
  session.exec("SELECT pg_advisory_xact_lock(hashtext('crossfade'), hashtext('start'))");
  StateStore store(session);
  if (const auto open = open_as_given(session, spec)) return StartReport{open->name, open->id.text, true, {}};
  registration = register_spec(session, source, options);
  require_free_tables(session, registration);
  // What could not be bound cannot be accepted either.
  const auto refusals =
      unaccepted(registration.findings, registration.usable ? accept : std::vector<Acceptance>{});
  if (!refusals.empty()) {
    throw Error(ErrorCode::finding_refused, refusal_text(refusals), refusal_hint(refusals),
                refusals.front().object);
  }
  if (!registration.usable)
    throw Error(ErrorCode::internal_error, "the spec could not be bound and nothing was refused");
  insert_registration(session, registration);
  return std::nullopt;
}

}  // namespace

StartReport Migrator::start(const SpecSource& source, const std::vector<Acceptance>& accept) {
  const auto spec = parse_spec(source.text, source.file);
  auto session = impl_->open(spec.name, "start");
  failpoint::hit("start.before");
  const auto hooks = impl_->hook_context(stop_);
  Registration registration;
  if (!spec.hooks.empty()) {
    {
      // It is asked only of a start that would be made; what looks is undone.
      const Transaction looking(session);
      if (auto started = register_migration(session, source, spec, impl_->options, accept, registration))
        return *started;
    }
    run_before_hook(spec, {"", "start", Phase::planned, ""}, hooks);
  }
  Transaction transaction(session);
  if (auto started = register_migration(session, source, spec, impl_->options, accept, registration))
    return *started;
  impl_->store_acceptances(session, registration.row, accept);
  StateStore(session).record_action(registration.row.id, "start", impl_->options.operator_name,
                                    impl_->options.host);
  transaction.commit();
  failpoint::hit("start.registered");
  log::write(log::Level::info, "started", {{"migration", spec.name}, {"id", registration.row.id.text}});
  run_owed_hook(session, StateStore(session).get(registration.row.id), hooks);
  return {spec.name, registration.row.id.text, false, registration.findings};
}

PhaseReport Migrator::next(const MigrationRef& ref, const NextOptions& options) {
  auto session = impl_->open(ref.name, "next");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  if (is_closed(row.phase)) {
    run_owed_hook(session, row, impl_->hook_context(stop_));
    if (options.until == row.phase) return {row.name, row.phase, row.status, false};
    throw Error(ErrorCode::illegal_transition,
                fmt::format("migration {} is closed ({})", row.name, to_text(row.phase)),
                "to migrate again: crossfade start SPEC", row.name);
  }
  // Before any work: hours of it must not end in a question.
  if (options.until == Phase::dropped) {
    if (const auto missing = missing_confirmation(row.name, options.confirm, " --until dropped"))
      throw error_of({*missing}, row.name);
  }
  if (options.until && *options.until != row.phase && !precedes(row.phase, *options.until)) {
    throw Error(ErrorCode::illegal_transition,
                fmt::format("migration {} is past {} (it is in {})", row.name, to_text(*options.until),
                            to_text(row.phase)),
                fmt::format("to go back: crossfade rollback {} --to {}", row.name, to_text(*options.until)),
                row.name);
  }
  if (row.status == Status::paused) {
    throw Error(ErrorCode::paused, fmt::format("migration {} is paused: {}", row.name, row.reason),
                "crossfade resume " + row.name, row.name);
  }
  impl_->store_acceptances(session, row, options.accept);
  auto setup = impl_->runner_setup(row, stop_);
  setup.confirmation = options.confirm;
  Runner runner(std::move(setup));
  runner.run_owed_hook();
  Runner::WaitUntil wait;
  if (options.wait) {
    using Clock = std::chrono::steady_clock;
    const bool endless = *options.wait > std::chrono::hours(24 * 365);
    wait = endless ? Clock::time_point::max() : Clock::now() + *options.wait;
  }
  // One step from what was seen is what was asked for. Whoever held the lease while we waited may have done
  // it.
  bool worked = row.status != Status::settled;
  if (!options.until && runner.load().row.phase_since != row.phase_since) {
    throw Error(ErrorCode::superseded,
                fmt::format("another command moved migration {} to {} meanwhile", row.name,
                            to_text(runner.load().row.phase)),
                "see 'crossfade status'", row.name);
  }
  while (true) {
    auto now = runner.load().row;
    if (now.status == Status::settled) {
      const bool there = options.until ? *options.until == now.phase : worked;
      if (is_closed(now.phase)) return {now.name, now.phase, now.status};
      if (there) {
        runner.abandon_rollback();
        return {now.name, now.phase, now.status};
      }
      runner.advance(wait);
    }
    if (!is_closed(runner.load().row.phase)) runner.settle(wait);
    worked = true;
  }
}

PhaseReport Migrator::rollback(const MigrationRef& ref, const RollbackOptions& options) {
  auto session = impl_->open(ref.name, "rollback");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  const auto target = options.to ? options.to : rollback_phase(row.phase);
  if (target == row.phase) return {row.name, row.phase, row.status, false};
  const bool earlier = target && (*target == Phase::rolled_back || precedes(*target, row.phase));
  if (is_closed(row.phase) || !earlier) {
    throw Error(ErrorCode::rollback_refused,
                is_closed(row.phase) ? fmt::format("migration {} is closed ({}); it cannot be rolled back",
                                                   row.name, to_text(row.phase))
                                     : fmt::format("migration {} is in {}; {} is not an earlier phase",
                                                   row.name, to_text(row.phase), to_text(*target)),
                "", row.name);
  }
  impl_->store_acceptances(session, row, options.accept);
  // A running `next` is asked to end after its chunk; if it does not within ten seconds, its lease is taken.
  StateStore(session).request_stop(row.id, true);
  CursorCache(impl_->options.redis).publish_control(row.id, "rollback");
  auto setup = impl_->runner_setup(row, stop_);
  setup.patience = std::chrono::seconds(10);
  setup.contention = Contention::take_over;
  setup.accepted = options.accept;
  Runner runner(std::move(setup));
  runner.run_owed_hook();
  while (runner.load().row.phase != *target) {
    runner.check();
    const auto phase = runner.load().row.phase;
    // Another rollback, which ended before we held the lease, may have gone further than this one wants to.
    if (is_closed(phase) || (*target != Phase::rolled_back && !precedes(*target, phase))) {
      throw Error(ErrorCode::superseded,
                  fmt::format("another command moved migration {} to {} meanwhile", row.name, to_text(phase)),
                  "see 'crossfade status'", row.name);
    }
    runner.go_back();
  }
  const auto now = runner.load().row;
  return {now.name, now.phase, now.status};
}

}  // namespace crossfade

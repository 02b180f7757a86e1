// Why it needs no lease. What may be written is decided in each chunk, by the runner's token, the phase and
// the status in the migration row; a unit is one worker's by its own lease. A process that presents a token
// which is no longer the row's, wakes up late, or was thought dead writes nothing. That a runner is alive is
// asked for another reason: somebody has to watch the capture, and to be there when a phase fails.
#include "work.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "crossfade/core/log.hpp"
#include "crossfade/core/state_schema.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/pace_order.hpp"
#include "crossfade/shadow/units.hpp"
#include "group.hpp"
#include "registration.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kSlice{500};
// A change that Redis announces is seen at once, any other after this.
constexpr milliseconds kBetweenLooks{500};

// "1.4" of "1.4.2": what has the same is able to work together.
std::string_view series(std::string_view version) {
  const auto minor = version.find('.');
  if (minor == std::string_view::npos) return version;
  return version.substr(0, version.find('.', minor + 1));
}

struct RunnerFacts {
  bool alive = false;
  std::string version;
  std::string asks_for;  // the phase that it is about to enter; empty: none
};

RunnerFacts runner_of(SqlSession& session, const MigrationId& id) {
  const auto row = session
                       .exec_prepared(
                           "SELECT coalesce(m.lease_until > clock_timestamp(), false) AND EXISTS (SELECT FROM"
                           " pg_stat_activity a WHERE a.pid = m.runner_pid"
                           " AND coalesce(a.backend_start, m.runner_backend_start) = m.runner_backend_start),"
                           " coalesce(m.runner_version, ''), coalesce((SELECT r.to_phase FROM"
                           " crossfade.request r WHERE r.migration_id = m.id AND r.token = m.token), '')"
                           " FROM crossfade.migration m WHERE m.id = $1",
                           {id.text})
                       .one("migration");
  return {bool_of(row[0]), text_of(row[1]), text_of(row[2])};
}

// The sweep that is open for one migration of the group; of several the newest.
std::optional<PassRow> open_pass(SqlSession& session, const MigrationId& id) {
  const auto found = session.exec_prepared(
      "SELECT kind FROM crossfade.pass WHERE migration_id = $1 AND state = 'running'"
      " AND kind IN ('backfill', 'catch_up', 'replay', 'redrive') ORDER BY id DESC LIMIT 1",
      {id.text});
  if (found.empty()) return std::nullopt;
  return newest_pass(session, id, text_of(found[0][0]));
}

// No pass of the phase is to come, whatever the runner still has to do in it.
bool swept(SqlSession& session, const MigrationRow& row) {
  if (row.status == Status::settled) return true;
  if (row.phase == Phase::backfill) {
    const auto backfill = newest_pass(session, row.id, "backfill");
    const auto catch_up = newest_pass(session, row.id, "catch_up");
    return backfill && catch_up && catch_up->id > backfill->id && catch_up->state == "ended";
  }
  const auto replay = newest_pass(session, row.id, "replay");
  return replay && replay->state == "ended" && replay->rows_written == 0;
}

}  // namespace

struct Work::View {
  std::vector<Migration> group;  // the leader first
  struct Open {
    const Migration* migration;
    PassRow pass;
  };
  std::vector<Open> open;
  std::string ended;  // not empty: nothing is left to do
  std::string waits;  // not empty: nothing may be done now
  int threads_of_runner = 0;
};

Work::Work(Runner::Setup setup, const WorkOptions& options)
    : setup_(std::move(setup)),
      options_(options),
      session_(setup_.connect("work")),
      cache_(setup_.options->redis),
      listener_(setup_.options->redis, setup_.id) {
  const auto row = StateStore(session_).get(setup_.id);
  const auto runner = runner_of(session_, setup_.id);
  require_same(row, runner.alive ? runner.version : "");
  if (options_.threads == 0) {
    const auto m = migration_of(row);
    options_.threads = StateStore(session_).tuning(row.id, m.spec.tuning).workers;
  }
  report_.name = row.name;
  WorkerRow mine;
  mine.operator_name = setup_.options->operator_name;
  mine.host = setup_.options->host;
  mine.process_id = static_cast<int>(getpid());
  mine.version = crossfade_version();
  mine.spec_hash = row.spec_hash;
  mine.threads = options_.threads;
  mine.state = "begins";
  registration_.emplace(session_, setup_.id, std::move(mine));
  log::write(log::Level::info, "worker_joined",
             {{"migration", row.name}, {"worker", std::to_string(registration_->id())}});
}

// Two programs that do not agree on what a spec says, or on the statements of a chunk, must not work on one
// table.
void Work::require_same(const MigrationRow& leader, const std::string& runner_version) {
  if (!runner_version.empty() && series(runner_version) != series(crossfade_version())) {
    throw Error(ErrorCode::worker_mismatch,
                fmt::format("the runner of {} on {} is version {}, this worker is version {}", leader.name,
                            leader.runner_host, runner_version, crossfade_version()),
                "use the same version everywhere", leader.name);
  }
  const auto hash = spec_hash(session_, parse_spec(leader.spec_text, "the stored spec"));
  if (hash == leader.spec_hash) return;
  throw Error(ErrorCode::worker_mismatch,
              fmt::format("this worker reads the spec of {} as {}, it was started as {}", leader.name,
                          hash.substr(0, 12), leader.spec_hash.substr(0, 12)),
              "use the version that started it", leader.name);
}

Work::View Work::look() {
  View view;
  view.group = load_group(session_, setup_.id);
  const auto& leader = view.group.front();
  const auto phase = leader.row.phase;
  report_.phase = phase;
  report_.status = leader.row.status;
  const auto runner = runner_of(session_, setup_.id);
  if (runner.alive) {
    require_same(leader.row, runner.version);
    view.threads_of_runner = StateStore(session_).tuning(leader.row.id, leader.spec.tuning).workers;
  }
  if (is_closed(phase)) {
    view.ended = fmt::format("the migration is closed ({})", to_text(phase));
    return view;
  }
  // The members first, as the runner works.
  for (std::size_t i = 1; i <= view.group.size(); ++i) {
    const auto& m = view.group[i % view.group.size()];
    if (auto pass = open_pass(session_, m.row.id)) view.open.push_back({&m, std::move(*pass)});
  }
  if (view.open.empty()) {
    const bool before = phase == Phase::planned || phase == Phase::dry_run;
    const bool sweeps = phase == Phase::backfill || phase == Phase::compare;
    const auto done = [&](const Migration& m) { return swept(session_, m.row); };
    if (!before && !sweeps) {
      view.ended = fmt::format("phase {} sweeps nothing", to_text(phase));
    } else if (sweeps && std::ranges::all_of(view.group, done)) {
      view.ended = fmt::format("the sweep of {} is done", to_text(phase));
    }
    if (!view.ended.empty()) return view;
  }
  if (leader.row.status == Status::paused) {
    view.waits = "paused: " + leader.row.reason;
  } else if (leader.row.status == Status::failed) {
    view.waits = fmt::format("phase {} has failed: {}", to_text(phase), leader.row.reason);
  } else if (!runner.alive) {
    view.waits = fmt::format("nobody runs it; 'crossfade next {}' does", leader.row.name);
  } else if (!runner.asks_for.empty()) {
    // A way back from a sweep that is not over: its attempts for the table lock must not meet our chunks.
    view.waits = fmt::format("the migration is on its way to {}", runner.asks_for);
  } else if (view.open.empty()) {
    view.waits = fmt::format("no sweep is open in {}", to_text(phase));
  }
  return view;
}

void Work::check() const {
  if (!setup_.stop->load()) return;
  throw Error(ErrorCode::interrupted, "interrupted; nothing is lost",
              "the others go on; run it again to join");
}

void Work::report(const Migration& m, std::int64_t pass, const std::string& note) {
  if (setup_.listener == nullptr) return;
  const auto totals = unit_totals(session_, pass);
  setup_.listener->on_progress({m.row.name, m.row.phase, totals.rows_read,
                                estimated_rows(session_, m.row.table_oid),
                                fmt::format("units {}/{}{}", totals.done, totals.total, note)});
}

void Work::wait(const View& view) {
  registration_->touch("waits: " + view.waits);
  if (setup_.listener != nullptr && told_ != view.waits) setup_.listener->on_notice("waiting: " + view.waits);
  told_ = view.waits;
  listener_.wait(kBetweenLooks);
}

// A phase change or a takeover makes any statement fail or come too late; it is not the worker's to judge.
bool Work::moved_on(const Migration& m) {
  const auto now = StateStore(session_).get(m.row.id);
  return now.token != m.row.token || now.phase != m.row.phase || now.status != m.row.status;
}

// As the runner would have: under its token, so that nothing happens when there is another one by now.
void Work::fail_the_phase(const Migration& m, const Error& error) {
  if (error.code() != ErrorCode::too_many_rejects && error.code() != ErrorCode::rows_suppressed) return;
  const auto reason = m.row.leader ? m.row.table.display() + ": " + error.message() : error.message();
  try {
    change_status(session_, setup_.id, Event::fail, reason, m.row.token);
  } catch (const Error& late) {
    if (late.code() != ErrorCode::superseded) throw;
  }
}

namespace {
// All that a sweep presents.
std::string key_of(const Migration& m, const PassRow& pass) {
  return fmt::format("{} {} {} {}", m.row.id.text, pass.id, m.row.token.text, to_text(m.row.phase));
}
}  // namespace

// Sessions and units of a sweep that is over, or of a token that counts no more, are let go.
void Work::keep_only(const View& view) {
  std::erase_if(sweeps_, [&](const auto& entry) {
    const bool open = std::ranges::any_of(
        view.open, [&](const View::Open& o) { return key_of(*o.migration, o.pass) == entry.first; });
    if (open) return false;
    report_.rows_read += entry.second->rows_seen();
    report_.rows_written += entry.second->rows_written();
    return true;
  });
}

Sweep& Work::sweep_of(const Migration& m, const PassRow& pass) {
  auto& sweep = sweeps_[key_of(m, pass)];
  if (sweep) return *sweep;
  // worker-1 of process 7 is work-7-1: who watches the server sees whose it is.
  const auto connect = [this, process = registration_->id()](const std::string& role) {
    return setup_.connect(fmt::format("work-{}{}", process, role.substr(role.rfind('-'))));
  };
  sweep = std::make_unique<Sweep>(m, current_table(session_, m), m.row.token, pass, connect, cache_);
  return *sweep;
}

void Work::sweep(const View& view) {
  for (const auto& [migration, pass] : view.open) {
    const auto& m = *migration;
    SweepState state{};
    std::string waiting, pace;
    try {
      auto& sweep = sweep_of(m, pass);
      auto tuning = StateStore(session_).tuning(m.row.id, m.spec.tuning);
      tuning.workers = options_.threads;
      const auto order = read_pace_order(session_, setup_.id, m.row.token);
      pace = order.note();
      if (order.state == PaceState::paused) {
        registration_->touch("waits: " + pace);
        report(m, pass.id, ", " + pace);
        listener_.wait(kBetweenLooks);
        return;
      }
      tuning.rows_per_second = order.limit(tuning);
      sweep.share_rate_with(view.threads_of_runner + live_worker_threads(session_, setup_.id) -
                            options_.threads);
      state = sweep.run(tuning, kSlice, *setup_.stop);
      waiting = sweep.waiting_for();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::connection_lost) throw;
      sweeps_.clear();
      if (moved_on(m)) return;
      fail_the_phase(m, error);
      throw;
    }
    const bool at_bounds = state == SweepState::at_bounds;
    const std::string note =
        (at_bounds ? std::string(", every open one is taken") : "") + (pace.empty() ? "" : ", " + pace);
    registration_->touch(fmt::format("sweeps {} ({}){}", m.row.table.display(), pass.kind, note));
    report(m, pass.id, note + (waiting.empty() ? "" : " waiting: " + waiting));
    if (state == SweepState::held) return;
    if (!at_bounds) {
      told_.clear();
      return;
    }
  }
  listener_.wait(milliseconds(100));
}

WorkReport Work::run() {
  while (true) {
    check();
    const auto view = look();
    report_.ended = view.ended;
    keep_only(view);
    if (!view.ended.empty()) return report_;
    if (view.waits.empty()) {
      sweep(view);
    } else {
      // Its sessions hold nothing between two chunks, and units that it leaves are free when it is gone.
      wait(view);
    }
  }
}

}  // namespace crossfade

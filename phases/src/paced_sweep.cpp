#include "crossfade/phases/paced_sweep.hpp"

#include <fmt/format.h>

#include <thread>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/core/worker_rows.hpp"
#include "crossfade/shadow/units.hpp"
#include "handlers.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {

// note: what is said of the pace.
SweepState run_paced(PhaseEnv& env, const Migration& m, Sweep& sweep, PaceGovernor& governor,
                     milliseconds slice, std::string& note) {
  const auto until = std::chrono::steady_clock::now() + slice;
  auto tuning = StateStore(env.session).tuning(m.row.id, m.spec.tuning);
  auto order = governor.order();
  note = order.note();
  while (order.state == PaceState::paused) {
    if (env.stop) return SweepState::stopped;
    if (std::chrono::steady_clock::now() >= until) return SweepState::working;
    std::this_thread::sleep_for(milliseconds(20));
    order = governor.order();
  }
  sweep.share_rate_with(live_worker_threads(env.session, m.row.leader.value_or(m.row.id)));
  failpoint::hit("sweep.slice");
  tuning.rows_per_second = order.limit(tuning);
  return sweep.run(tuning, slice, env.stop);
}

std::string in_words(const PassRow& pass, const UnitTotals& totals, const std::string& waiting) {
  const auto waits = waiting.empty() ? "" : " waiting: " + waiting;
  if (pass.kind == "catch_up") return fmt::format("catch_up: {} rows left", totals.leftovers) + waits;
  const auto units = fmt::format("units {}/{}", totals.done, totals.total);
  if (pass.kind == "backfill") return units + waits;
  return fmt::format("{}: {}, {} rows written", pass.kind, units, totals.rows_written);
}

}  // namespace

StepResult PacedSweep::slice(PhaseEnv& env, const Migration& m, const PassRow& pass, milliseconds slice) {
  require_key(env.session, m);
  if (!sweep_ || sweep_->pass().id != pass.id) {
    sweep_ =
        std::make_unique<Sweep>(m, current_table(env.session, m), env.token, pass, env.connect, env.cache);
  }
  if (!governor_) {
    governor_ = std::make_unique<PaceGovernor>(
        PaceGovernor::Setup{env.connect, &env.cache, m, current_table(env.session, m), env.token});
  }
  std::string pace;
  const auto state = run_paced(env, m, *sweep_, *governor_, slice, pace);
  const auto totals = unit_totals(env.session, pass.id);
  env.progress(totals.rows_read, -1,
               in_words(pass, totals, sweep_->waiting_for()) + (pace.empty() ? "" : " " + pace));
  switch (state) {
    case SweepState::at_bounds:
      return {StepResult::Kind::settled, {}, {}};
    case SweepState::held:
      return {StepResult::Kind::held, {}, {}};
    case SweepState::rewritten:
      // The units' blocks are of a storage that is gone. Nothing is written any more; the watch over the
      // fingerprint says what happened.
      return {StepResult::Kind::again, {}, milliseconds(50)};
    case SweepState::working:
    case SweepState::stopped:
      break;
  }
  return {StepResult::Kind::again, {}, {}};
}

void PacedSweep::end() {
  sweep_.reset();
  governor_.reset();
}

}  // namespace crossfade

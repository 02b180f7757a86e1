#include "crossfade/phases/paced_sweep.hpp"

#include <thread>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/worker_rows.hpp"

namespace crossfade {

SweepState run_paced(PhaseEnv& env, const Migration& m, Sweep& sweep, std::unique_ptr<PaceGovernor>& governor,
                     const Tuning& tuning, std::chrono::milliseconds slice, std::string& note) {
  if (!governor) {
    governor = std::make_unique<PaceGovernor>(
        PaceGovernor::Setup{env.connect, &env.cache, m, current_table(env.session, m), env.token});
  }
  const auto until = std::chrono::steady_clock::now() + slice;
  auto order = governor->order();
  note = order.note();
  while (order.state == PaceState::paused) {
    if (env.stop) return SweepState::stopped;
    if (std::chrono::steady_clock::now() >= until) return SweepState::working;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    order = governor->order();
  }
  sweep.share_rate_with(live_worker_threads(env.session, m.row.leader.value_or(m.row.id)));
  failpoint::hit("sweep.slice");
  auto paced = tuning;
  paced.rows_per_second = order.limit(tuning);
  return sweep.run(paced, slice, env.stop);
}

}  // namespace crossfade

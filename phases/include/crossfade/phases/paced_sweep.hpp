// A sweep at the pace that the controller allows, slice by slice.
#pragma once

#include <memory>

#include "crossfade/phases/phase_handler.hpp"
#include "crossfade/shadow/pace_governor.hpp"
#include "crossfade/shadow/sweep.hpp"

namespace crossfade {

class PacedSweep {
 public:
  // A slice of `pass`, by a sweep that is made when there is none of that pass; the controller starts with
  // the first. While it says wait, nothing is swept, and the slice ends as one in which there is more to do.
  // The rate is shared with the processes that joined. Reports progress. settled: every unit is at its
  // bound; the caller ends the pass, and the sweep with it.
  StepResult slice(PhaseEnv& env, const Migration& migration, const PassRow& pass,
                   std::chrono::milliseconds slice);
  // Lets go of the sweep's sessions and units, and of the controller.
  void end();

 private:
  std::unique_ptr<Sweep> sweep_;
  std::unique_ptr<PaceGovernor> governor_;
};

}  // namespace crossfade

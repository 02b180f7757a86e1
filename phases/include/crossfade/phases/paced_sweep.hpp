// A slice of a sweep at the pace that the controller allows.
#pragma once

#include <memory>
#include <string>

#include "crossfade/phases/phase_handler.hpp"
#include "crossfade/shadow/pace_governor.hpp"
#include "crossfade/shadow/sweep.hpp"

namespace crossfade {

// Starts the controller with the first slice; whoever ends the sweep lets go of `governor`. While the
// controller says wait, nothing is swept, and the slice ends as one in which there is more to do. The rate is
// shared with the processes that joined. note: what is said of the pace in the progress line.
SweepState run_paced(PhaseEnv& env, const Migration& migration, Sweep& sweep,
                     std::unique_ptr<PaceGovernor>& governor, const Tuning& tuning,
                     std::chrono::milliseconds slice, std::string& note);

}  // namespace crossfade

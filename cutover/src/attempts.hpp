// Lock attempts for one phase change: bounded in number, polite about who holds the table, measured.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "pause_sampler.hpp"
#include "transition.hpp"

namespace crossfade {

struct Attempt {
  std::optional<TransitionResult> result;
  std::string missed;  // why the lock was not got
  AttemptCost cost;
};

// Repeats `attempt_once` until it gives a result. Throws lock_attempts_exhausted, request_cancelled,
// interrupted, and what it throws itself.
TransitionResult with_lock_attempts(PhaseEnv& env, const TransitionRequest& request,
                                    const std::vector<Migration>& group, const std::string& to,
                                    const std::function<Attempt(int number, PauseSampler&)>& attempt_once);

}  // namespace crossfade

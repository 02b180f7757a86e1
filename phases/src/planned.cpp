// planned: registered and bound; nothing in the user's schema. Its guard is the preflight, which runs again
// here because the table may have changed since start.
#include "handlers.hpp"

#include "crossfade/core/catalog.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

StepResult PlannedHandler::step(PhaseEnv&, const Migration&, std::chrono::milliseconds) {
  return {StepResult::Kind::settled, {}, {}};
}

std::vector<Blocker> PlannedHandler::exit_blockers(PhaseEnv& env, const Migration& m) {
  auto blockers = preflight_blockers(env.session, m);
  for (auto& blocker : dependent_blockers(env, m)) blockers.push_back(std::move(blocker));
  return blockers;
}

Crossing PlannedHandler::enter(PhaseEnv&, const Migration&) { return {}; }

// Closing: the bound functions go with it.
Crossing PlannedHandler::leave_back(PhaseEnv&, const Migration& m) {
  Crossing crossing;
  crossing.statements = drop_functions_sql(m.binding.column);
  return crossing;
}

}  // namespace crossfade

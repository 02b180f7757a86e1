// Every statement of every phase, for `plan`, composed by the functions that send them. What is written to
// schema crossfade alone and what only reads the catalog is left out.
#pragma once

#include <vector>

#include "crossfade/cutover/migrator.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "registration.hpp"

namespace crossfade {

// Requires: an open transaction in which the migration and its ledger are stored.
std::vector<PlannedStatement> planned_statements(PhaseEnv& env, const Registration& registration);

}  // namespace crossfade

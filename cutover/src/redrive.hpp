// Sweeping again what was swept: a pass of its own, which the runner drives before the phase's own work.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "crossfade/cutover/migrator.hpp"
#include "crossfade/phases/paced_sweep.hpp"
#include "crossfade/phases/phase_handler.hpp"

namespace crossfade {

// Throws unknown_unit when there is no such unit or key; changes nothing.
void check_redrive(SqlSession& session, const Migration& migration, const QualifiedName& table,
                   const RedriveOptions& options);

// Opens the pass for one migration, after its comparisons were given up. nullopt: no row lies there.
// Requires: the runner's lease, and status running. Throws unknown_unit.
std::optional<PassRow> open_redrive(SqlSession& session, const Migration& migration,
                                    const QualifiedName& table, const RedriveOptions& options);

// A function that the forward expression reaches was replaced, and nothing else of what the capture rests on
// has changed: the fingerprint is taken anew, since everything is swept with the function as it is now.
// Throws fingerprint_changed when there is more to it. Requires: the runner's lease.
void accept_replaced_functions(SqlSession& session, const Migration& migration);

// A slice of an open redrive; nullopt: none is open. Never settled: the phase's own work comes after it.
class Redriver {
 public:
  std::optional<StepResult> step(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice);

 private:
  PacedSweep sweep_;
};

}  // namespace crossfade

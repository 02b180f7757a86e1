// The phase machine. One transition table (Boost.MSM, one source file) is the only description of what is
// legal; diagrams, --help, status and docs/phases.md come from transition_table().
//
// A fresh machine is restored from the locked row for every event and discarded: memory never leads.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "crossfade/core/phase.hpp"

namespace crossfade {

enum class Event {
  advance,   // enter the next phase
  rollback,  // go one phase back
  pause,     // an operator holds the phase
  resume,    // the hold ends
  settle,    // the phase's work is done
  fail,      // the phase's work cannot go on without an operator
  retry,     // a failed phase tries again
};
std::string_view to_text(Event event);
std::optional<Event> event_from_text(std::string_view text);

// What the machine asks of the world. Called inside the transaction that holds the migration row.
class MachineWorld {
 public:
  virtual ~MachineWorld() = default;
  // Guards of phase changes: a plain answer, no side effect. Why not is the implementer's to remember.
  virtual bool gate_open(Phase from, Phase to) = 0;
  // Actions of phase changes: compose the effect of leaving `from` for `to`. May throw; the transaction rolls
  // back.
  virtual void cross(Phase from, Phase to) = 0;
};

enum class Verdict {
  handled,  // phase and status below are the new ones
  illegal,  // the table has no row for this event here (status or phase)
  refused,  // gate_open answered no
};

struct Outcome {
  Verdict verdict;
  Phase phase;
  Status status;
};

// Restores a machine at (phase, status), fires the event, reads the result. Exceptions of `world` keep their
// type.
Outcome fire(MachineWorld& world, Phase phase, Status status, Event event);

// One row of the table as data. `to` is empty for internal transitions (pause, resume, settle, fail, retry).
struct TransitionRow {
  Phase from;
  Event event;
  std::optional<Phase> to;
  std::string_view guard;   // "" when unguarded
  std::string_view action;  // "" when none
};
std::span<const TransitionRow> transition_table();

// Renderings of the table, ending in a newline.
std::string machine_markdown();
std::string machine_mermaid();
std::string machine_dot();
std::string machine_text();  // aligned, for a terminal

}  // namespace crossfade

// The phases and statuses of a migration, and the named questions that may be asked of them.
// The enumerator, the database text, the command-line word and the JSON value are one string.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace crossfade {

enum class Phase {
  planned,      // registered: spec validated, expressions bound and hashed; nothing in the user's schema
  dry_run,      // the whole table is read and profiled; nothing in the user's schema
  backfill,     // shadow column and forward capture are installed; the sweep fills the shadow
  dual_write,   // every row is in step; twins of what hangs on the column are built
  compare,      // replay and the full comparison by an independent path
  switched,     // the new column carries the name; the old one is kept in step backwards
  dropped,      // closed: the old column is gone
  rolled_back,  // closed: the table is as it was
};

enum class Status {
  running,  // has work left; a runner may be driving it or not
  paused,   // an operator holds it
  settled,  // its work is done and its exit conditions held
  failed,   // an operator must act; `next` re-checks the cause first
};

enum class Mode { swap, promote };

inline constexpr std::array<Phase, 8> kAllPhases{Phase::planned,    Phase::dry_run,    Phase::backfill,
                                                 Phase::dual_write, Phase::compare,    Phase::switched,
                                                 Phase::dropped,    Phase::rolled_back};
inline constexpr std::array<Status, 4> kAllStatuses{Status::running, Status::paused, Status::settled,
                                                    Status::failed};

std::string_view to_text(Phase phase);
std::string_view to_text(Status status);
std::string_view to_text(Mode mode);
std::optional<Phase> phase_from_text(std::string_view text);
std::optional<Status> status_from_text(std::string_view text);

// dropped and rolled_back: no event is legal any more.
bool is_closed(Phase phase);
// The phase that `next` enters from here; none for closed phases.
std::optional<Phase> next_phase(Phase phase);
// The phase that `rollback` enters from here; none for closed phases.
std::optional<Phase> rollback_phase(Phase phase);
// True when a comes before b on the way planned … dropped. False for rolled_back on either side.
bool precedes(Phase a, Phase b);
// Shadow column and triggers exist in the user's table (backfill up to and including switched).
bool has_capture(Phase phase);
// The new column carries the public name.
bool new_column_is_public(Phase phase);

}  // namespace crossfade

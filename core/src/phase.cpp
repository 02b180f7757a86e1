#include "crossfade/core/phase.hpp"

#include <cstdlib>

namespace crossfade {

namespace {

// Position on the way planned … dropped; none for rolled_back, which lies on no way forward.
std::optional<int> position(Phase phase) {
  switch (phase) {
    case Phase::planned:
      return 0;
    case Phase::dry_run:
      return 1;
    case Phase::backfill:
      return 2;
    case Phase::dual_write:
      return 3;
    case Phase::compare:
      return 4;
    case Phase::switched:
      return 5;
    case Phase::dropped:
      return 6;
    case Phase::rolled_back:
      return std::nullopt;
  }
  std::abort();
}

}  // namespace

std::string_view to_text(Phase phase) {
  switch (phase) {
    case Phase::planned:
      return "planned";
    case Phase::dry_run:
      return "dry_run";
    case Phase::backfill:
      return "backfill";
    case Phase::dual_write:
      return "dual_write";
    case Phase::compare:
      return "compare";
    case Phase::switched:
      return "switched";
    case Phase::dropped:
      return "dropped";
    case Phase::rolled_back:
      return "rolled_back";
  }
  std::abort();
}

std::string_view to_text(Status status) {
  switch (status) {
    case Status::running:
      return "running";
    case Status::paused:
      return "paused";
    case Status::settled:
      return "settled";
    case Status::failed:
      return "failed";
  }
  std::abort();
}

std::string_view to_text(Mode mode) {
  switch (mode) {
    case Mode::swap:
      return "swap";
    case Mode::promote:
      return "promote";
  }
  std::abort();
}

std::optional<Phase> phase_from_text(std::string_view text) {
  for (const Phase phase : kAllPhases) {
    if (to_text(phase) == text) return phase;
  }
  return std::nullopt;
}

std::optional<Status> status_from_text(std::string_view text) {
  for (const Status status : kAllStatuses) {
    if (to_text(status) == text) return status;
  }
  return std::nullopt;
}

bool is_closed(Phase phase) {
  switch (phase) {
    case Phase::planned:
    case Phase::dry_run:
    case Phase::backfill:
    case Phase::dual_write:
    case Phase::compare:
    case Phase::switched:
      return false;
    case Phase::dropped:
    case Phase::rolled_back:
      return true;
  }
  std::abort();
}

std::optional<Phase> next_phase(Phase phase) {
  switch (phase) {
    case Phase::planned:
      return Phase::dry_run;
    case Phase::dry_run:
      return Phase::backfill;
    case Phase::backfill:
      return Phase::dual_write;
    case Phase::dual_write:
      return Phase::compare;
    case Phase::compare:
      return Phase::switched;
    case Phase::switched:
      return Phase::dropped;
    case Phase::dropped:
    case Phase::rolled_back:
      return std::nullopt;
  }
  std::abort();
}

std::optional<Phase> rollback_phase(Phase phase) {
  switch (phase) {
    case Phase::planned:
      return Phase::rolled_back;
    case Phase::dry_run:
      return Phase::planned;
    case Phase::backfill:
      return Phase::dry_run;
    case Phase::dual_write:
      return Phase::backfill;
    case Phase::compare:
      return Phase::dual_write;
    case Phase::switched:
      return Phase::compare;
    case Phase::dropped:
    case Phase::rolled_back:
      return std::nullopt;
  }
  std::abort();
}

bool precedes(Phase a, Phase b) {
  const std::optional<int> left = position(a);
  const std::optional<int> right = position(b);
  return left && right && *left < *right;
}

bool has_capture(Phase phase) {
  switch (phase) {
    case Phase::backfill:
    case Phase::dual_write:
    case Phase::compare:
    case Phase::switched:
      return true;
    case Phase::planned:
    case Phase::dry_run:
    case Phase::dropped:
    case Phase::rolled_back:
      return false;
  }
  std::abort();
}

bool new_column_is_public(Phase phase) {
  switch (phase) {
    case Phase::switched:
    case Phase::dropped:
      return true;
    case Phase::planned:
    case Phase::dry_run:
    case Phase::backfill:
    case Phase::dual_write:
    case Phase::compare:
    case Phase::rolled_back:
      return false;
  }
  std::abort();
}

}  // namespace crossfade

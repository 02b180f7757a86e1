// A dry run or a comparison at the pace that the controller allows, slice by slice.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "crossfade/phases/phase_handler.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/pace.hpp"
#include "crossfade/shadow/pace_governor.hpp"
#include "crossfade/shadow/profile.hpp"

namespace crossfade {

class PacedRead {
 public:
  // Reads for a slice; true at the end of the pass.
  using Read = std::function<bool(const ReadCrew& crew, std::chrono::milliseconds slice)>;
  // The controller starts with the second slice. While it says wait, nothing is read, and the slice ends as
  // one in which there is more to do. `note`: what is said of the pace. A slice is twice as long as the one
  // that is given, so that a range has room in it.
  bool slice(PhaseEnv& env, const Migration& migration, std::chrono::milliseconds slice, std::string& note,
             const Read& read);
  // Lets go of the controller.
  void end();

 private:
  bool began_ = false;
  std::unique_ptr<PaceGovernor> governor_;
  std::mutex cache_mutex_;
  std::unique_ptr<Pace> pace_;
};

// Comparisons of one migration: what the reader has learnt and its sessions are kept from slice to slice.
class PacedComparison {
 public:
  // A slice of the running pass, or of a new one. True when it has ended. Another migration, or a pass that
  // was voided meanwhile, is begun with anew.
  bool slice(PhaseEnv& env, const Migration& migration, CompareDirection direction,
             std::chrono::milliseconds slice);

 private:
  PacedRead paced_;
  bool goes_on(PhaseEnv& env, const Migration& migration, CompareDirection direction);
  MigrationId of_{};
  std::string table_;  // as it was called
  std::unique_ptr<Comparator> comparator_;
  std::optional<PassRow> pass_;
};

}  // namespace crossfade

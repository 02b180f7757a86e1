// Where the tests of kill_test.cpp kill the program: all of them together are every failpoint that it has.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/phase.hpp"

namespace crossfade::test {

inline constexpr std::string_view kMoments[] = {"before", "locked", "sent"};

inline std::string kill_point(Phase from, Phase to, std::string_view moment) {
  return fmt::format("{}_to_{}.{}", to_text(from), to_text(to), moment);
}

// The phases in the order in which a life leads through them.
inline const std::vector<Phase> kThere{Phase::planned, Phase::dry_run,  Phase::backfill, Phase::dual_write,
                                       Phase::compare, Phase::switched, Phase::dropped};
inline const std::vector<Phase> kBack{Phase::switched, Phase::compare, Phase::dual_write, Phase::backfill,
                                      Phase::dry_run,  Phase::planned, Phase::rolled_back};

inline const std::vector<std::string> kAtStart{"start.before", "start.registered"};
inline const std::vector<std::string> kInEveryPhase{"lease.acquired", "settle.before", "settle.after"};
inline const std::vector<std::string> kInDryRun{"dry_run.flushed"};
inline const std::vector<std::string> kInChunk{"chunk.before", "chunk.bounded", "chunk.after"};
inline const std::vector<std::string> kInBackfill{"units.planned", "sweep.slice"};
inline const std::vector<std::string> kInWindow{"window.opened"};
inline const std::vector<std::string> kAfterARewrite{"rewrite.planned", "rewrite.followed"};
inline const std::vector<std::string> kAtLeftovers{"catch_up.before", "catch_up.opened"};
inline const std::vector<std::string> kInDualWrite{"twin.intent", "twin.built"};
inline const std::vector<std::string> kInCompare{"units.planned", "chunk.after",     "replay.ended",
                                                 "compare.range", "compare.flushed", "compare.ended"};
inline const std::vector<std::string> kInSwitched{"compare.range", "compare.flushed", "compare.ended"};
// At which WayBackKillTest kills: on a way back from switched, when it is given up, and after a builder that
// died.
inline const std::vector<std::string> kInWayBack{"owed.counted", "way_back.proof", "way_back.prepared"};
inline const std::vector<std::string> kInGivingUp{"way_back.unproved", "owed.dropping", "owed.dropped"};
inline const std::vector<std::string> kAtLeftoverIndex{"leftover.dropping", "leftover.dropped"};
// At which ArchiveTest kills.
inline const std::vector<std::string> kInArchive{"archive.chunk", "archive.replay"};
inline const std::vector<std::string> kInRepair{"repair.after"};
// At which WorkersTest and RedriveTest kill.
inline const std::vector<std::string> kInSplit{"split.before", "split.after"};
// At which GroupTest kills.
inline const std::vector<std::string> kAtForerunners{"forerunner.step"};
inline const std::vector<std::string> kInRedrive{"redrive.opening", "redrive.opened"};

}  // namespace crossfade::test

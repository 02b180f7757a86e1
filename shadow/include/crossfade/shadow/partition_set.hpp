// Partitions that come and go while a migration is open. The fingerprint tells of them like of any change;
// these are the ones that are answered by work and not by failing.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct PartitionChanges {
  std::vector<std::string> added, removed;  // as SQL shows them; one that was attached anew is in both
  std::vector<Oid> arrived;                 // the added ones
  bool only = false;                        // nothing else differs
};
// Of two fingerprints of a partitioned table.
PartitionChanges partition_changes(const std::string& before, const std::string& after);

// Every arrived partition is an ordinary or partitioned table with the whole capture, so that what is written
// to it from now on is carried.
bool have_capture(SqlSession& session, const Migration& migration, const std::vector<Oid>& arrived);

// Makes `now` the fingerprint of the migration, and what follows from the change, in one transaction: until
// compare a running sweep gets units for the arrived leaves and loses those of the removed ones, or a
// catch_up is opened for them; replays and comparisons are void. The action is written with it. Requires:
// changes.only, have_capture. False when the migration was changed meanwhile by another runner.
bool follow_partitions(SqlSession& session, const Migration& migration, const PartitionChanges& changes,
                       const std::string& now, const std::string& operator_name, const std::string& host);

}  // namespace crossfade

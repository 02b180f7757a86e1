// In how many visits the next window is swept. More than one makes room on each page before the rest of its
// rows are rewritten, so that their new versions stay there (heap-only tuples): no index gets an entry, and
// the table does not double. It helps only where the room of one visit is free before the next, and is off
// where it is not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct InterleaveFacts {
  int tuned = 0;       // tuning key interleave; 0: auto
  bool writes = true;  // a replay should write nothing
  bool shadow_is_indexed = false;
  std::int64_t blocks = 0;  // of the table
  double rows_per_page = 0;
  std::int64_t indexes = 0;
  double free_share = 0;      // of each page, left free by the fillfactor
  bool follows_pages = true;  // rows that are swept one after the other lie beside each other
  // Of somebody whose snapshot is older than the last window; empty: nobody.
  std::string old_snapshot = {};
  // Of the rows that the last window wrote, those whose new version stayed on its page.
  std::optional<double> hot_share = {};
};

struct Interleave {
  int visits = 1;
  std::string reason;  // in words, for status
  bool operator==(const Interleave&) const = default;
};

Interleave choose_interleave(const InterleaveFacts& facts);

// What does not change during a pass.
struct PageFacts {
  bool shadow_is_indexed = false, tracks_counts = true;
  std::int64_t blocks = 0;
  double rows_per_page = 0, free_share = 0;
  std::int64_t indexes = 0;
};
// Reads a few pages in the middle of a table that was never analyzed.
PageFacts read_page_facts(SqlSession& session, const Migration& migration, Oid relation,
                          const QualifiedName& table);

// Who keeps dead rows from being removed since before transaction `mark` (xid8): the oldest snapshot of
// another session in this database, prepared transaction or replication slot, in words. A session that the
// role may not look at is not seen; that its snapshot is old shows in the share of heap-only updates.
struct SnapshotAge {
  std::string now;     // xid8: the next transaction
  std::string holder;  // of a snapshot older than the mark; empty: nobody
};
SnapshotAge read_snapshot_age(SqlSession& session, const std::optional<std::string>& mark);

}  // namespace crossfade

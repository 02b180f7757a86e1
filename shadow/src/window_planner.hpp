// When a worker opens a window, and of how many rows: from the pages of the table, from the snapshots that
// others hold, and from what its last window achieved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossfade/shadow/comparator.hpp"
#include "interleave.hpp"

namespace crossfade {

// So many commits of a worker lie between two of its visits of one page.
inline constexpr std::int64_t kPieces = 10;

class WindowPlanner {
 public:
  // Whether it is time to decide anew: between windows, and now and then while sweeping without one.
  bool is_due() const { return plain_chunks_left_ <= 0; }
  // What the next window should be. Reads the catalog, and who has a snapshot.
  Interleave decide(SqlSession& session, const Migration& migration, Oid relation, const QualifiedName& table,
                    const PassRow& pass, int tuned);
  // Rows of a piece, so that a unit has room for a window of ten.
  std::int64_t piece_rows(std::int64_t wanted) const;
  std::int64_t rows_to_blocks(std::int64_t rows) const;
  std::int64_t blocks_to_rows(std::int64_t blocks) const;

  void chunk_done(std::int64_t written, std::int64_t hot, bool windowed);
  void window_opened() { written_ = hot_ = 0; }
  void window_given_up();

 private:
  void read_facts(SqlSession& session, const Migration& migration, Oid relation, const QualifiedName& table,
                  const PassRow& pass);
  std::optional<std::string> mark_of_a_window_ago(const Migration& migration) const;

  std::optional<PageFacts> pages_;  // of relation_
  Oid relation_;
  bool follows_pages_ = true;
  std::int64_t rows_per_unit_ = 0;
  std::int64_t plain_chunks_left_ = 0;
  std::int64_t chunks_ = 0;
  std::int64_t written_ = 0, hot_ = 0;  // in the last window
  bool in_window_ = false;
  std::vector<std::pair<std::int64_t, std::string>> marks_;  // after how many chunks, which transaction
};

}  // namespace crossfade

// What of the key space a read pass has still to read, cut into ranges on demand. Knows nothing of sessions
// and threads: who shares it among workers guards it.
//
// How a pass ends although the table grows: the greatest key at its opening bounds what it chases. What lies
// up to that key is read to the last row. Behind it are rows born during the pass, which the capture wrote as
// it writes the rows born behind what was read; the last range reads the first of them, and is recorded as
// open above.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "crossfade/core/ids.hpp"
#include "range_marks.hpp"

namespace crossfade {

// Of the key space, in the order of the key: not yet read, not being read.
struct Stretch {
  KeyRange range;
  RangeMarks known{};
};

// A range in the hands of a worker.
struct Piece {
  KeyRange range;     // what its row will say
  KeyRange read;      // what is read: of the last range, bounded as well
  double rows = 0;    // about as many, as far as anybody knows; 0: unknown
  int processes = 1;  // of the server that may read it at the same time
};

class RangeBoard {
 public:
  // The key of the n-th row of a range; nullopt when it holds fewer.
  using NthKey = std::function<std::optional<Key>(const KeyRange& range, std::int64_t n)>;

  RangeBoard() = default;
  RangeBoard(std::deque<Stretch> open, std::optional<Key> opening_high)
      : open_(std::move(open)), opening_high_(std::move(opening_high)) {}

  bool empty() const { return open_.empty(); }
  bool is_one_stretch() const { return open_.size() == 1; }
  // Of all that is open, where all of it is known.
  std::optional<double> rows_left() const;
  // The first open range, of about `rows` rows; the whole first stretch when it holds hardly more. Fewer than
  // kCounted rows are counted through the index, more are cut at a mark where one is near. What `nth` throws
  // leaves the board as it was.
  std::optional<Piece> take(std::int64_t rows, const NthKey& nth);
  // Was not read: it is open again, before the others.
  void give_back(Piece piece);

  static constexpr std::int64_t kCounted = 20'000;

 private:
  std::optional<Piece> cut_at_mark(Stretch& stretch, double rows);
  Piece cut_at(Stretch& stretch, Key high);
  Piece take_whole(std::int64_t rows, const NthKey& nth);

  std::deque<Stretch> open_;
  std::optional<Key> opening_high_;  // absent: the table was empty
};

}  // namespace crossfade

// Where the sweep of a unit stands: the watermark, and the way through the open window. Pure; durable in
// crossfade.unit, where only the statement that wrote the rows moves it.
//
// A window is a stretch of the unit behind the watermark, cut into pieces and swept in several visits: first
// every piece for the first share of its rows, then every piece for the second, and so on, so that all other
// pieces (each a commit) lie between two visits of one page. Without a window a chunk takes all rows of its
// range, and the watermark follows it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "crossfade/core/ids.hpp"

namespace crossfade {

// What bounds are made of. A bound of blocks is a key of one part, the number of the first block behind it.
enum class RangeBy { key, block };
std::int64_t block_of(const Key& bound);
Key block_bound(std::int64_t block);

// The rows that one visit takes: those whose line pointer's number modulo `modulus` is from `first` to
// `last`.
struct RowShare {
  int modulus = 1, first = 0, last = 0;
  bool operator==(const RowShare&) const = default;
};

struct SweepPosition {
  std::optional<Key> watermark;  // everything up to here is done or set aside; absent: not begun
  std::vector<Key> window;       // where its pieces end; empty: no window is open
  int visits = 0;                // of the open window; the last one takes every row, whatever its share
  int visit = 0, piece = 0;      // from 1; 0 without a window
  std::optional<Key> within;     // how far the piece has come in this visit, when it is not taken at once

  bool operator==(const SweepPosition&) const = default;

  bool in_window() const { return !window.empty(); }
  // The next chunk takes one share of the rows only.
  bool takes_a_share() const { return in_window() && visit < visits; }
  // Of the next chunk. Requires: takes_a_share(). With many visits the first takes a double one: new versions
  // are wider than old ones by the new column, so the room that one share leaves is too small for the next.
  RowShare share() const;
  // Where the next chunk begins; absent: at the first row.
  std::optional<Key> low(const std::optional<Key>& unit_low) const;
  // Where the piece at hand ends. Requires an open window.
  const Key& piece_high() const { return window.at(static_cast<std::size_t>(piece) - 1); }

  // After a chunk that ended at `upper`: within the piece, or its bound. Closes the window, and moves the
  // watermark, behind the last piece of the last visit.
  SweepPosition after(const Key& upper) const;
  SweepPosition with_window(std::vector<Key> bounds, int of_visits) const;
  // The window given up: what its visits have written counts for nothing.
  SweepPosition without_window() const;
};

}  // namespace crossfade

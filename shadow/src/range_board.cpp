#include "range_board.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace crossfade {

namespace {

// A rest that is hardly larger is not left for another range.
constexpr double kHardlyMore = 1.25;

double rows_of(const RangeMarks& known) {
  return std::accumulate(known.marks.begin(), known.marks.end(), known.rows_after,
                         [](double sum, const Mark& mark) { return sum + mark.rows; });
}

}  // namespace

std::optional<double> RangeBoard::rows_left() const {
  double rows = 0;
  for (const auto& stretch : open_) {
    if (stretch.known.marks.empty() && stretch.known.rows_after == 0) return std::nullopt;
    rows += rows_of(stretch.known);
  }
  return rows;
}

Piece RangeBoard::cut_at(Stretch& stretch, Key high) {
  Piece piece;
  piece.range = {stretch.range.low, high};
  piece.read = piece.range;
  stretch.range.low = std::move(high);
  return piece;
}

std::optional<Piece> RangeBoard::cut_at_mark(Stretch& stretch, double rows) {
  auto& marks = stretch.known.marks;
  if (marks.empty() || marks.front().rows > 2 * rows) return std::nullopt;
  double taken = 0;
  std::optional<Key> high;
  while (!marks.empty() && (!high || taken + marks.front().rows <= rows)) {
    taken += marks.front().rows;
    high = std::move(marks.front().key);
    marks.pop_front();
  }
  auto piece = cut_at(stretch, std::move(*high));
  piece.rows = taken;
  return piece;
}

Piece RangeBoard::take_whole(std::int64_t rows, const NthKey& nth) {
  auto& stretch = open_.front();
  Piece piece{stretch.range, stretch.range, rows_of(stretch.known)};
  // Rows behind the opening's greatest key are read along, but not chased.
  if (!stretch.range.high) piece.read.high = nth({opening_high_, std::nullopt}, 2 * rows);
  open_.pop_front();
  return piece;
}

std::optional<Piece> RangeBoard::take(std::int64_t rows, const NthKey& nth) {
  if (open_.empty()) return std::nullopt;
  auto& stretch = open_.front();
  auto& marks = stretch.known.marks;
  const auto end = stretch.range.high ? stretch.range.high : opening_high_;
  if (!end || stretch.range.low == end) return take_whole(rows, nth);
  const auto wanted = static_cast<double>(rows);
  const double known = rows_of(stretch.known);
  std::optional<Piece> piece;
  if (rows >= kCounted && known > 0) {
    if (known <= kHardlyMore * wanted) return take_whole(rows, nth);
    piece = cut_at_mark(stretch, wanted);
  }
  if (!piece) {
    // Never past a mark: which of two keys is the greater one only PostgreSQL knows.
    auto high = nth({stretch.range.low, marks.empty() ? end : marks.front().key}, rows);
    if (!high && marks.empty()) return take_whole(rows, nth);
    if (!high || (!marks.empty() && *high == marks.front().key)) {
      high = std::move(marks.front().key);
      marks.pop_front();
    } else if (!marks.empty()) {
      marks.front().rows = std::max(marks.front().rows - wanted, 1.0);
    }
    piece = cut_at(stretch, std::move(*high));
    piece->rows = wanted;
  }
  if (stretch.range.low == stretch.range.high) open_.pop_front();
  return piece;
}

void RangeBoard::give_back(Piece piece) { open_.push_front({std::move(piece.range), {}}); }

}  // namespace crossfade

// How the key space is cut into ranges: whatever the marks say, whatever is given back, the ranges tile it.
#include "range_board.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "range_tempo.hpp"

namespace crossfade {
namespace {

Key key(int n) { return Key{{std::to_string(n)}}; }
int number(const Key& k) { return std::stoi(k.parts[0]); }

// A table whose keys are integers.
class Rows {
 public:
  explicit Rows(std::set<int> keys) : keys_(std::move(keys)) {}
  RangeBoard::NthKey nth() {
    return [this](const KeyRange& range, std::int64_t n) -> std::optional<Key> {
      ++asked_;
      auto row = range.low ? keys_.upper_bound(number(*range.low)) : keys_.begin();
      for (; row != keys_.end(); ++row) {
        if (range.high && *row > number(*range.high)) return std::nullopt;
        if (--n == 0) return key(*row);
      }
      return std::nullopt;
    };
  }
  int in(const KeyRange& range) const {
    return static_cast<int>(std::ranges::count_if(keys_, [&](int k) {
      return (!range.low || k > number(*range.low)) && (!range.high || k <= number(*range.high));
    }));
  }
  const std::set<int>& keys() const { return keys_; }
  int asked() const { return asked_; }

 private:
  std::set<int> keys_;
  int asked_ = 0;
};

std::set<int> up_to(int n) {
  std::set<int> keys;
  for (int i = 1; i <= n; ++i) keys.insert(i);
  return keys;
}

RangeBoard whole(const Rows& rows, RangeMarks known = {}) {
  const auto high = rows.keys().empty() ? std::nullopt : std::optional(key(*rows.keys().rbegin()));
  return RangeBoard({{KeyRange{}, std::move(known)}}, high);
}

TEST(RangeBoardTest, AnEmptyTableIsOneRange) {
  Rows rows({});
  auto board = whole(rows);
  const auto piece = board.take(10, rows.nth());
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->range, (KeyRange{}));
  EXPECT_TRUE(board.empty());
  EXPECT_FALSE(board.take(10, rows.nth()));
}

TEST(RangeBoardTest, SmallRangesAreCountedExactly) {
  Rows rows(up_to(25));
  auto board = whole(rows);
  EXPECT_EQ(board.take(10, rows.nth())->range, (KeyRange{std::nullopt, key(10)}));
  EXPECT_EQ(board.take(10, rows.nth())->range, (KeyRange{key(10), key(20)}));
  EXPECT_EQ(board.take(10, rows.nth())->range, (KeyRange{key(20), std::nullopt}));
  EXPECT_TRUE(board.empty());
}

TEST(RangeBoardTest, LargeOnesAreCutAtMarksWithoutAskingTheServer) {
  Rows rows({1000000});
  RangeMarks known;
  for (int i = 1; i <= 10; ++i) known.marks.push_back({key(i * 100000), 100000});
  auto board = whole(rows, known);
  EXPECT_EQ(board.rows_left(), 1000000);
  EXPECT_EQ(board.take(250000, rows.nth())->range, (KeyRange{std::nullopt, key(200000)}));
  EXPECT_EQ(board.take(300000, rows.nth())->range, (KeyRange{key(200000), key(500000)}));
  EXPECT_EQ(rows.asked(), 0);
  EXPECT_EQ(board.rows_left(), 500000);
  // A rest that is hardly larger than what was asked for is taken along, with what lies behind the table's
  // greatest key.
  const auto rest = board.take(450000, rows.nth());
  EXPECT_EQ(rest->range, (KeyRange{key(500000), std::nullopt}));
  EXPECT_EQ(rest->read, rest->range);
  EXPECT_EQ(rows.asked(), 1);
  EXPECT_TRUE(board.empty());
}

TEST(RangeBoardTest, OfWhatGrowsBehindTheTableOnlySomeRowsAreRead) {
  Rows grown(up_to(1000));
  RangeBoard board({{KeyRange{key(90), std::nullopt}, {}}}, key(100));
  EXPECT_EQ(board.take(10, grown.nth())->range, (KeyRange{key(90), key(100)}));
  const auto last = board.take(10, grown.nth());
  EXPECT_EQ(last->range, (KeyRange{key(100), std::nullopt}));
  EXPECT_EQ(last->read, (KeyRange{key(100), key(120)}));
  EXPECT_TRUE(board.empty());
}

TEST(RangeBoardTest, WhatTheServerRefusesLeavesTheBoardAsItWas) {
  Rows rows(up_to(25));
  auto board = whole(rows);
  const RangeBoard::NthKey refuses = [](const KeyRange&, std::int64_t) -> std::optional<Key> {
    throw std::runtime_error("locked");
  };
  EXPECT_THROW(board.take(10, refuses), std::runtime_error);
  EXPECT_EQ(board.take(10, rows.nth())->range, (KeyRange{std::nullopt, key(10)}));
  EXPECT_THROW(board.take(100, refuses), std::runtime_error);
  EXPECT_EQ(board.take(100, rows.nth())->range, (KeyRange{key(10), std::nullopt}));
}

// Wrong marks, wrong sizes, ranges that come back, gaps of a pass that was broken off.
TEST(RangeBoardTest, WhateverHappensTheRangesTileTheKeySpace) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)) + 1; };
  for (int round = 0; round < 300; ++round) {
    std::set<int> keys;
    for (int i = upto(200); i > 1; --i) keys.insert(upto(1000));
    Rows rows(keys);
    const auto opening = keys.empty() ? std::nullopt : std::optional(key(*keys.rbegin()));
    // What a pass before has read.
    std::vector<KeyRange> read;
    std::deque<Stretch> open;
    std::optional<Key> low;
    for (int at = 0; (at += upto(300)) < (opening ? number(*opening) : 0);) {
      if (random() % 2 == 0)
        read.push_back({low, key(at)});
      else
        open.push_back({{low, key(at)}, {}});
      low = key(at);
    }
    open.push_back({{low, std::nullopt}, {}});
    for (auto& stretch : open) {
      const int from = stretch.range.low ? number(*stretch.range.low) : 0;
      const int to = stretch.range.high ? number(*stretch.range.high) : opening ? number(*opening) : 0;
      std::set<int> marks;
      for (int i = upto(6); i > 1 && to > from; --i) marks.insert(from + upto(to - from));
      for (const int mark : marks)
        stretch.known.marks.push_back({key(mark), static_cast<double>(upto(90000))});
      if (!marks.empty()) stretch.known.rows_after = upto(1000);
    }
    RangeBoard board(open, opening);
    std::vector<Piece> in_hand;
    std::set<int> seen;
    while (!board.empty() || !in_hand.empty()) {
      if (auto piece = board.take(random() % 2 == 0 ? upto(50) : upto(100000), rows.nth()))
        in_hand.push_back(*piece);
      if (in_hand.size() < 3 && !board.empty()) continue;
      const auto pick = static_cast<std::ptrdiff_t>(random() % in_hand.size());
      auto piece = in_hand[static_cast<std::size_t>(pick)];
      in_hand.erase(in_hand.begin() + pick);
      if (random() % 4 == 0) {
        board.give_back(piece);
        continue;
      }
      read.push_back(piece.range);
      for (const int k : keys) {
        const auto& r = piece.read;
        const bool in = (!r.low || k > number(*r.low)) && (!r.high || k <= number(*r.high));
        EXPECT_TRUE(!in || seen.insert(k).second) << "read twice: " << k;
      }
    }
    std::ranges::sort(read, {}, [](const KeyRange& r) { return r.low ? number(*r.low) : 0; });
    ASSERT_FALSE(read.empty());
    EXPECT_FALSE(read.front().low);
    EXPECT_FALSE(read.back().high);
    for (std::size_t i = 1; i < read.size(); ++i)
      ASSERT_EQ(read[i].low, read[i - 1].high) << "round " << round;
  }
}

TEST(RangeTempoTest, RangesGrowToASecondAndShrinkAtOnce) {
  using std::chrono::milliseconds;
  RangeTempo tempo({10'000, 0});
  EXPECT_EQ(tempo.rows(1, std::nullopt, milliseconds(1000)), 10'000);
  EXPECT_FALSE(tempo.duration_of(1));
  tempo.read(10'000, 10'000, Density::normal, milliseconds(2));
  EXPECT_EQ(tempo.rows(1, std::nullopt, milliseconds(1000)), 160'000);
  tempo.read(160'000, 160'000, Density::normal, milliseconds(20));
  EXPECT_EQ(tempo.rows(1, std::nullopt, milliseconds(1000)), 2'560'000);
  tempo.read(2'560'000, 2'560'000, Density::normal, milliseconds(400));
  EXPECT_EQ(tempo.rows(1, std::nullopt, milliseconds(1000)), 6'400'000);
  tempo.read(6'400'000, 6'400'000, Density::normal, milliseconds(4000));
  EXPECT_EQ(tempo.rows(1, std::nullopt, milliseconds(1000)), 1'600'000);
}

TEST(RangeTempoTest, WorkersEndTogetherAndSlicesInTime) {
  using std::chrono::milliseconds;
  RangeTempo tempo({10'000, 0});
  tempo.read(10'000, 10'000, Density::normal, milliseconds(10));
  tempo.read(160'000, 160'000, Density::normal, milliseconds(160));  // a million in a second
  EXPECT_EQ(tempo.rows(2, 600'000, milliseconds(1000)), 300'000);
  EXPECT_EQ(tempo.rows(2, 60'000, milliseconds(1000)), 50'000) << "no shorter than is worth a way there";
  EXPECT_EQ(tempo.rows(2, std::nullopt, milliseconds(250)), 250'000);
  EXPECT_EQ(tempo.rows(1, 900'000, milliseconds(250)), 1'000'000) << "a rest that fits is read to its end";
}

TEST(RangeTempoTest, APresumptionIsTakenBackWhenItWasWrong) {
  using std::chrono::milliseconds;
  RangeTempo tempo({10'000, 0});
  EXPECT_TRUE(tempo.presume(5'000'000));
  EXPECT_TRUE(tempo.fits_one_range(4'000'000, 1));
  EXPECT_TRUE(tempo.fits_one_range(9'000'000, 2));
  EXPECT_EQ(tempo.rows(1, 4'000'000, milliseconds(500)), 5'000'000);
  EXPECT_FALSE(tempo.undone(4'000'000));
  EXPECT_EQ(tempo.rows(1, 4'000'000, milliseconds(500)), 10'000);
  EXPECT_FALSE(tempo.fits_one_range(1, 1));
  RangeTempo small({10, 0});
  EXPECT_FALSE(small.presume(5'000'000));
  EXPECT_EQ(small.rows(1, 4'000'000, milliseconds(500)), 10) << "who asks for small ranges gets them";
}

TEST(RangeTempoTest, WhatIsUndoneIsHalvedDownToARow) {
  RangeTempo tempo({4, 0});
  EXPECT_FALSE(tempo.undone(0));
  EXPECT_FALSE(tempo.undone(0));
  EXPECT_EQ(tempo.rows(1, std::nullopt, {}), 1);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(tempo.undone(1));
  EXPECT_TRUE(tempo.undone(1));
  RangeTempo large({1'000'000, 0});
  large.halve(30'000);
  EXPECT_EQ(large.rows(1, std::nullopt, {}), 15'000) << "what was undone counts, not what was allowed";
}

TEST(RangeTempoTest, WhereKeysAreAskedForRangesStayBelowWhatMemoryHolds) {
  RangeTempo tempo({400'000, 0});
  tempo.read(400'000, 400'000, Density::unclean, std::chrono::milliseconds(20));
  EXPECT_LE(tempo.rows(1, std::nullopt, std::chrono::milliseconds(1000)), 500'000);
}

}  // namespace
}  // namespace crossfade

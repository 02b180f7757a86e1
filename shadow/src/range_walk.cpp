// How a pass ends although the table grows: the greatest key at its opening bounds what it chases. What lies
// up to that key is read to the last row. Behind it are rows born during the pass, which the capture wrote as
// it writes the rows born behind the cursor; the last range reads the first of them, at most twice the rows
// of a range, and is recorded as open above.
#include "range_walk.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/key_sql.hpp"

namespace crossfade {

namespace {

using std::chrono::milliseconds;

constexpr auto kRangeTarget = milliseconds(200);
constexpr auto kLongestStatement = milliseconds(5000);
constexpr auto kFlushInterval = milliseconds(2000);
constexpr std::int64_t kLargestRange = 500'000;  // rows; bounds the memory of one aggregate
constexpr int kFailuresOfOneRow = 5;
constexpr int kProofShare = 4;
constexpr auto kLongestProof = milliseconds(30000);

// statement_timeout for a scope; none afterwards.
class BoundedStatements {
 public:
  explicit BoundedStatements(SqlSession& session) : session_(session) {
    session_.set_statement_timeout(kLongestStatement);
  }
  ~BoundedStatements() {
    try {
      if (session_.is_open()) session_.set_statement_timeout(milliseconds(0));
    } catch (const Error&) {
      // The session broke; its next user is told by its own call.
    }
  }
  BoundedStatements(const BoundedStatements&) = delete;
  BoundedStatements& operator=(const BoundedStatements&) = delete;

 private:
  SqlSession& session_;
};

void pass_point(std::string_view failpoint) {
  if (!failpoint.empty()) failpoint::hit(failpoint);
}

}  // namespace

std::string range_condition(const KeyFacts& key, const KeyRange& range) {
  const auto high = range.low ? "$2::text[]" : "$1::text[]";
  return key_range_sql(key, "t", range.low ? "$1::text[]" : "", range.high ? high : "");
}

SqlParams range_params(const KeyRange& range) {
  SqlParams params;
  if (range.low) params.emplace_back(array_literal(*range.low));
  if (range.high) params.emplace_back(array_literal(*range.high));
  return params;
}

RangeWalk::RangeWalk(SqlSession& session, CursorCache& cache, const Setup& setup, RangePace& pace)
    : session_(session), cache_(cache), setup_(setup), pace_(pace), flushed_at_(Clock::now()) {}

bool RangeWalk::run(milliseconds slice, const std::atomic<bool>& stop, const Progress& progress,
                    const Read& read) {
  // Each proof waits for the standby: as seldom as it takes to make the waiting a small part of the work.
  if (setup_.replica != nullptr)
    slice = std::max(slice, std::min(kProofShare * setup_.replica->lag(), kLongestProof));
  try {
    if (!walk(Clock::now() + slice, stop, progress, read)) return false;
  } catch (const Error& error) {
    // What was read on it and not stored is read again.
    if (setup_.replica == nullptr || !session_.is_open() || !setup_.replica->survives(error)) throw;
    return false;
  }
  if (position_.state != "ended") finish();
  return true;
}

// True when the pass has ended or its last range is stored.
bool RangeWalk::walk(Clock::time_point deadline, const std::atomic<bool>& stop, const Progress& progress,
                     const Read& read) {
  const BoundedStatements bounded(session_);
  position_ = position_of(session_, setup_.pass);
  if (position_.state == "ended" || position_.complete) return true;
  std::optional<BoundedStatements> bounded_reader;
  SqlSession* reader = &session_;
  if (setup_.replica != nullptr) {
    reader = &setup_.replica->session(session_, stop);
    bounded_reader.emplace(*reader);
    if (!setup_.replica->is_proved(setup_.pass) && !setup_.replica->prove(session_, setup_.pass, stop))
      return false;
  }
  flushed_at_ = Clock::now();
  while (!position_.complete && !stop) {
    // The end of the slice does not stop the halving, or a reader that is made anew for each slice never
    // gets on.
    if (!one_range(*reader, read)) continue;
    if (progress) progress(pending_.back().rows_read);
    pass_point(setup_.range_failpoint);
    const bool due = setup_.replica == nullptr && Clock::now() - flushed_at_ >= kFlushInterval;
    if ((due || !found_.empty()) && !flush(stop)) return false;
    if (Clock::now() >= deadline) break;
  }
  return flush(stop) && position_.complete;
}

// False when the range was undone and is to be read again, smaller.
bool RangeWalk::one_range(SqlSession& reader, const Read& read) {
  const auto began = Clock::now();
  const auto& key = setup_.migration.binding.key;
  try {
    KeyRange range{position_.low, std::nullopt};
    if (position_.opening_high) {
      range.high = nth_key(reader, setup_.table, key, {position_.low, position_.opening_high}, pace_.rows);
    }
    const bool last = !range.high;
    if (last) range.high = nth_key(reader, setup_.table, key, range, 2 * pace_.rows);
    const auto result = read(reader, range);
    if (result.density == RangeRead::Density::too_dense) {
      halve();
      return false;
    }
    pace_.failures = 0;
    adapt(Clock::now() - began, result);
    if (last) range.high.reset();
    keep(range, result);
    return true;
  } catch (const Error& error) {
    if (!error.is_transient()) throw;
    if (pace_.rows == 1 && ++pace_.failures >= kFailuresOfOneRow) {
      pace_.failures = 0;
      throw;
    }
    halve();
    return false;
  }
}

void RangeWalk::keep(const KeyRange& range, const RangeRead& result) {
  pending_.push_back(
      {position_.next_number, range, result.rows, result.differences, result.excepted, result.result});
  found_.insert(found_.end(), result.found.begin(), result.found.end());
  ++position_.next_number;
  position_.low = range.high;
  position_.complete = !range.high;
  position_.rows_read += result.rows;
  // An empty position says that the end was reached.
  cache_.put_cursor(
      setup_.migration.row.id, std::to_string(setup_.pass), 0,
      {setup_.migration.row.token, range.high ? array_literal(*range.high) : "", position_.rows_read});
}

// False when we were stopped before the standby had proved what was read there: that is not stored.
bool RangeWalk::flush(const std::atomic<bool>& stop) {
  flushed_at_ = Clock::now();
  if (pending_.empty()) return true;
  if (setup_.replica != nullptr && !setup_.replica->prove(session_, setup_.pass, stop)) return false;
  position_.stored_differences += store_ranges(session_, setup_.pass, pending_, found_,
                                               kStoredDifferences - position_.stored_differences);
  pending_.clear();
  found_.clear();
  flushed_at_ = Clock::now();
  pass_point(setup_.flushed_failpoint);
  return true;
}

void RangeWalk::finish() {
  end_pass(session_, setup_.pass);
  pass_point(setup_.ended_failpoint);
  prune_ranges(session_, setup_.pass);
}

void RangeWalk::adapt(Clock::duration taken, const RangeRead& result) {
  const auto target = std::chrono::duration<double>(kRangeTarget).count();
  const auto seconds = std::max(std::chrono::duration<double>(taken).count(), 0.001);
  double factor = std::clamp(target / seconds, 0.5, 2.0);
  // A short last range or a dense one says nothing about how many rows fit.
  const bool telling = result.rows >= pace_.rows && result.density == RangeRead::Density::normal;
  if (!telling) factor = std::min(factor, 1.0);
  const auto rows = static_cast<std::int64_t>(static_cast<double>(pace_.rows) * factor);
  pace_.rows = std::clamp<std::int64_t>(rows, 1, kLargestRange);
}

void RangeWalk::halve() { pace_.rows = std::max<std::int64_t>(pace_.rows / 2, 1); }

}  // namespace crossfade

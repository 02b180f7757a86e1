#include "range_walk.hpp"

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/pace.hpp"
#include "range_slice.hpp"
#include "reader_settings.hpp"

namespace crossfade {

namespace {

using std::chrono::milliseconds;

constexpr int kProofShare = 4;
constexpr auto kLongestProof = milliseconds(30000);
constexpr double kPresumedRows = 5'000'000;      // that are read in a second when they are cached
constexpr std::int64_t kPresumedPages = 131072;  // a gigabyte, when they are not
// Each costs a look into the statistics; more gaps than that are short ones.
constexpr std::size_t kMarkedStretches = 64;

}  // namespace

RangeWalk::RangeWalk(Setup setup, RangePace pace)
    : setup_(std::move(setup)), tempo_(pace), own_reader_(setup_.reader_of_ranges()) {}

RangeWalk::~RangeWalk() = default;

void RangeWalk::forget() {
  positioned_ = false;
  position_ = {};
  board_ = {};
}

// A table that one statement reads in about a second is read by one, from the start: ranges of it would each
// ask for the same pages where the key has nothing to do with the order of the rows. What takes longer than a
// statement may is undone, and begun with small ranges. Absent: not that little, or nobody knows.
std::optional<double> RangeWalk::presumed_rows(SqlSession& session) {
  if (!setup_.is_cheap || setup_.migration.binding.key.partitioned || position_.open.size() != 1 ||
      position_.open.front().low)
    return std::nullopt;
  const auto facts = session.exec("SELECT reltuples, relpages FROM pg_class WHERE oid = $1::oid",
                                  {std::to_string(setup_.migration.row.table_oid.value)});
  if (facts.empty() || int_of(facts[0][1]) > kPresumedPages) return std::nullopt;
  const auto rows = double_of(facts[0][0]);
  if (rows <= 0 || rows > kPresumedRows || !tempo_.presume(kPresumedRows)) return std::nullopt;
  return rows;
}

void RangeWalk::find_position(SqlSession& session) {
  const auto& m = setup_.migration;
  if (!is_claimed(setup_.pass, setup_.reader)) claim_pass(session, setup_.pass.id, setup_.reader);
  // From here on the row says so, whatever was read of it before.
  position_ = position_of(session, setup_.pass.id, m.binding.key);
  std::deque<Stretch> open;
  if (const auto rows = presumed_rows(session)) {
    open.push_back({position_.open.front(), {{}, *rows}});
  } else {
    for (const auto& range : position_.open) {
      open.push_back({range, {}});
      const auto end = range.high ? range.high : position_.opening_high;
      if (!end || open.size() > kMarkedStretches) continue;
      try {
        open.back().known =
            range_marks(session, m.row.table_oid, setup_.table, m.binding.key, {range.low, end});
      } catch (const Error&) {
        // Only the size of the ranges rests on it: without marks they are counted.
        if (!session.is_open()) throw;
      }
    }
  }
  board_ = RangeBoard(std::move(open), position_.opening_high);
  positioned_ = true;
}

bool RangeWalk::run(SqlSession& session, CursorCache& cache, const ReadCrew& crew, milliseconds slice,
                    const std::atomic<bool>& stop, const Progress& progress) {
  // Each proof waits for the standby: as seldom as it takes to make the waiting a small part of the work.
  if (crew.replica != nullptr)
    slice = std::max(slice, std::min(kProofShare * crew.replica->lag(), kLongestProof));
  const auto deadline = RangeTempo::Clock::now() + slice;
  try {
    if (!positioned_) find_position(session);
    if (position_.state == "ended") return true;
    if (!board_.empty()) {
      const ReaderSettings settings(session);
      RangeSlice running(*this, {session, cache, crew, deadline, stop, progress});
      const auto end = running.run();
      if (end == RangeSlice::End::unproved) forget();
      if (end != RangeSlice::End::all_stored) return false;
    }
    end_pass(session, setup_.pass.id, setup_.migration.binding.key);
    if (!setup_.ended_failpoint.empty()) failpoint::hit(setup_.ended_failpoint);
    prune_ranges(session, setup_.pass.id);
    forget();
    return true;
  } catch (const Error& error) {
    forget();
    // What was read on it and not stored is read again.
    if (crew.replica == nullptr || !session.is_open() || !crew.replica->survives(error)) throw;
    return false;
  } catch (...) {
    forget();
    throw;
  }
}

}  // namespace crossfade

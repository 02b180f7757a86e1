// The loop of the read-only passes: ranges in key order, of a size that takes about a fifth of a second each.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/replica.hpp"
#include "read_pass.hpp"

namespace crossfade {

// What reading one range gave.
struct RangeRead {
  enum class Density {
    normal,
    dense,     // much to look at one by one: the ranges should not grow
    too_dense  // more than one range may hold: nothing was read, halve it
  };
  std::int64_t rows = 0, differences = 0, excepted = 0;
  std::string result = "{}";         // jsonb of the range row
  std::vector<DifferenceRow> found;  // the differences themselves
  Density density = Density::normal;
};

// Text and parameters of a range condition over alias `t`; the parameters begin at $1 and are all used.
std::string range_condition(const KeyFacts& key, const KeyRange& range);
SqlParams range_params(const KeyRange& range);

class RangeWalk {
 public:
  struct Setup {
    const Migration& migration;
    const QualifiedName& table;
    std::int64_t pass = 0;
    std::string_view range_failpoint;    // after each range; empty for none
    std::string_view flushed_failpoint;  // after each commit of ranges
    std::string_view ended_failpoint;    // after the pass was ended; empty for none
    Replica* replica = nullptr;          // where the ranges are read; null: on the primary
  };
  // Reads on `reader`; what it wants to look at again it may look at on the primary.
  using Read = std::function<RangeRead(SqlSession& reader, const KeyRange& range)>;
  using Progress = std::function<void(std::int64_t rows)>;

  RangeWalk(SqlSession& session, CursorCache& cache, const Setup& setup, RangePace& pace);

  // Reads ranges until `slice` is over, `stop` is set or the pass has ended; at least one range unless
  // stopped. True when the pass has ended. Contract and errors as Comparator::run.
  bool run(std::chrono::milliseconds slice, const std::atomic<bool>& stop, const Progress& progress,
           const Read& read);

 private:
  using Clock = std::chrono::steady_clock;

  bool walk(Clock::time_point deadline, const std::atomic<bool>& stop, const Progress& progress,
            const Read& read);
  bool one_range(SqlSession& reader, const Read& read);
  void keep(const KeyRange& range, const RangeRead& result);
  bool flush(const std::atomic<bool>& stop);
  void finish();
  void adapt(Clock::duration taken, const RangeRead& result);
  void halve();

  SqlSession& session_;
  CursorCache& cache_;
  Setup setup_;
  RangePace& pace_;
  PassPosition position_;
  std::vector<RangeRow> pending_;     // read, not yet committed
  std::vector<DifferenceRow> found_;  // of the pending ranges
  Clock::time_point flushed_at_;
};

}  // namespace crossfade

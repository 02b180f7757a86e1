// The loop of the read-only passes: one or more workers take ranges of the key space and read them, each
// range by one statement in a snapshot of its own, of a size that takes about a second at most.
//
// The caller's thread is one of the workers, and the only one that writes and that talks to anybody else:
// what the others read they hand over. Every helper has a session of its own, kept between slices.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"
#include "crossfade/shadow/read_crew.hpp"
#include "crossfade/shadow/replica.hpp"
#include "range_board.hpp"
#include "range_tempo.hpp"
#include "read_pass.hpp"

namespace crossfade {

// What reading one range gave.
struct RangeRead {
  std::int64_t rows = 0, differences = 0, excepted = 0;
  std::string result = "{}";            // jsonb of the range row
  std::vector<std::string> suspects{};  // literals of keys to be looked at again on the primary
  std::vector<DifferenceRow> found{};   // the differences themselves, once that was done
  Density density = Density::normal;
};

// What a pass does with a range. One for each worker; read() is called by one thread at a time.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  virtual RangeRead read(SqlSession& session, const Piece& piece) = 0;
  // Whether several processes of the server may share in one statement.
  virtual bool may_share() const { return false; }
};

class RangeWalk {
 public:
  struct Setup {
    Migration migration;
    QualifiedName table;
    PassRow pass;
    std::string reader;                  // that claims the pass
    std::string_view range_failpoint;    // after each range; empty for none
    std::string_view flushed_failpoint;  // after each commit of ranges
    std::string_view ended_failpoint;    // after the pass was ended; empty for none
    std::function<std::unique_ptr<RangeReader>()> reader_of_ranges;
    bool is_cheap = false;  // what is evaluated of a row costs next to nothing beside reading it
    // On the caller's thread and the primary: makes differences of suspects. Null: there are none.
    std::function<void(SqlSession& primary, RangeRead& read)> confirm;
  };
  using Progress = std::function<void(std::int64_t rows)>;

  RangeWalk(Setup setup, RangePace pace);
  ~RangeWalk();
  std::int64_t pass() const { return setup_.pass.id; }
  std::int64_t rows_read() const { return position_.rows_read; }

  // Reads ranges until `slice` is over, `stop` is set or the pass has ended; at least one range unless
  // stopped. True when the pass has ended. Contract and errors as Comparator::run.
  bool run(SqlSession& session, CursorCache& cache, const ReadCrew& crew, std::chrono::milliseconds slice,
           const std::atomic<bool>& stop, const Progress& progress);

 private:
  friend class RangeSlice;
  struct Helper {
    std::optional<SqlSession> session;  // on the primary; on a standby it is the replica's
    std::unique_ptr<RangeReader> reader;
    RangeTempo::Clock::time_point paid{};
  };

  void forget();
  void find_position(SqlSession& session);
  std::optional<double> presumed_rows(SqlSession& session);

  Setup setup_;
  RangeTempo tempo_;
  std::unique_ptr<RangeReader> own_reader_;
  RangeTempo::Clock::time_point paid_{};  // what the caller has read is paid for by then
  std::vector<Helper> helpers_;
  // What is known of the pass; forgotten after an error, because what was handed out is lost then.
  bool positioned_ = false;
  PassPosition position_;
  RangeBoard board_;
};

}  // namespace crossfade

// One slice of a RangeWalk: its workers, and what they have in hand.
//
// The mutex guards the board, the tempo and everything below it. A worker that counts rows to find the end of
// its range holds it meanwhile: the others would ask for the same rows.
#pragma once

#include "range_walk.hpp"

namespace crossfade {

class RangeSlice {
 public:
  using Clock = RangeTempo::Clock;
  struct Setup {
    SqlSession& session;  // on the primary, of the caller's thread
    CursorCache& cache;
    const ReadCrew& crew;
    Clock::time_point deadline;
    const std::atomic<bool>& stop;
    const RangeWalk::Progress& progress;
  };
  enum class End {
    more,        // the slice is over; what was read is stored
    all_stored,  // nothing is left to be read
    unproved,    // stopped before the standby had proved what was read there: that is not stored
  };

  RangeSlice(RangeWalk& walk, const Setup& setup) : walk_(walk), setup_(setup) {}
  // Ends the helpers, each after the range that it has in hand.
  ~RangeSlice();
  RangeSlice(const RangeSlice&) = delete;
  RangeSlice& operator=(const RangeSlice&) = delete;

  End run();

 private:
  enum class Step { read, undone, nothing };
  struct Done {
    KeyRange range;
    RangeRead read;
  };

  SqlSession* own_reader();
  Step one_range(SqlSession& session, RangeReader& reader, Clock::time_point& paid);
  std::optional<Piece> take(SqlSession& session);
  void hand_over(const Piece& piece, RangeRead read, Clock::duration taken);
  bool give_back(const std::optional<Piece>& piece, bool too_dense);
  bool wait_until_paid(Clock::time_point paid);

  bool is_shared() const;
  void hire();
  bool worth_a_hire();
  void help(std::size_t number);
  void end_helpers();

  void take_over();
  void keep(const Done& done);
  bool flush();
  bool prove();
  bool failed();

  RangeWalk& walk_;
  const Setup setup_;
  std::vector<RangeRow> pending_;     // read, not yet committed
  std::vector<DifferenceRow> found_;  // of the pending ranges
  Clock::time_point flushed_at_ = Clock::now();
  bool unproved_ = false, hired_ = false;
  const std::thread::id caller_ = std::this_thread::get_id();
  std::vector<std::thread> threads_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int in_hand_ = 0;
  bool halt_ = false;  // nobody takes another range
  bool hold_ = false;  // for a moment: the sessions are looked at
  std::deque<Done> done_;
  std::int64_t handed_over_ = 0, settled_ = 0;
  std::exception_ptr failure_;  // of a helper, the first
};

}  // namespace crossfade

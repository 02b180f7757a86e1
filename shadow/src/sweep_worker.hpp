// One worker of a sweep: a session, a unit at a time, and the size of its next chunk.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "chunk_size.hpp"
#include "crossfade/shadow/sweep.hpp"
#include "sweep_sql.hpp"
#include "window_planner.hpp"

namespace crossfade {

class SweepWorker {
 public:
  SweepWorker(Sweep& sweep, int number);
  ~SweepWorker();

  // Works until the deadline or `stop`. `halt` is set by a sibling that failed.
  SweepState run(const Tuning& tuning, std::chrono::steady_clock::time_point deadline,
                 const std::atomic<bool>& stop, const std::atomic<bool>& halt);

 private:
  struct Unit {
    int number = 0;
    RangeBy by = RangeBy::key;
    std::optional<Key> low;
    Key high;
    SweepPosition at;
    std::string lease, since;
    Oid relation;  // whose rows it sweeps
  };
  // The statements of one relation, made when first needed.
  using Form = std::tuple<ChunkWay, RangeBy, ChunkForm::Low, ChunkForm::Share>;
  struct Texts {
    QualifiedName table;
    std::map<Form, std::string> chunks;
  };
  enum class Step { advanced, unit_done, unit_lost, held, rewritten, nothing_left, try_again };

  void open_session();
  bool claim();
  void ask_for_part();
  void give_part_away();
  Step step();
  // Opens a window where that helps; nullopt: the next chunk is swept without one.
  std::optional<Step> open_window();
  std::vector<Key> piece_bounds(std::int64_t rows);
  std::optional<Key> bound_after(const std::optional<Key>& low, const Key& high, std::int64_t rows);
  Step give_up_window();
  ChunkStep next_chunk();
  Step chunk(ChunkWay way, const ChunkStep& step);
  Step moved(const ChunkStep& step);
  Step on_transient(const Error& error, bool single_row);
  Step on_data_error(const Error& error, const ChunkStep& step);
  Step reject_one(const Error& error, const ChunkStep& step);
  Step write_singly(const ChunkStep& step);
  Step drain_leftovers();
  void check_rejects();
  bool leaf_has_gone(const Error& error);
  void check_suppressed(std::int64_t needed, std::int64_t written, const ChunkStep& step);
  SqlResult write_row(const std::string& key);
  ChunkOf whose() const;
  ChunkForm form_of(ChunkWay way, const ChunkStep& step) const;
  ChunkSize& size() { return unit_->at.in_window() ? visit_size_ : size_; }
  void beat();
  void wait(std::chrono::milliseconds time, std::chrono::steady_clock::time_point deadline);
  Texts& texts();
  const QualifiedName& table() { return texts().table; }
  const std::string& text(const ChunkForm& form);

  Sweep& sweep_;
  int number_;
  std::optional<SqlSession> session_;
  std::optional<Unit> unit_;
  // Rows of the range of the next chunk: without a window, and in one.
  ChunkSize size_, visit_size_;
  WindowPlanner windows_;
  // The pieces of the open window have become too large for one chunk.
  bool split_pieces_ = false;
  std::int64_t rows_of_piece_ = 0;  // of the window that it opened last
  std::chrono::milliseconds life_{250};
  std::chrono::milliseconds chunk_target_{100};
  std::int64_t max_rejects_ = 0;
  int interleave_ = 0;  // as tuned; 0: auto
  std::int64_t rows_of_chunk_ = 0;
  bool careful_next_ = false;
  int transient_in_a_row_ = 0;
  int reconnects_ = 0;
  // Of the heartbeat: rows since the last one.
  std::int64_t rows_since_beat_ = 0;
  std::chrono::steady_clock::time_point last_beat_{};
  // When everything booked so far is paid for; outlives the slice.
  std::chrono::steady_clock::time_point not_before_{};
  const std::atomic<bool>* stop_ = nullptr;
  const std::atomic<bool>* halt_ = nullptr;
  std::map<std::uint32_t, Texts> texts_;
};

}  // namespace crossfade

// One worker of a sweep: a session, a unit at a time, and the size of its next chunk.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "chunk_size.hpp"
#include "crossfade/shadow/sweep.hpp"
#include "sweep_sql.hpp"

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
    std::optional<Key> low, watermark;
    Key high;
    std::string lease, since;
    Oid relation;  // whose rows it sweeps
  };
  // The statements of one relation, made when first needed.
  struct Texts {
    QualifiedName table;
    std::string chunks[6];
  };
  enum class Step { advanced, unit_done, unit_lost, held, nothing_left, try_again };

  void open_session();
  bool claim();
  void ask_for_part();
  void give_part_away();
  Step step();
  Step chunk(ChunkWay way, const Key& upper, bool reaches_bound);
  Step on_transient(const Error& error, bool single_row);
  Step on_data_error(const Error& error, const Key& upper, bool reaches_bound);
  Step reject_one(const Error& error, const Key& upper, bool reaches_bound);
  Step drain_leftovers();
  void check_rejects();
  void check_suppressed(std::int64_t needed, std::int64_t written, const std::optional<Key>& low,
                        const Key& upper);
  SqlParams chunk_params(const Key& upper, bool reaches_bound) const;
  bool leaf_has_gone(const Error& error);
  void beat();
  void wait(std::chrono::milliseconds time, std::chrono::steady_clock::time_point deadline);
  Texts& texts();
  const QualifiedName& table() { return texts().table; }
  const std::string& text(ChunkWay way, bool low_is_open);

  Sweep& sweep_;
  int number_;
  std::optional<SqlSession> session_;
  std::optional<Unit> unit_;
  ChunkSize size_;
  std::chrono::milliseconds life_{250};
  std::chrono::milliseconds chunk_target_{100};
  std::int64_t max_rejects_ = 0;
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

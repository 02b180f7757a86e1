// The one pace controller of a migration, in the process of its runner: a thread that asks the signals every
// second (and at once when the tuning changes), decides, and writes the order into crossfade.pace for every
// process that sweeps. See docs/decisions/0022.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/pace_order.hpp"

namespace crossfade {

// What is done at the pace.
enum class PacedWork {
  sweep,               // every signal counts
  reading,             // only those that say how the server fares; what piles up piles up without a reader
  reading_on_standby,  // only the lag of the standbys
};

class PaceGovernor {
 public:
  struct Setup {
    std::function<SqlSession(const std::string& role)> connect;
    CursorCache* cache = nullptr;  // outlives the governor
    Migration migration;           // whose work it is; the order is its leader's
    QualifiedName table;
    Token token;  // the runner's: without it nothing is written
    PacedWork work = PacedWork::sweep;
  };
  explicit PaceGovernor(Setup setup);
  // Says that nothing is at work any more.
  ~PaceGovernor();

  // The order in force. The first call waits for the first answers. Paused when the thread has not answered
  // for kOrderLives.
  PaceOrder order();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The first key of the tuning whose signal only a member of pg_read_all_stats can read; empty: none.
std::string_view needs_statistics(const Tuning& tuning);

}  // namespace crossfade

// A standby on which the dry run and the comparison read. What is read there counts only once it is proved to
// be the primary's own past: see replica.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

class Replica {
 public:
  struct Setup {
    std::function<SqlSession()> connect;  // SqlSession::Target::allow_standby
    // How long the standby may take to show what the primary has committed, and to come back after it was
    // lost.
    std::chrono::milliseconds patience{60000};
    std::function<void(const std::string& note)> tell = {};  // what it waits for
  };
  explicit Replica(Setup setup) : setup_(std::move(setup)) {}

  // A session to read on, one for each reader; connects when there is none. Throws standby_mismatch when it
  // is not a standby of the primary's cluster, and what SqlSession::connect throws; a standby that was lost
  // is waited for.
  SqlSession& session(SqlSession& primary, const std::atomic<bool>& stop, std::size_t reader = 0);
  // Requires: session() made it. May be called from the reader's thread.
  SqlSession& open_session(std::size_t reader) { return *sessions_.at(reader); }

  // Requires: session() was called, and nobody uses one; they are not connected anew, because the proof is of
  // what was read on them. Commits a mark in the row of the pass on the primary and waits until each session
  // shows it: everything that was read on them before, and will be, then comes from the history of this
  // primary, and what will be read is not older than this call. False when `stop` was set meanwhile. Throws
  // standby_behind when patience is over, standby_mismatch when the server was promoted, superseded when the
  // pass no longer runs.
  bool prove(SqlSession& primary, std::int64_t pass, const std::atomic<bool>& stop);
  // Whether a proof for this pass was made on the sessions that are open now.
  bool is_proved(std::int64_t pass) const;

  // Whether `error` says that the session to the standby broke, and another one may be tried. What was read
  // since the last proof is to be thrown away.
  bool survives(const Error& error);
  // From another thread, while a statement of session() runs: it ends with 57014.
  void cancel() noexcept;
  // How long the newest proof took.
  std::chrono::milliseconds lag() const { return lag_; }

 private:
  using Clock = std::chrono::steady_clock;
  SqlSession connect_to_standby_of(SqlSession& primary);
  bool all_open() const;
  bool shows(SqlSession& session, std::int64_t pass, const std::string& mark);
  Error behind(SqlSession& primary, SqlSession& session);

  Setup setup_;
  std::vector<std::unique_ptr<SqlSession>> sessions_;  // of the readers
  std::optional<Clock::time_point> lost_since_;        // until the next proof
  std::int64_t proved_pass_ = 0;
  std::chrono::milliseconds lag_{0};
};

}  // namespace crossfade

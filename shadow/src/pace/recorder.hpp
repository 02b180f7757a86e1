// What the controller decided, in crossfade.pace, and how long it held the sweep back, in crossfade.pause.
#pragma once

#include <string>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/pace_order.hpp"
#include "signals.hpp"

namespace crossfade::pace {

// Every statement presents the runner's token: one that was superseded writes nothing. They are no part of
// any other transaction, and losing one loses a second of history.
class Recorder {
 public:
  Recorder(MigrationId leader, Token token) : leader_(std::move(leader)), token_(std::move(token)) {}
  const MigrationId& leader() const { return leader_; }

  // What a runner that died left open ended when it was last heard.
  void begin(SqlSession& session);
  void write(SqlSession& session, const PaceOrder& order, const Readings& readings);
  void end(SqlSession& session);

 private:
  void close(SqlSession& session);

  MigrationId leader_;
  Token token_;
  std::string open_;  // state and signal of the row of crossfade.pause that is open; empty: none
};

}  // namespace crossfade::pace

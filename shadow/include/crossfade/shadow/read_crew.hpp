// Who reads in a slice of a read pass, where, and how fast.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {

class Pace;
class Replica;

struct ReadCrew {
  // Those who read at the same time, of whom the caller is one. The others get a session each, once there is
  // enough to read for them.
  int workers = 1;
  std::function<SqlSession(const std::string& role)> connect;  // required for more than one
  Replica* replica = nullptr;         // where the ranges are read; null: on the primary
  Pace* pace = nullptr;               // null: as fast as it goes
  std::mutex* cache_mutex = nullptr;  // what guards the cache beside the pace
};

}  // namespace crossfade

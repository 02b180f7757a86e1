// Rows that are distinct under a unique index of the column as it is, and would be equal under another value
// of it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// What is looked at in the place of the column that bears the name.
enum class ComparedValue {
  forward,  // what the forward expression gives; for the dry run
  shadow,   // what the new column holds; until the switch
  old,      // what the old column holds; after it
};

// How the collisions under one unique index are counted; without SQL where none are possible.
struct CollisionCheck {
  std::string index;  // as SQL shows it
  std::string name;   // the bare name
  std::string sql;
};
std::vector<CollisionCheck> collision_checks(SqlSession& session, const Migration& migration,
                                             const QualifiedName& table, ComparedValue value);

struct IndexCollisions {
  std::string index;
  bool proved = false;  // the conversion is proved one-to-one: nothing was read, nothing can collide
  std::int64_t groups = 0, rows = 0;
  std::vector<std::pair<Key, Key>> samples;  // two rows each of at most five groups
};
// Each reads the whole table and sorts it, over one snapshot: a statement without a time limit, which may be
// cancelled.
std::vector<IndexCollisions> count_collisions(SqlSession& session, const std::vector<CollisionCheck>& checks);

}  // namespace crossfade

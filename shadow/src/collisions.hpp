// Uniqueness that holds today, under the new type: which rows would collide once they are converted.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/profile.hpp"

namespace crossfade {

// Runs collision_checks() and reads their answers, over one snapshot each.
std::vector<IndexCollisions> count_collisions(SqlSession& session, const Migration& migration,
                                              const QualifiedName& table);

}  // namespace crossfade

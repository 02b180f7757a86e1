// User triggers whose PL/pgSQL functions cached the type of the column: re-created identically under the
// switch lock, so that every live session compiles them anew (the cache is per trigger) instead of failing
// with 42804.
#pragma once

#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// DROP TRIGGER and CREATE TRIGGER of every user row trigger, with its enabled state and comment; of those
// that a partition has of its own, too.
std::string recreate_user_triggers_sql(SqlSession& session, const Migration& migration);

}  // namespace crossfade

// The statements that every session runs at connect.
#pragma once

#include <string>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {

// Pins every parameter that results or safety depend on; one statement, one round trip.
std::string pin_settings_sql();
// One row: recovery, read-only, database oid, timeline or NULL, may read pg_control_*.
std::string identity_sql();
// One row: system identifier, timeline. Needs EXECUTE on pg_control_system() and pg_control_checkpoint().
std::string control_file_sql();

}  // namespace crossfade

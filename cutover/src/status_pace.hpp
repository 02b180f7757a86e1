// How fast the work at hand may go, for status.
#pragma once

#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/cutover/status_report.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// Requires: rows and rate of `report` are there. What is paused has no time at which it will be done, and
// what is throttled goes no faster than its limit.
void add_pace(SqlSession& session, const MigrationRow& row, const Tuning& tuning, StatusReport& report);

}  // namespace crossfade

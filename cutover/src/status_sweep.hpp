// How a sweep goes through the table, for status.
#pragma once

#include <cstdint>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/cutover/status_report.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

StatusReport::Sweep sweep_of(SqlSession& session, std::int64_t pass, const UnitTotals& totals);

}  // namespace crossfade

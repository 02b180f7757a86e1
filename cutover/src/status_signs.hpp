// What status tells beside phase, counts and gates: what an operator should know before the gates say it.
#pragma once

#include "crossfade/core/sql_session.hpp"
#include "crossfade/cutover/status_report.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// Fills misfits (as they are now), warnings, archive and commands.recapture, and what stands in the way
// because the capture was changed. Reads only. Requires: the table is there.
void add_signs(SqlSession& session, const Migration& migration, const QualifiedName& table,
               StatusReport& report);

}  // namespace crossfade

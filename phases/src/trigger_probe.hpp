// The user's triggers, tried under the switch lock: one row written to itself, and deleted and inserted
// again, undone at once, before the names move and after. What works before and fails after would fail for
// the application too.
#pragma once

#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct TriggerProbe {
  std::string before, after;  // empty when there is nothing to try
};

// For the statements of one crossing: `before` first, `after` last. `after` raises CF004 with the trigger's
// message, SQLSTATE and place.
TriggerProbe trigger_probe(SqlSession& session, const Migration& migration, const QualifiedName& table);

}  // namespace crossfade

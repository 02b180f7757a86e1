// What the INSERT and DELETE triggers of the table may do that no rollback undoes.
#pragma once

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct TriggerReach {
  bool fires = false;     // a trigger of a user, for INSERT or DELETE
  bool harmless = false;  // nothing that they reach can be heard outside the transaction
  bool cascades = false;  // a foreign key to the table has an action on DELETE, or checks at once
};
TriggerReach trigger_reach(SqlSession& session, const Migration& migration);

}  // namespace crossfade

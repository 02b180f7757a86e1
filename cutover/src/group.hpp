// A group: one migration and, with follow_foreign_keys, a member for every column that refers to the migrated
// one. Members are complete migrations in the state, and change their phase with the leader, in its
// transaction. A migration without members is a group of one.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/state_store.hpp"
#include "crossfade/cutover/machine.hpp"
#include "crossfade/phases/phase_handler.hpp"

namespace crossfade {

// The leader first, the members by id. Requires: `leader` is no member.
std::vector<Migration> load_group(SqlSession& session, const MigrationId& leader,
                                  LockMode lock = LockMode::none);
// Each table once, and the partitions of each.
std::vector<Oid> tables_of(SqlSession& session, const std::vector<Migration>& group);

// What holds for the group as a whole: the members are where the leader is, their work is done before an
// advance, and every foreign key that refers to a migrated column is one that a member carries.
std::vector<Blocker> group_blockers(PhaseEnv& env, const std::vector<Migration>& group, Event event);
// The blocker, saying which table it speaks of when it is a member's.
Blocker of_member(const Migration& migration, Blocker blocker);

// --- locking several relations at once -----------------------------------------------------------------

// The relations, as SQL shows them, each once and in the order of their oids.
std::vector<std::string> in_lock_order(SqlSession& session, const std::vector<std::string>& relations);

}  // namespace crossfade

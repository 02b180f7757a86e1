// A group: one migration and, with follow_foreign_keys, a member for every column that refers to the migrated
// one. Members are complete migrations in the state, and change their phase with the leader, in its
// transaction. A migration without members is a group of one.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "crossfade/core/state_store.hpp"
#include "crossfade/cutover/machine.hpp"
#include "crossfade/phases/phase_handler.hpp"

namespace crossfade {

// The leader first, the members by id. Requires: `leader` is no member.
std::vector<Migration> load_group(SqlSession& session, const MigrationId& leader,
                                  LockMode lock = LockMode::none);
// Each table once.
std::vector<Oid> tables_of(const std::vector<Migration>& group);

// What holds for the group as a whole: the members are where the leader is, their work is done before an
// advance, and every foreign key that refers to a migrated column is one that a member carries.
std::vector<Blocker> group_blockers(PhaseEnv& env, const std::vector<Migration>& group, Event event);
// The blocker, saying which table it speaks of when it is a member's.
Blocker of_member(const Migration& migration, Blocker blocker);

// --- locking several relations at once -----------------------------------------------------------------

// The relations, as SQL shows them, each once and in the order of their oids.
std::vector<std::string> in_lock_order(SqlSession& session, const std::vector<std::string>& relations);
// While one relation is held and another waited for, an application's transaction that holds the other and
// wants the first is in a cycle with us. An attempt that ends within a quarter of deadlock_timeout is gone
// before anybody who began to wait since looks for a deadlock; and while somebody has waited for half of it
// already, an attempt waits for nothing (zero).
std::chrono::milliseconds wait_with_locks(SqlSession& session, std::chrono::milliseconds wait);
// The same question once more where the client cannot stall any more: in the message that locks. A miss
// (55P03) when somebody waits for long.
std::string calm_or_miss_sql();

}  // namespace crossfade

// The commands of [hooks]: before a phase is entered, and after. They run outside any transaction, so never
// while a table is locked.
//
// A before hook that fails vetoes the phase change. An after hook is owed from the moment in which the phase
// change is committed, and until its result stands in crossfade.action: whoever works on the migration next
// runs it. So it runs at least once, and again if we died between its end and the record.
#pragma once

#include <functional>
#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/cutover/migrator.hpp"

namespace crossfade {

struct HookContext {
  const MigratorOptions& options;
  ProgressListener* listener = nullptr;
  std::function<void()> check;  // throws what should end the command
};

// What a hook is about; `from` is empty for a migration that begins, `id` before it is registered.
struct HookChange {
  std::string from, event;
  Phase to;
  std::string id;
};

// Throws hook_failed when there is one and it fails.
void run_before_hook(const Spec& spec, const HookChange& change, const HookContext& context);
// The same, and its result stands in the history.
void run_before_hook(SqlSession& session, const MigrationRow& row, const Spec& spec, const HookChange& change,
                     const HookContext& context);
// The after hook of the newest phase change, when there is one and it is owed. That it failed is told and
// recorded, not thrown.
void run_owed_hook(SqlSession& session, const MigrationRow& row, const HookContext& context);

}  // namespace crossfade

// The default of the migrated column, and what it becomes on the new one.
#pragma once

#include <optional>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

// The entry of the ledger; nullopt when there is no default or it is refused (then a finding says why).
// Everything made to find out is undone.
std::optional<Dependent> carried_default(SqlSession& session, const TableFacts& table,
                                         const ColumnFacts& facts, const ColumnBinding& column,
                                         std::vector<Finding>& findings);

}  // namespace crossfade

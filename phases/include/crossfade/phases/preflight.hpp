// Preflight: what must be known, accepted or changed before a migration may go on. Runs at plan, at start and
// again before every later phase; reads, never writes.
#pragma once

#include <optional>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/spec.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// All checks, in the order of their list. The ledger (shadow/dependents.hpp) and the expressions
// (shadow/transform.hpp) make their own findings; what they cover is not repeated here.
//
// key: choose_key() without the migrated column. column: null when binding was refused. current: the phase
// that the migration is in; names are free only until backfill takes them. Throws what the session throws; an
// expected answer is a finding.
std::vector<Finding> preflight(SqlSession& session, const Spec& spec, const TableFacts& table,
                               const std::optional<KeyFacts>& key, const ColumnBinding* column,
                               const GeneratedNames& names, Phase current);

}  // namespace crossfade

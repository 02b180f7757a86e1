// How a worker gets a unit, whichever process it is of.
#pragma once

#include <string>

namespace crossfade {

// Claims one unit for a runner: $1 pass, $2 migration id, $3 token of the runner. Result: number, low, high,
// watermark, lease token, relation (oid) whose rows it sweeps, window_bounds, visits, visit,
// piece, within, range_by.
std::string claim_unit_sql();

// Asks the holder of one unit to give up a part of it: $1 pass, $2 migration id, $3 token of the runner. For
// a worker that found no unit to claim.
std::string ask_for_split_sql();

}  // namespace crossfade

// The statements of the sweep, made once per pass. Pure; proofs stand in the source.
#pragma once

#include <string>

#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// Parameters of a chunk statement, in order.
//   $1 migration id  $2 token  $3 phase  $4 mark  $5 pass  $6 unit  $7 unit's lease token
//   $8 previous watermark (text[] or NULL)  $9 low of the chunk (text[] or NULL)
//   $10 high of the chunk (text[])
//   $11 'true' when the chunk reaches the unit's bound
// Result: fence held (t/f), unit held (t/f), rows seen, rows that needed writing, rows written, rows parked,
// rejects, units advanced, calm (t/f; not calm: nothing was done, go the careful way).
enum class ChunkWay {
  plain,     // one UPDATE of the range
  careful,   // writes what nobody has locked, parks the rest as leftovers; never waits for a row
  tolerant,  // evaluates through the try function; rows whose expression fails become rejects
};

std::string chunk_sql(const Migration& migration, const QualifiedName& table, ChunkWay way, bool low_is_open);

// One row by key, whatever its unit, parked or rejected. $1 … $4 as above, $5 key (text[]); a leftover also
// $6 pass and $7 unit, and is taken off the list in the same statement.
// Result: fence held, rows that exist, rows written. Waits at most lock_timeout while it holds nothing.
enum class RowOf { table, leftover };
std::string write_row_sql(const Migration& migration, const QualifiedName& table, RowOf row = RowOf::table);

// The key of one row of ($1, $2] that still differs, read in its own snapshot.
std::string differing_key_sql(const Migration& migration, const QualifiedName& table, bool low_is_open);

}  // namespace crossfade

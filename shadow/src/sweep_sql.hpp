// The statements of the sweep, made once per pass. Pure; proofs stand in the source.
#pragma once

#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "sweep_position.hpp"

namespace crossfade {

enum class ChunkWay {
  plain,     // one UPDATE of the range
  careful,   // writes what nobody has locked, parks the rest as leftovers; never waits for a row
  tolerant,  // evaluates through the try function; rows whose expression fails become rejects
};

// What a text depends on, beside the migration.
struct ChunkForm {
  enum class Low { open, bound };
  // one: only the rows of the visit's share, see sweep_sql.cpp.
  enum class Share { all, one };
  ChunkWay way = ChunkWay::plain;
  RangeBy by = RangeBy::key;
  Low low = Low::bound;
  Share share = Share::all;
};

// Result: fence held (t/f), unit held (t/f), rows seen, rows that needed writing (of a share by blocks both
// are the rows written), rows written, rows parked, rejects, units advanced, calm (t/f; not calm: nothing was
// done, go the careful way), rows whose new version stayed on its page, rewritten (t/f; the bounds are blocks
// of a storage that is gone: nothing was done).
std::string chunk_sql(const Migration& migration, const QualifiedName& table, const ChunkForm& form);

// Who sweeps what.
struct ChunkOf {
  MigrationId migration;
  Token token;
  Phase phase;
  Token mark;
  std::int64_t pass = 0;
  int unit = 0;
  std::string lease;  // of the unit
};
// The chunk's range and how it moves the unit. `done`: the unit is at its bound afterwards.
struct ChunkStep {
  SweepPosition before, after;
  std::optional<Key> low;
  Key high;
  bool done = false;
};
// The parameters of a chunk statement, whose form follows from the step.
SqlParams chunk_params(const ChunkOf& of, const ChunkStep& step);

// Adds the share that the next chunk of `at` takes, three parameters; nothing when it takes all rows.
void append_share(SqlParams& params, const SweepPosition& at);

// Opens or gives up the window of a unit that is still where `before` says. A row comes back if it was.
std::string set_window_sql();
SqlParams set_window_params(const ChunkOf& of, const SweepPosition& before, const SweepPosition& after);

// One row by key, whatever its unit, parked or rejected. $1 migration id, $2 token, $3 phase, $4 mark, $5 key
// (text[]); a leftover also $6 pass and $7 unit, and is taken off the list in the same statement.
// Result: fence held, rows that exist, rows written. Waits at most lock_timeout while it holds nothing.
enum class RowOf { table, leftover };
std::string write_row_sql(const Migration& migration, const QualifiedName& table, RowOf row = RowOf::table);

// Keys of the rows of the range that still differ, at most $3, read in their own snapshot. $1 low, $2 high,
// and with a share $4 to $6 as by append_share().
std::string differing_keys_sql(const Migration& migration, const QualifiedName& table, const ChunkForm& form);

}  // namespace crossfade

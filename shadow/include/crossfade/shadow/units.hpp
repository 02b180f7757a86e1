// Units: independent slices of the table with their own bounds, watermark and lease. A pass is a set of units
// whose bounds tile the keys up to the greatest one at its start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"

namespace crossfade {

// The running pass of `kind` (backfill or replay), or a new one whose units are planned in one transaction
// with it. Bounds are quantiles of a page sample, ordered by PostgreSQL; `high` is the closed upper bound
// (the greatest key at capture, or now for a replay). A backfill in physical order has bounds of blocks, up
// to the size at capture. Without `high` (an empty table) the pass is born ended.
PassRow open_sweep_pass(SqlSession& session, const Migration& migration, const QualifiedName& table,
                        std::string_view kind, const std::optional<Key>& high,
                        SweepOrder order = SweepOrder::automatic);

// Partitions that came after the capture, until compare: what is to be swept of them is read before the
// transaction in which it is stored. They go to the backfill while it runs, from which the units of
// partitions that went, or were attached anew, are taken off; after it to a catch_up, which is running then.
struct PlannedUnit {
  Oid relation;
  std::optional<Key> low;
  Key high;
  std::string relfilenode;  // the storage whose blocks are the bounds; empty: they are keys
};
std::vector<PlannedUnit> plan_arrived(SqlSession& session, const Migration& migration,
                                      const std::vector<Oid>& arrived);
void store_arrived(SqlSession& session, const Migration& migration, const std::vector<Oid>& arrived,
                   const std::vector<PlannedUnit>& units);

// Of the running sweep, the units whose blocks are of a storage that is gone, and those that take their
// place; read before the transaction in which they are stored.
struct RewrittenUnits {
  std::int64_t pass = 0;  // 0: no sweep is running, or all its bounds hold
  std::vector<int> void_ones;
  std::vector<PlannedUnit> units;
};
RewrittenUnits plan_rewritten(SqlSession& session, const Migration& migration);
void store_rewritten(SqlSession& session, const RewrittenUnits& planned);

struct UnitTotals {
  // rows_read: in an open window also what was written but not yet read by the last visit.
  std::int64_t total = 0, done = 0, rows_read = 0, rows_written = 0, chunks = 0, leftovers = 0;
  std::int64_t rows_hot = 0;  // written, and the new version stayed on its page
};
UnitTotals unit_totals(SqlSession& session, std::int64_t pass);

// The catch_up of an ended backfill, or a new one: ends the backfill when all its units are done, and hands
// over what it set aside, in one transaction. Born ended when that is nothing. nullopt while units are open.
std::optional<PassRow> open_catch_up(SqlSession& session, const Migration& migration, std::int64_t backfill);

// Ends the pass when every unit is at its bound and no leftover remains; sums the counters. False when it is
// not over.
bool end_sweep_pass(SqlSession& session, std::int64_t pass);

}  // namespace crossfade

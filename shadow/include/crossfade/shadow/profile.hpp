// The dry run's reader: reads the whole table once and reports what the migration would do, without writing
// to it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/collisions.hpp"
#include "crossfade/shadow/comparator.hpp"

namespace crossfade {

struct ErrorSamples {
  std::int64_t rows = 0;
  std::string message;    // of the first row
  std::vector<Key> keys;  // at most ten
};

struct ProfileReport {
  std::int64_t rows = 0;
  // forward differs from the old value: IS DISTINCT FROM for one type (by image when it has no equality),
  // else the text outputs differ
  std::int64_t changed = 0;
  std::int64_t nulls_in = 0, nulls_out = 0;
  std::int64_t errors = 0;  // rows whose forward fails, and NULL results for a NOT NULL column (23502)
  std::int64_t lossy = 0;  // backward(forward(x)) fails or differs from x in value; 0 for a one-way migration
  std::int64_t respelled = 0;  // it differs in spelling only (equal, but not identical: 1.5 and 1.50)
  std::int64_t rounded = 0;    // the modifier of the new type changes the value; counted in lossy too
  std::map<std::string, ErrorSamples> errors_by_sqlstate;
  std::vector<IndexCollisions> collisions;  // one per unique index on the column
  std::int64_t row_bytes = 0;               // size of the table's heap per row, so with its bloat
  double seconds = 0;                       // reading time
  // Forecast, see forecast() in profile.cpp for the formulas.
  double rows_per_second = 0;
  std::int64_t wal_bytes_low = 0, wal_bytes_high = 0, disk_growth_bytes = 0;
  double seconds_low = 0, seconds_high = 0;
};
std::int64_t colliding_rows(const ProfileReport& report);
std::string to_json(const ProfileReport& report);
ProfileReport profile_from_json(const std::string& text);
// The report of a pass; absent until report() was called for it.
std::optional<ProfileReport> profile_of(const PassRow& pass);

class Profiler {
 public:
  Profiler(const Migration& migration, QualifiedName table, RangePace pace = {});
  ~Profiler();
  // A running pass of kind profile, or a new one. Result rows are kept in crossfade.comparison, per range.
  PassRow open_pass(SqlSession& session);
  // As Comparator::run.
  bool run(SqlSession& session, CursorCache& cache, const PassRow& pass, std::chrono::milliseconds slice,
           const std::atomic<bool>& stop, const std::function<void(std::int64_t rows)>& progress,
           const ReadCrew& crew = {});
  std::int64_t rows_read() const;
  // The sum over the ranges of an ended pass; also stored in pass.result, where later calls read it. The
  // first call counts collisions, which reads the whole table once more per unique index that is not proved:
  // one statement without a time limit, which may be cancelled. Throws not_ready while the pass has not
  // ended. Collisions are counted on `reader`, or on `session` when a conflict with recovery cancels that.
  ProfileReport report(SqlSession& session, std::int64_t pass, SqlSession* reader = nullptr);

 private:
  Migration migration_;
  QualifiedName table_;
  RangePace pace_;
  std::string reader_;
  std::unique_ptr<RangeWalk> walk_;
};

}  // namespace crossfade

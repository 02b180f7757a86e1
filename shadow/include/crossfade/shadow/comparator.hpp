// The comparison: an independent reader. It shares no unit, no watermark and no statement with the sweep, so
// that it can find the sweep's bugs. Key order, short snapshots, one aggregate statement per range over both
// sides of the row. It stays where it was made: its workers know it by its address.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/read_crew.hpp"

namespace crossfade {

class RangeWalk;

enum class CompareDirection {
  forward,   // until the switch: the new column must be forward(old)
  backward,  // after it: new = forward(old), or old = backward(new)
};
// As crossfade.pass.direction has it.
constexpr std::string_view to_text(CompareDirection direction) {
  return direction == CompareDirection::forward ? "forward" : "backward";
}

struct PassRow {
  std::int64_t id = 0;
  std::string kind, direction, state, began_at, ended_at, fingerprint, result;
  std::int64_t rows_read = 0, rows_written = 0, differences = 0, excepted = 0, repairs = 0;
  double age_seconds = 0;  // since ended_at, by PostgreSQL's clock
};

struct DifferenceRow {
  Key key;
  std::string old_hash, new_hash;  // md5 of the text of the value, "NULL" for NULL
  std::string sqlstate;  // of the expression that fails, 23502 for a NULL that may not be; empty for neither
  std::string at, repaired_at;
};

// Rows of the first range; the following ones are adapted, and what was learnt is kept between slices.
struct RangePace {
  std::int64_t rows = 10'000;
  int failures = 0;       // in succession, of ranges of one row
  std::int64_t most = 0;  // rows of a range; 0: as many as its time allows
};

class Comparator {
 public:
  // Requires: the phase of `migration` has a capture (backfill … switched). `table` is its current name.
  Comparator(const Migration& migration, QualifiedName table, CompareDirection direction,
             RangePace pace = {});
  ~Comparator();

  // The running full pass of this direction, or a new one with the fingerprint of now.
  PassRow open_pass(SqlSession& session);

  // Reads ranges until `slice` is over or the pass has ended, with as many workers as `crew` has; commits
  // range rows every two seconds, at once when a range has differences, and when the slice ends. Returns true
  // when the pass has ended. Between ranges every worker looks at `stop`. Throws nothing for differences:
  // they are rows. On 57014, 55P03 and 40xxx a range is halved and read again. A range of one row that fails
  // five times in succession throws. Throws superseded when the pass was voided or another reader took it. A
  // pass whose ranges do not tile the key space is voided and throws internal_error. Sets the
  // statement_timeout of the session, and leaves it at none. With a replica ranges are read there, and stored
  // once that is proved (replica.hpp); what seems to differ is read again on `session`. A standby that was
  // lost is asked again in the next slice. After an error the next call goes on behind what was committed.
  bool run(SqlSession& session, CursorCache& cache, const PassRow& pass, std::chrono::milliseconds slice,
           const std::atomic<bool>& stop, const std::function<void(std::int64_t rows)>& progress,
           const ReadCrew& crew = {});

  // Of the pass that run() reads, since it was opened.
  std::int64_t rows_read() const;

  // Rows of crossfade.difference of the pass, in the order of the key; at most 10,000 are stored per pass.
  std::vector<DifferenceRow> differences(SqlSession& session, std::int64_t pass) const;
  // Writes the side that is not the truth, one row per transaction, for every unrepaired difference of the
  // pass; counts them in pass.repairs. Never overwrites the written side of a misfit. Rows that are locked,
  // that are fine by now or whose expression fails stay unrepaired. Returns how many rows were written;
  // nothing of it counts as verified. Leaves lock_timeout and statement_timeout of the session at none.
  std::int64_t repair(SqlSession& session, std::int64_t pass);
  // Old and new value of a key as text, read now, for --show-values; nullopt when the row is gone.
  std::optional<std::pair<SqlValue, SqlValue>> values(SqlSession& session, const Key& key) const;

 private:
  Migration migration_;
  QualifiedName table_;
  CompareDirection direction_;
  RangePace pace_;
  std::string reader_;  // who claims the passes that it reads
  std::unique_ptr<RangeWalk> walk_;
};

// The newest pass of a kind, whatever its state.
std::optional<PassRow> newest_pass(SqlSession& session, const MigrationId& id, std::string_view kind,
                                   std::string_view direction = "forward");
// Marks passes that are not to be trusted any more.
void void_passes(SqlSession& session, const MigrationId& id, std::string_view kind);

}  // namespace crossfade

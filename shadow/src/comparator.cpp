#include "crossfade/shadow/comparator.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include "comparator_sql.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "range_walk.hpp"
#include "reader_settings.hpp"

namespace crossfade {

namespace {

using std::chrono::milliseconds;

constexpr int kEqualReads = 3;
// Excepted rows count here too, which do not fill the list of keys.
constexpr std::int64_t kMostVerdicts = 100'000;
constexpr int kMostReads = 50;  // a row that changes between all of them is reported as it was last seen
constexpr auto kRepairLockTimeout = milliseconds(250);
constexpr auto kRepairStatementTimeout = milliseconds(5000);

bool is_difference(const SqlValue& verdict) { return verdict && *verdict != kExcepted; }

// A flagged row between two reads.
struct Suspect {
  std::string key;      // literal
  SqlResult::Row seen;  // of the last read
  int equal = 0;        // reads in succession that gave the same
};

DifferenceRow difference_of(const Suspect& suspect) {
  return {parse_key(suspect.key),
          text_of(suspect.seen[2]),
          text_of(suspect.seen[3]),
          text_of(suspect.seen[1]),
          "",
          ""};
}

// A built-in cast: cheap, and computed by as many processes as one likes.
bool is_plain_cast(const Expression& e, Totality at_least) { return e.derived && e.totality <= at_least; }

// Whether all that a range evaluates of a row is that.
bool casts_only(const Migration& m, CompareDirection direction, Totality at_least) {
  const auto& column = m.binding.column;
  if (direction == CompareDirection::backward &&
      (!column.backward || !is_plain_cast(*column.backward, at_least)))
    return false;
  return is_plain_cast(column.forward, at_least);
}

// Counts first: where nothing has a verdict that is all, and no row is looked at twice. Where something has
// one, the range is read again with the keys, and that answer counts: one statement for both sides. What the
// last range was says how the next one begins.
class RangeComparison : public RangeReader {
 public:
  RangeComparison(const Migration& migration, const QualifiedName& table, CompareDirection direction)
      : migration_(migration), table_(table), direction_(direction) {}

  RangeRead read(SqlSession& reader, const Piece& piece) override {
    const auto condition = key_range_sql(migration_.binding.key, "t", piece.read);
    try {
      return read_once(reader, condition, piece.processes);
    } catch (const Error& error) {
      if (tolerance_ == Tolerance::tolerant || !error.is_data_error() || !may_fail(migration_, direction_))
        throw;
    }
    tolerance_ = Tolerance::tolerant;
    return read_once(reader, condition, piece.processes);
  }

  bool may_share() const override { return casts_only(migration_, direction_, Totality::total); }

 private:
  RangeRead read_once(SqlSession& reader, const std::string& range, int processes) {
    RangeRead result;
    if (clean_) {
      const auto row =
          exec_shared(reader, range_counts_sql(migration_, table_, direction_, tolerance_, range), processes)
              .one("the range");
      const auto verdicts = int_of(row[1]);
      if (verdicts > kMostVerdicts) {
        result.density = Density::too_dense;
        return result;
      }
      if (verdicts == 0) {
        result.rows = int_of(row[0]);
        tolerance_ = Tolerance::strict;
        return result;
      }
    }
    const auto row =
        exec_shared(reader, range_verdicts_sql(migration_, table_, direction_, tolerance_, range), 1)
            .one("the range");
    const auto flagged = int_of(row[2]);
    clean_ = false;
    if (flagged > kFlaggedKeys) {
      result.density = Density::too_dense;
      return result;
    }
    result.rows = int_of(row[0]);
    result.excepted = int_of(row[1]);
    for (auto& key : parse_array(text_of(row[3]))) result.suspects.push_back(text_of(key));
    clean_ = flagged == 0 && result.excepted == 0;
    if (clean_) tolerance_ = Tolerance::strict;
    if (!clean_) result.density = flagged * 2 > kFlaggedKeys ? Density::dense : Density::unclean;
    return result;
  }

  const Migration& migration_;
  const QualifiedName& table_;
  CompareDirection direction_;
  Tolerance tolerance_ = Tolerance::strict;
  bool clean_ = true;  // as far as the last range says
};

// Those of `before` that still exist, with what they look like now.
std::vector<Suspect> read_again(SqlSession& primary, const std::string& keyed_sql,
                                const std::vector<Suspect>& before) {
  std::vector<std::optional<std::string>> keys;
  for (const auto& suspect : before) keys.emplace_back(suspect.key);
  std::unordered_map<std::string, SqlResult::Row> now;
  for (const auto& row : primary.exec_prepared(keyed_sql, {array_literal(keys)}).rows) {
    now[text_of(row[0])] = row;
  }
  std::vector<Suspect> after;
  for (const auto& suspect : before) {
    const auto seen = now.find(suspect.key);
    if (seen == now.end()) continue;
    after.push_back({suspect.key, seen->second, seen->second == suspect.seen ? suspect.equal + 1 : 1});
  }
  return after;
}

// Reads the flagged rows again, each read in a snapshot of its own, until three in succession agree.
std::vector<DifferenceRow> confirmed(SqlSession& primary, const std::string& keyed_sql,
                                     const std::vector<std::string>& keys) {
  std::vector<DifferenceRow> found;
  std::vector<Suspect> suspects;
  for (const auto& key : keys) suspects.push_back({key, {}, 0});
  for (int reads = 0; reads < kMostReads && !suspects.empty(); ++reads) {
    suspects = read_again(primary, keyed_sql, suspects);
    std::erase_if(suspects, [&](const Suspect& suspect) {
      if (suspect.equal < kEqualReads) return false;
      if (is_difference(suspect.seen[1])) found.push_back(difference_of(suspect));
      return true;
    });
  }
  for (const auto& suspect : suspects) {
    if (is_difference(suspect.seen[1])) found.push_back(difference_of(suspect));
  }
  return found;
}

// Both timeouts of a repair for a scope; none afterwards.
class RepairTimeouts {
 public:
  explicit RepairTimeouts(SqlSession& session) : session_(session) {
    set(kRepairLockTimeout, kRepairStatementTimeout);
  }
  ~RepairTimeouts() {
    try {
      if (session_.is_open()) set(milliseconds(0), milliseconds(0));
    } catch (const Error&) {
      // The session broke; its next user is told by its own call.
    }
  }
  RepairTimeouts(const RepairTimeouts&) = delete;
  RepairTimeouts& operator=(const RepairTimeouts&) = delete;

 private:
  void set(milliseconds lock, milliseconds statement) {
    session_.set_lock_timeout(lock);
    session_.set_statement_timeout(statement);
  }
  SqlSession& session_;
};

}  // namespace

Comparator::Comparator(const Migration& migration, QualifiedName table, CompareDirection direction,
                       RangePace pace)
    : migration_(migration),
      table_(std::move(table)),
      direction_(direction),
      pace_(pace),
      reader_(new_reader()) {}

Comparator::~Comparator() = default;

PassRow Comparator::open_pass(SqlSession& session) {
  return open_read_pass(session, migration_, table_, "compare", to_text(direction_),
                        read_fingerprint(session, migration_), reader_);
}

bool Comparator::run(SqlSession& session, CursorCache& cache, const PassRow& pass, milliseconds slice,
                     const std::atomic<bool>& stop, const std::function<void(std::int64_t rows)>& progress,
                     const ReadCrew& crew) {
  if (!walk_ || walk_->pass() != pass.id) {
    RangeWalk::Setup setup{migration_,        table_,          pass, reader_, "compare.range",
                           "compare.flushed", "compare.ended", {},   false,   {}};
    setup.reader_of_ranges = [this] {
      return std::make_unique<RangeComparison>(migration_, table_, direction_);
    };
    setup.is_cheap = casts_only(migration_, direction_, Totality::guarded);
    setup.confirm = [sql = keyed_verdicts_sql(migration_, table_, direction_)](SqlSession& primary,
                                                                               RangeRead& read) {
      read.found = confirmed(primary, sql, read.suspects);
      read.differences = static_cast<std::int64_t>(read.found.size());
    };
    walk_ = std::make_unique<RangeWalk>(std::move(setup), pace_);
  }
  return walk_->run(session, cache, crew, slice, stop, progress);
}

std::int64_t Comparator::rows_read() const { return walk_ ? walk_->rows_read() : 0; }

std::vector<DifferenceRow> Comparator::differences(SqlSession& session, std::int64_t pass) const {
  const auto found =
      session.exec(fmt::format("SELECT d.key, d.old_hash, d.new_hash, coalesce(d.sqlstate, ''), d.at,"
                               " coalesce(d.repaired_at::text, '')"
                               " FROM crossfade.difference d WHERE d.pass_id = $1::bigint ORDER BY {}",
                               key_array_order_sql(migration_.binding.key, "d.key")),
                   {std::to_string(pass)});
  std::vector<DifferenceRow> differences;
  for (const auto& row : found.rows) {
    differences.push_back({parse_key(text_of(row[0])), text_of(row[1]), text_of(row[2]), text_of(row[3]),
                           text_of(row[4]), text_of(row[5])});
  }
  return differences;
}

std::int64_t Comparator::repair(SqlSession& session, std::int64_t pass) {
  const auto sql = repair_sql(migration_, table_, direction_);
  const RepairTimeouts timeouts(session);
  std::int64_t repaired = 0;
  for (const auto& difference : differences(session, pass)) {
    if (!difference.repaired_at.empty()) continue;
    try {
      repaired += session
                      .exec_prepared(sql, {array_literal(difference.key), migration_.row.mark.text,
                                           std::to_string(pass)})
                      .affected_rows;
    } catch (const Error& error) {
      // Locked, undone, or refused by the value: the row stays as it is, and stays listed.
      if (!error.is_transient() && !error.is_data_error()) throw;
      continue;
    }
    failpoint::hit("repair.after");
  }
  return repaired;
}

std::optional<std::pair<SqlValue, SqlValue>> Comparator::values(SqlSession& session, const Key& key) const {
  const auto found = session.exec(values_sql(migration_, table_), {array_literal(key)});
  if (found.empty()) return std::nullopt;
  return std::pair{found[0][0], found[0][1]};
}

}  // namespace crossfade

#include "crossfade/shadow/comparator.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include "comparator_sql.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "range_walk.hpp"

namespace crossfade {

namespace {

using std::chrono::milliseconds;

constexpr int kEqualReads = 3;
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

class RangeComparison {
 public:
  // primary: where what seems to differ is looked at again.
  RangeComparison(SqlSession& primary, const Migration& migration, const QualifiedName& table,
                  CompareDirection direction)
      : primary_(primary),
        migration_(migration),
        table_(table),
        direction_(direction),
        keyed_sql_(keyed_verdicts_sql(migration, table, direction)) {}

  RangeRead read(SqlSession& reader, const KeyRange& range) {
    const auto row = verdicts(reader, range);
    const auto flagged = int_of(row[2]);
    RangeRead result;
    if (flagged > kFlaggedKeys) {
      result.density = RangeRead::Density::too_dense;
      return result;
    }
    if (flagged * 2 > kFlaggedKeys) result.density = RangeRead::Density::dense;
    result.rows = int_of(row[0]);
    result.excepted = int_of(row[1]);
    if (flagged > 0) result.found = confirmed(text_of(row[3]));
    result.differences = static_cast<std::int64_t>(result.found.size());
    return result;
  }

 private:
  SqlResult::Row verdicts(SqlSession& reader, const KeyRange& range) {
    const auto read = [&](Tolerance tolerance) {
      return reader
          .exec_prepared(range_verdicts_sql(migration_, table_, direction_, tolerance, range),
                         range_params(range))
          .one("the range");
    };
    try {
      return read(Tolerance::strict);
    } catch (const Error& error) {
      if (!error.is_data_error() || !may_fail(migration_, direction_)) throw;
    }
    return read(Tolerance::tolerant);
  }

  // Reads the flagged rows again, each read in a snapshot of its own, until three in succession agree.
  std::vector<DifferenceRow> confirmed(const std::string& keys) {
    std::vector<DifferenceRow> found;
    std::vector<Suspect> suspects;
    for (auto& key : parse_array(keys)) suspects.push_back({text_of(key), {}, 0});
    for (int reads = 0; reads < kMostReads && !suspects.empty(); ++reads) {
      suspects = read_again(suspects);
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

  // Those of `before` that still exist, with what they look like now.
  std::vector<Suspect> read_again(const std::vector<Suspect>& before) {
    std::vector<std::optional<std::string>> keys;
    for (const auto& suspect : before) keys.emplace_back(suspect.key);
    std::unordered_map<std::string, SqlResult::Row> now;
    for (const auto& row : primary_.exec_prepared(keyed_sql_, {array_literal(keys)}).rows) {
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

  SqlSession& primary_;
  const Migration& migration_;
  const QualifiedName& table_;
  CompareDirection direction_;
  std::string keyed_sql_;
};

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
    : migration_(migration), table_(std::move(table)), direction_(direction), pace_(pace) {}

PassRow Comparator::open_pass(SqlSession& session) {
  return open_read_pass(session, migration_, table_, "compare", to_text(direction_),
                        read_fingerprint(session, migration_));
}

bool Comparator::run(SqlSession& session, CursorCache& cache, const PassRow& pass, milliseconds slice,
                     const std::atomic<bool>& stop, const std::function<void(std::int64_t rows)>& progress,
                     Replica* replica) {
  RangeWalk walk(session, cache,
                 {migration_, table_, pass.id, "compare.range", "compare.flushed", "compare.ended", replica},
                 pace_);
  RangeComparison comparison(session, migration_, table_, direction_);
  return walk.run(slice, stop, progress,
                  [&](SqlSession& reader, const KeyRange& range) { return comparison.read(reader, range); });
}

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

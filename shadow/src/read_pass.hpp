// The rows of a read-only pass in schema crossfade: the pass itself, its ranges, its differences. What is
// committed here is all that counts of a pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"

namespace crossfade {

// Kept per pass; beyond it differences are counted only.
inline constexpr std::int64_t kStoredDifferences = 10'000;

// A row of crossfade.comparison. An absent high is the end of the key space, of the last range only.
struct RangeRow {
  std::int64_t number = 0;
  KeyRange range;
  std::int64_t rows_read = 0, differences = 0, excepted = 0;
  std::string result = "{}";
};

// Where a pass goes on: between and behind its committed ranges.
struct PassPosition {
  std::string state;
  std::int64_t next_number = 1;
  std::vector<KeyRange> open;       // in the order of the key; empty: everything is committed
  std::optional<Key> opening_high;  // greatest key when the pass began; absent when the table was empty
  std::int64_t rows_read = 0;
  std::int64_t stored_differences = 0;
};

// Who reads a pass, drawn for each reader: what was read by one that another took the pass from is not
// stored.
std::string new_reader();

// The running pass, or a new one. `fingerprint` is jsonb text, empty for none; it is stored in a new pass
// only, as is `reader`.
PassRow open_read_pass(SqlSession& session, const Migration& migration, const QualifiedName& table,
                       std::string_view kind, std::string_view direction, const std::string& fingerprint,
                       const std::string& reader);

// Makes `reader` the one whose ranges are stored; waits for a statement of the one before. Throws superseded
// when the pass is void. Whether it has one that is `reader` already is to be seen in PassRow.result.
void claim_pass(SqlSession& session, std::int64_t pass, const std::string& reader);
bool is_claimed(const PassRow& pass, const std::string& reader);

PassPosition position_of(SqlSession& session, std::int64_t pass, const KeyFacts& key);

// Ranges and the differences found in them, in one synchronously committed statement. Returns how many
// differences were stored, at most `room`. Throws superseded when the pass no longer runs, or another reader
// claimed it.
std::int64_t store_ranges(SqlSession& session, std::int64_t pass, const std::string& reader,
                          const std::vector<RangeRow>& ranges, const std::vector<DifferenceRow>& differences,
                          std::int64_t room);

// Checks that the ranges tile the key space and ends the pass with their sums, in one statement; a pass that
// was ended already stays as it is. Otherwise voids the pass and throws internal_error; throws superseded for
// a void one.
void end_pass(SqlSession& session, std::int64_t pass, const KeyFacts& key);

// Removes the ranges of older passes of the kind and direction of `pass`; those of the newest three stay.
void prune_ranges(SqlSession& session, std::int64_t pass);

}  // namespace crossfade

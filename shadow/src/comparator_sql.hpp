// Statements of the comparison and of its repair. Pure; identifiers are quoted, values are parameters.
#pragma once

#include <string>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"

namespace crossfade {

enum class Tolerance {
  strict,    // the first expression that fails fails the statement; fast
  tolerant,  // failing expressions are caught row by row
};

// The verdict that stands for a failing row whose failure is recorded.
inline constexpr std::string_view kExcepted = "+";
// Flagged keys that one range may return.
inline constexpr std::int64_t kFlaggedKeys = 1000;

// True when a strict statement may fail on a value, so that a tolerant one is needed.
bool may_fail(const Migration& migration, CompareDirection direction);

// text of alias `t`: NULL for a row that is fine, kExcepted, else the SQLSTATE of a difference, '' when
// nothing failed.
std::string verdict_sql(const Migration& migration, CompareDirection direction, Tolerance tolerance);

// One row: rows, and how many of them have a verdict. Nothing else is made of a row, so it is what a range
// costs that is clean. `range`: a condition over alias t.
std::string range_counts_sql(const Migration& migration, const QualifiedName& table,
                             CompareDirection direction, Tolerance tolerance, const std::string& range);
// One row: rows, excepted, flagged (differences), text[] of at most kFlaggedKeys flagged keys.
std::string range_verdicts_sql(const Migration& migration, const QualifiedName& table,
                               CompareDirection direction, Tolerance tolerance, const std::string& range);

// $1: text[] of key literals. One row per key that exists: key literal, verdict, hash of old, hash of new.
std::string keyed_verdicts_sql(const Migration& migration, const QualifiedName& table,
                               CompareDirection direction);

// $1: key, $2: mark, $3: pass. One row affected when the row was written. Requires: a backward expression
// when backward.
std::string repair_sql(const Migration& migration, const QualifiedName& table, CompareDirection direction);

// $1: key. Old and new value as text.
std::string values_sql(const Migration& migration, const QualifiedName& table);

}  // namespace crossfade

// What PostgreSQL says of an expression before it is bound.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/spec.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

enum class Direction { forward, backward };
std::string_view word(Direction direction);

// An expression of one column with everything that its judgement rests on.
struct Candidate {
  const TableFacts& table;
  const ColumnSpec& column;
  Direction direction;
  const TypeFacts& new_type;  // of the column that a backward expression reads
  const TypeFacts& target;    // what the result is coerced to
  std::string expression;
};

struct Judged {
  std::vector<ExpressionInput> inputs;
  bool accepted = false;  // it can be bound; a stable one only once its finding is accepted
  bool stable = false;
  bool follows_settings = false;  // computed under pinned settings it is the same in every session
};

// PostgreSQL itself is the judge: a stored generated column on an empty copy of the table refuses what is not
// immutable, sub-selects, aggregates, window and set-returning functions. What it calls not immutable is read
// in its rule tree: volatile is refused for good, stable may be accepted. Everything is undone.
Judged judge(SqlSession& session, const Candidate& candidate, std::vector<Finding>& findings);

}  // namespace crossfade

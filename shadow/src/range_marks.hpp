// Where a range can be cut into parts of about equal size without reading it: from what ANALYZE knows of the
// key's first column. Only the size of a part rests on it: a mark is a key, and any key may end a range.
#pragma once

#include <deque>
#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct Mark {
  Key key;
  double rows = 0;  // about how many lie between the mark before, or the low end, and this one
};

struct RangeMarks {
  std::deque<Mark> marks;  // in the order of the key, inside the range
  double rows_after = 0;   // behind the last mark
};

// Without marks where nothing is known: a table that was never analyzed, a key whose first column has common
// values.
RangeMarks range_marks(SqlSession& session, Oid table_oid, const QualifiedName& table, const KeyFacts& key,
                       const KeyRange& range);
// Its text. $1: oid of the table, $2: the key's first column; `range`: a condition over alias r.
std::string range_marks_sql(const QualifiedName& table, const KeyFacts& key, const std::string& range);

}  // namespace crossfade

// How near the values of a column that became a wider integer are to the end of its old type.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// The bound of an integer type, as digits: what lies past it the old column cannot hold.
std::string greatest_of(const std::string& integer_type);

// One sentence for each sequence that the column draws from, and one for its values, that has used 80 % of
// the old type and is not yet past it. The values are looked at only where an index begins with the column,
// so that it costs two looks into it. Requires: phase switched.
std::vector<std::string> range_warnings(SqlSession& session, const Migration& switched,
                                        const QualifiedName& table);

}  // namespace crossfade

// The fingerprint of everything outside our control that the capture's correctness rests on: oid and xmin of
// the catalog rows concerned (columns by value). A text hash would miss "disable, write, enable"; the xmin
// does not.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// A scalar SQL expression of type jsonb: an object from "what it is" to "oid:xmin". No parameters, so that it
// can stand in a prepared block under the switch lock.
std::string fingerprint_sql(const Migration& migration);
std::string read_fingerprint(SqlSession& session, const Migration& migration);
// What differs between two fingerprints, in words ("trigger audit was added"); empty when they are equal.
std::vector<std::string> fingerprint_changes(const std::string& before, const std::string& after);

}  // namespace crossfade

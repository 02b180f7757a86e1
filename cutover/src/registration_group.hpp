// What is asked of a group before it is registered.
#pragma once

#include <vector>

#include "crossfade/shadow/foreign_keys.hpp"
#include "registration.hpp"

namespace crossfade {

std::vector<int> attnums_of(const std::vector<ForeignKeyColumn>& columns, Oid table);
// Another migration of the group is on the member's table.
bool shares_table(const Registration& leader, const Registration& member);
// It has expressions, so that it can be asked what hangs on it.
bool is_bound(const ColumnBinding& column);
// Tells each column which others of its table move in the same switch: what stands on several of them is
// carried by one, over the new columns of all. Requires: all are bound, or refused.
void introduce_companions(Registration& leader);
// Takes the members' findings over, and adds what forbids the group as a whole: a conversion that does not
// keep every value.
void check_group(Registration& leader);

}  // namespace crossfade

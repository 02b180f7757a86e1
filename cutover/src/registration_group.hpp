// What is asked of a group before it is registered.
#pragma once

#include <vector>

#include "crossfade/shadow/foreign_keys.hpp"
#include "registration.hpp"

namespace crossfade {

std::vector<int> attnums_of(const std::vector<ForeignKeyColumn>& columns, Oid table);
// Another migration of the group is on the member's table.
bool shares_table(const Registration& leader, const Registration& member);
// Takes the members' findings over, and adds what forbids the group as a whole: a conversion that does not
// keep every value, an index over two migrated columns.
void check_group(Registration& leader);

}  // namespace crossfade

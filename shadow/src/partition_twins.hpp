// The twin of a partitioned index: an index ON ONLY the table, then a part on each partition, built
// CONCURRENTLY and attached. Since the index on the table comes first, a partition that comes meanwhile gets
// its part from PostgreSQL.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "crossfade/shadow/statements.hpp"
#include "index_build.hpp"

namespace crossfade {

// One step towards the parts of an index that is not valid yet: builds, removes what a dead builder left, or
// attaches. Requires: the index on the table exists.
void complete_one_part(SqlSession& session, const Migration& migration, const IndexBuild& whole,
                       std::chrono::milliseconds lock_timeout);
// That step is CREATE INDEX CONCURRENTLY.
bool next_part_is_built(SqlSession& session, const Migration& migration, const IndexBuild& whole);
// Parts that were built and not attached when dual_write was left; the attached ones go with the index.
std::string drop_loose_parts_sql(const Migration& migration);
// For `plan`: as the partitions are now.
std::vector<Statement> part_statements(SqlSession& session, const Migration& migration,
                                       const IndexBuild& whole);

}  // namespace crossfade

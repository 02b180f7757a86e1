// A table, or a partition, that got another storage while a migration is open: VACUUM FULL, CLUSTER,
// TRUNCATE, a move to another tablespace, an ALTER TABLE that rewrites for another column. The fingerprint
// tells of it like of any change; where nothing else changed it is answered by work and not by failing.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct RewriteChanges {
  std::vector<std::string> what;  // "table storage", "storage of partition NAME"
  bool only = false;              // nothing else differs
};
// Between the migration's fingerprint and `after`. While what an archive holds rests on the storage, none is
// followed: TRUNCATE fires no trigger that would tell it.
RewriteChanges rewrite_changes(const Migration& migration, const std::string& after);

// Makes `now` the fingerprint of the migration, and what follows from the change, in one transaction: of the
// running sweep, units whose bounds are blocks of a storage that is gone give way to units of the present
// one; replays and comparisons are void. The action is written with it. Requires: changes.only. False when
// the migration was changed meanwhile by another runner.
bool follow_rewrite(SqlSession& session, const Migration& migration, const RewriteChanges& changes,
                    const std::string& now, const std::string& operator_name, const std::string& host);

}  // namespace crossfade

// Short DDL outside a phase change, under the token of the runner that sends it.
#pragma once

#include <chrono>
#include <string>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

enum class TokenFence {
  held,  // nobody can take the migration over before COMMIT; for what takes no time
  read,  // looked at once; for what may scan the table, so that the lease can still be renewed
};

// A DO block that raises CF002 unless the migration's token is the one of `migration`. It never waits for the
// migration row, because it runs while the table is locked: 55P03 when somebody changes that row right now.
std::string token_fence_sql(const Migration& migration, TokenFence fence);

// One message: the table lock, within `lock_timeout`; the fence; the statements; COMMIT. Throws superseded
// when another runner has the migration, and an Error with is_lock_not_available() for a miss.
void run_fenced(SqlSession& session, const Migration& migration, const QualifiedName& table,
                std::string_view lock_mode, TokenFence fence, std::chrono::milliseconds lock_timeout,
                const std::string& statements);

// The same for a lock that is taken by `lock` itself (statements), so that no partition is locked with it.
void run_fenced_after(SqlSession& session, const Migration& migration, const std::string& lock,
                      TokenFence fence, std::chrono::milliseconds lock_timeout,
                      const std::string& statements);

// The Error of a raised fence as superseded; any other as it is.
Error translated(const Error& error, const Migration& migration);

}  // namespace crossfade

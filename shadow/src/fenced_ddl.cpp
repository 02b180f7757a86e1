// Why a runner that wakes up late changes nothing. Its statement is granted the table lock, and only then
// reads the token, in a snapshot of its own. A takeover that committed before that is seen, and nothing is
// done. One that comes later waits for the row lock (held), and its first statement of the same kind waits
// for the table lock, then finds what was done. The lock on the migration row is the last one taken and is
// never waited for: phase changes lock that row before the table, so waiting here would be a deadlock.
#include "fenced_ddl.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/lock_attempts.hpp"

namespace crossfade {

namespace {
constexpr const char* kTokenMoved = "CF002";

// LOCK TABLE takes the partitions too, and lock_timeout counts for each of them anew: one deadline for all.
// While it holds some and waits for another it may close a cycle, as the switch may.
std::string lock_sql(const Migration& m, const QualifiedName& table, std::string_view lock_mode,
                     std::chrono::milliseconds lock_timeout) {
  const auto lock = fmt::format("LOCK TABLE {} IN {} MODE;\n", table.sql(), lock_mode);
  if (!m.binding.key.partitioned) return lock;
  return fmt::format(
      "SET LOCAL statement_timeout = {};\n{}{}"
      "SET LOCAL statement_timeout = 0;\n",
      lock_timeout.count() + 5, calm_or_miss_sql(), lock);
}
}  // namespace

std::string token_fence_sql(const Migration& m, TokenFence fence) {
  const auto body = fmt::format(
      "BEGIN\n  PERFORM FROM crossfade.migration m WHERE m.id = {} AND m.token = {}{};\n"
      "  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = '{}',"
      " MESSAGE = 'another runner took the migration over'; END IF;\nEND",
      quote_literal(m.row.id.text), quote_literal(m.row.token.text),
      fence == TokenFence::held ? " FOR SHARE NOWAIT" : "", kTokenMoved);
  return fmt::format("DO {};\n", quote_literal(body));
}

void run_fenced_after(SqlSession& session, const Migration& m, const std::string& lock, TokenFence fence,
                      std::chrono::milliseconds lock_timeout, const std::string& statements) {
  // The timeout goes into the transaction, so that the session's own setting stays as it is.
  try {
    session.script(fmt::format("BEGIN;\nSET LOCAL lock_timeout = {};\n", lock_timeout.count()) + lock +
                   token_fence_sql(m, fence) + statements + "COMMIT;");
  } catch (const Error& error) {
    throw translated(error, m);
  }
}

void run_fenced(SqlSession& session, const Migration& m, const QualifiedName& table,
                std::string_view lock_mode, TokenFence fence, std::chrono::milliseconds lock_timeout,
                const std::string& statements) {
  run_fenced_after(session, m, lock_sql(m, table, lock_mode, lock_timeout), fence, lock_timeout, statements);
}

Error translated(const Error& error, const Migration& m) {
  if (error.sqlstate() != kTokenMoved) return error;
  return Error(ErrorCode::superseded, error.message(), "see 'crossfade status'", m.row.name);
}

}  // namespace crossfade

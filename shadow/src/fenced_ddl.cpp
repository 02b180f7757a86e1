// Why a runner that wakes up late changes nothing. Its statement is granted the table lock, and only then
// reads the token, in a snapshot of its own. A takeover that committed before that is seen, and nothing is
// done. One that comes later waits for the row lock (held), and its first statement of the same kind waits
// for the table lock, then finds what was done. The lock on the migration row is the last one taken and is
// never waited for: phase changes lock that row before the table, so waiting here would be a deadlock.
#include "fenced_ddl.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {
constexpr const char* kTokenMoved = "CF002";
}

std::string token_fence_sql(const Migration& m, TokenFence fence) {
  const auto body = fmt::format(
      "BEGIN\n  PERFORM FROM crossfade.migration m WHERE m.id = {} AND m.token = {}{};\n"
      "  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = '{}',"
      " MESSAGE = 'another runner took the migration over'; END IF;\nEND",
      quote_literal(m.row.id.text), quote_literal(m.row.token.text),
      fence == TokenFence::held ? " FOR SHARE NOWAIT" : "", kTokenMoved);
  return fmt::format("DO {};\n", quote_literal(body));
}

void run_fenced(SqlSession& session, const Migration& m, const QualifiedName& table,
                std::string_view lock_mode, TokenFence fence, std::chrono::milliseconds lock_timeout,
                const std::string& statements) {
  // The timeout goes into the transaction, so that the session's own setting stays as it is.
  try {
    session.script(fmt::format("BEGIN;\nSET LOCAL lock_timeout = {};\nLOCK TABLE {} IN {} MODE;\n",
                               lock_timeout.count(), table.sql(), lock_mode) +
                   token_fence_sql(m, fence) + statements + "COMMIT;");
  } catch (const Error& error) {
    throw translated(error, m);
  }
}

Error translated(const Error& error, const Migration& m) {
  if (error.sqlstate() != kTokenMoved) return error;
  return Error(ErrorCode::superseded, error.message(), "see 'crossfade status'", m.row.name);
}

}  // namespace crossfade

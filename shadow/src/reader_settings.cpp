#include "reader_settings.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"

namespace crossfade {

void set_reader_settings(SqlSession& session) {
  session.script("SET statement_timeout = '5s'; SET max_parallel_workers_per_gather = 0");
}

// Statements in one message are one transaction, for which the setting is made.
SqlResult exec_shared(SqlSession& session, const std::string& sql, int processes) {
  if (processes == 1) return session.exec(sql);
  return session.script(
      fmt::format("SET LOCAL max_parallel_workers_per_gather = {}; {}", processes - 1, sql));
}

ReaderSettings::ReaderSettings(SqlSession& session) : session_(session) { set_reader_settings(session); }

ReaderSettings::~ReaderSettings() {
  try {
    if (session_.is_open())
      session_.script("SET statement_timeout = 0; RESET max_parallel_workers_per_gather");
  } catch (const Error&) {
    // The session broke; its next user is told by its own call.
  }
}

}  // namespace crossfade

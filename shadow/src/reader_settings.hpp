// How a session reads ranges.
#pragma once

#include <string>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {

// A statement ends after five seconds, and runs in one process, since `workers` says how many there are.
void set_reader_settings(SqlSession& session);

// One statement without parameters, in which as many processes of the server may share.
SqlResult exec_shared(SqlSession& session, const std::string& sql, int processes);

// For a scope; then as the session had it.
class ReaderSettings {
 public:
  explicit ReaderSettings(SqlSession& session);
  ~ReaderSettings();
  ReaderSettings(const ReaderSettings&) = delete;
  ReaderSettings& operator=(const ReaderSettings&) = delete;

 private:
  SqlSession& session_;
};

}  // namespace crossfade

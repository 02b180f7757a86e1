// One libpqxx connection with the differences between libpqxx 6.4 and 7 inside. Throws libpqxx's own
// exceptions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {

class PqxxSession {
 public:
  explicit PqxxSession(const std::string& conninfo);
  ~PqxxSession();
  PqxxSession(const PqxxSession&) = delete;
  PqxxSession& operator=(const PqxxSession&) = delete;

  // The simple protocol: one message, any number of statements.
  SqlResult exec(const std::string& sql);
  SqlResult exec(const std::string& sql, const SqlParams& params);
  void prepare(const std::string& name, const std::string& sql);
  SqlResult exec_prepared(const std::string& name, const SqlParams& params);

  bool is_open() const;
  void cancel() noexcept;
  int backend_pid() const { return backend_pid_; }
  int server_version() const { return server_version_; }
  const std::string& role() const { return role_; }
  std::vector<std::string> take_notices();

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
  int backend_pid_ = 0;
  int server_version_ = 0;
  std::string role_;
};

}  // namespace crossfade

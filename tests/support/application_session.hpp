// A session as an application's driver makes it: plain libpq, nothing of crossfade in between.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct pg_conn;

namespace crossfade::test {

class ApplicationError : public std::runtime_error {
 public:
  ApplicationError(std::string sqlstate, const std::string& message, const std::string& sql);
  const std::string& sqlstate() const { return sqlstate_; }

 private:
  std::string sqlstate_;  // empty when the connection was lost
};

class ApplicationSession {
 public:
  // search_path is public; `settings` are statements that run next.
  explicit ApplicationSession(const std::string& dsn, const std::string& settings = {});

  // One message, which may hold several statements. Throws ApplicationError.
  void run(const std::string& sql);
  // The rows of the last statement; NULL as "NULL".
  std::vector<std::vector<std::string>> rows(const std::string& sql);
  std::string value(const std::string& sql);  // the one field of the one row
  // sql: COPY … FROM STDIN.
  void copy_in(const std::string& sql, std::string_view data);
  int backend_pid() const;

  // Sends without waiting for the answer, for statements that a test lets wait.
  void send(const std::string& sql);
  bool is_answered();
  void finish();  // waits for the answer; throws ApplicationError

 private:
  std::unique_ptr<pg_conn, void (*)(pg_conn*)> connection_;
  std::string sent_;
};

}  // namespace crossfade::test

// The fixture of every test that needs PostgreSQL: one server per process, one fresh database per test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "crossfade/core/sql_session.hpp"
#include "support/postgres_server.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {

class DatabaseTest : public ::testing::Test {
 protected:
  DatabaseTest();

  static PostgresServer& server();
  Database& database() { return *database_; }
  std::string dsn() const { return database_->dsn(); }
  std::string superuser_dsn() const { return database_->superuser_dsn(); }

  // One more application session: search_path public, notices of every level.
  SqlSession session() const { return open_session(dsn()); }
  SqlSession super_session() const { return open_session(superuser_dsn()); }

  // On two lasting sessions, opened at first use and again when lost: as app_owner, as superuser.
  SqlResult sql(const std::string& text, const SqlParams& params = {});
  SqlResult super_sql(const std::string& text, const SqlParams& params = {});
  // The first field of the first row, as owner; "NULL" for a NULL. Throws when there is no row.
  std::string value(const std::string& text, const SqlParams& params = {});
  std::string super_value(const std::string& text, const SqlParams& params = {});

  // Waits until `text` (one boolean) is true, asked as superuser.
  void wait_until_true(const std::string& text, const SqlParams& params = {});
  // Waits until the backend waits for a heavyweight lock.
  void wait_until_blocked(int backend_pid);

 private:
  std::unique_ptr<Database> database_;
  struct LastingSession {
    std::optional<SqlSession> session;
    int start = 0;  // of the server that it belongs to
  };
  SqlResult run(LastingSession& lasting, const std::string& dsn, const std::string& text,
                const SqlParams& params);
  LastingSession owner_, super_;
};

}  // namespace crossfade::test

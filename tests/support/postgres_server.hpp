// A private PostgreSQL: a direct child of the test process that dies with it, reachable by a socket in a
// private folder only. A machine without PostgreSQL fails the test; nothing is skipped.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "support/child_process.hpp"
#include "support/files.hpp"

namespace crossfade::test {

class PostgresServer;

struct PostgresOptions {
  std::vector<std::string> settings;                          // name=value, after our own
  enum class Role { primary, standby } role = Role::primary;  // standby: read-only for ever, follows nobody
  PostgresServer* follows = nullptr;  // a copy of this running server that streams from it without waiting
};

// A fresh database; dropped with the object, with whoever is connected to it.
class Database {
 public:
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  const std::string& name() const { return name_; }
  // As app_owner: LOGIN, no superuser, owner of the database.
  std::string dsn() const;
  std::string superuser_dsn() const;

 private:
  friend class PostgresServer;
  Database(PostgresServer& server, std::string name) : server_(server), name_(std::move(name)) {}
  PostgresServer& server_;
  std::string name_;
};

class PostgresServer {
 public:
  // Started and answering on return. Throws std::runtime_error with the end of the server's log.
  explicit PostgresServer(PostgresOptions options = {});
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  std::unique_ptr<Database> create_database();
  std::string dsn(std::string_view database, std::string_view role) const;
  // Superuser, in database postgres, search_path public; opened again when it was lost.
  SqlSession& admin();

  // As a crash: no checkpoint, no farewell; what was not durable is gone, prepared transactions stay.
  void stop_immediate();
  // Waits for running transactions to be rolled back and writes a checkpoint.
  void stop_fast();
  // Stops as a crash would when it runs, starts, and waits until it answers.
  void restart();
  bool is_running() { return process_.is_running(); }
  // A standby that follows becomes a primary.
  void promote();
  // Counts the starts: sessions of an earlier one are dead.
  int starts() const { return starts_; }
  pid_t pid() const { return process_.pid(); }

  // Replaces pg_hba.conf and loads it.
  void set_access_rules(std::string_view pg_hba);
  std::string log() const { return read_text(log_path()); }
  const std::filesystem::path& folder() const { return folder_.path(); }

  // The folder of initdb, postgres, pgbench and so on. Throws when there is none.
  static std::filesystem::path binaries();

 private:
  std::filesystem::path data_path() const { return folder_.path() / "data"; }
  std::filesystem::path log_path() const { return folder_.path() / "server.log"; }
  void start();
  bool answers() const;
  void stop(int signal);

  PostgresOptions options_;
  PrivateFolder folder_{"postgres"};
  ChildProcess process_;
  std::optional<SqlSession> admin_;
  int databases_ = 0;
  int starts_ = 0;
};

// Connects as an application would: search_path public, notices of every level.
SqlSession open_session(const std::string& dsn, const std::string& application_name = "test");

}  // namespace crossfade::test

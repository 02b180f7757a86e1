// The door to PostgreSQL. One folder (core/src/sql) includes pqxx; libpqxx 6.4 and 7 behave the same through
// it.
//
// A session sets every parameter that Crossfade depends on at connect (search_path = pg_catalog, row_security
// = off, DateStyle, IntervalStyle, TimeZone, extra_float_digits, bytea_output, standard_conforming_strings,
// lock and statement timeouts, application_name, client_min_messages) and trusts no role setting. A session
// that broke is thrown away: every later call throws connection_lost; nothing reconnects silently.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/ids.hpp"

namespace crossfade {

using SqlValue = std::optional<std::string>;
using SqlParams = std::vector<SqlValue>;

class SqlResult {
 public:
  using Row = std::vector<SqlValue>;
  std::vector<Row> rows;
  std::int64_t affected_rows = 0;

  bool empty() const { return rows.empty(); }
  std::size_t size() const { return rows.size(); }
  const Row& operator[](std::size_t index) const { return rows[index]; }
  // The first row; throws internal_error naming `what` when there is none.
  const Row& one(std::string_view what) const;
};

// Throw internal_error on NULL or a malformed number.
std::string text_of(const SqlValue& value);
std::int64_t int_of(const SqlValue& value);
double double_of(const SqlValue& value);
bool bool_of(const SqlValue& value);  // t or f

struct ConnectOptions {
  std::string dsn;               // libpq conninfo or URI; empty: libpq's own environment
  std::string application_name;  // "crossfade/NAME/role", shortened to 63 bytes
  std::chrono::milliseconds connect_timeout{10000};
};

// Refuses a password in the dsn (conninfo or URI form) with password_in_dsn, without repeating it.
void refuse_password(std::string_view dsn);
// The dsn with everything secret removed, safe to show.
std::string redacted(std::string_view dsn);

struct ServerIdentity {
  int version_num = 0;            // as server_version_num
  std::string system_identifier;  // empty when the role may not read it
  std::uint32_t database_oid = 0;
  std::string timeline;  // eight hexadecimal digits
};

class SqlSession {
 public:
  // Throws server_unreachable, authentication_failed, server_too_old (below 14), read_only_server (in
  // recovery, unless allow_standby). Messages name host and database, never a secret.
  enum class Target { primary, allow_standby };
  static SqlSession connect(const ConnectOptions& options, Target target = Target::primary);
  SqlSession(SqlSession&&) noexcept;
  SqlSession& operator=(SqlSession&&) noexcept;
  ~SqlSession();

  // One statement in its own transaction (autocommit), or within the open one. Parameters are text; NULL is
  // nullopt. A commit whose answer is lost throws connection_lost with Effect::unknown.
  SqlResult exec(const std::string& sql, const SqlParams& params = {});
  // The same, prepared once per session and text: for statements that run per chunk.
  SqlResult exec_prepared(const std::string& sql, const SqlParams& params = {});
  // Several statements in one message (simple protocol, no parameters); the last statement's rows. With BEGIN
  // … COMMIT inside there is no client round trip between the first lock and the commit. After an error the
  // server has rolled back what the message began. A lost answer throws connection_lost with Effect::unknown.
  SqlResult script(const std::string& sql);

  // Transactions by plain statements: `begin` … `commit`. commit() of a transaction in which a statement
  // failed throws internal_error and rolls back. `rollback` never throws.
  void begin();
  void commit();
  void rollback() noexcept;
  bool in_transaction() const;
  // Inside an open transaction: the statements and COMMIT in one message, so that no client round trip lies
  // between the first lock and the commit. On return the transaction is committed. An error rolls it back; a
  // lost answer throws connection_lost with Effect::unknown.
  void commit_with(const std::string& sql);

  // SET for the session, re-armed on every attempt by who needs it. 0 means none.
  void set_lock_timeout(std::chrono::milliseconds timeout);
  void set_statement_timeout(std::chrono::milliseconds timeout);

  // Safe from another thread while a statement runs: the statement ends with 57014.
  void cancel() noexcept;
  int backend_pid() const;
  const ServerIdentity& identity() const;
  bool is_open() const;
  // Is told the text of every statement before it is sent, until it is replaced: how `plan` shows what
  // `start` sends. Must not throw.
  void watch(std::function<void(const std::string& sql)> watcher);
  // Notices that the server sent since the last call (NOTICE, WARNING), for tests and -v.
  std::vector<std::string> take_notices();

 private:
  friend class Savepoint;
  struct Impl;
  // A savepoint was rolled back to: the open transaction can go on.
  void recovered();
  explicit SqlSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Begins in the constructor, rolls back in the destructor unless committed.
class Transaction {
 public:
  explicit Transaction(SqlSession& session);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  SqlSession& session() { return session_; }
  void commit();

 private:
  SqlSession& session_;
  bool open_ = true;
};

// A savepoint inside an open transaction. Undone in the destructor unless released; after rollback() the
// transaction goes on although a statement failed in it.
class Savepoint {
 public:
  explicit Savepoint(SqlSession& session);
  ~Savepoint();
  Savepoint(const Savepoint&) = delete;
  Savepoint& operator=(const Savepoint&) = delete;
  void rollback();
  void release();

 private:
  SqlSession& session_;
  bool open_ = true;
};

// session_replication_role = replica where the role may set it: the user's ordinary triggers stay silent for
// what this session writes, while triggers that are ENABLE ALWAYS (ours) fire. False when the role may not.
// Keeps the role's own search_path in crossfade.search_path for the triggers that fire all the same.
bool silence_user_triggers(SqlSession& session);

// The Error that the door makes of a SQLSTATE; failpoints use it too.
Error error_from_sqlstate(std::string_view sqlstate, std::string message);

}  // namespace crossfade

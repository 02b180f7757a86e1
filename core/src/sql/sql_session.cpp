#include "crossfade/core/sql_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <unordered_map>
#include <utility>

#include "connect_failure.hpp"
#include "dsn.hpp"
#include "pqxx_errors.hpp"
#include "pqxx_session.hpp"
#include "session_settings.hpp"

namespace crossfade {
namespace {

constexpr int kOldestServer = 140000;

// What a lost answer leaves open.
enum class IfLost { nothing_changed, may_have_committed };

bool begins_a_transaction(std::string sql) {
  std::ranges::transform(sql, sql.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return sql.find("BEGIN") != std::string::npos || sql.find("START") != std::string::npos;
}

}  // namespace

struct SqlSession::Impl {
  PqxxSession connection;
  std::string target;
  ServerIdentity identity;
  std::unordered_map<std::string, std::string> prepared;  // by text
  std::size_t prepared_ever = 0;
  std::atomic<bool> broken = false;
  bool in_transaction = false;
  std::function<void(const std::string&)> watcher;
  bool failed = false;  // a statement of the open transaction failed: the server will only roll back

  Impl(const std::string& conninfo, std::string target_name)
      : connection(conninfo), target(std::move(target_name)) {}

  IfLost if_lost() const { return in_transaction ? IfLost::nothing_changed : IfLost::may_have_committed; }

  template <class Call>
  SqlResult run(const std::string& sql, IfLost lost, Call call) {
    if (broken) throw connection_lost(IfLost::nothing_changed);
    if (watcher) watcher(sql);
    try {
      return call();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& exception) {
      failed = in_transaction;
      // Whatever the server said last, it is the state of the connection that decides.
      if (!connection.is_open()) {
        broken = true;
        in_transaction = failed = false;
        throw connection_lost(lost);
      }
      throw statement_error(exception, sql, connection.role());
    }
  }

  SqlResult plain(const std::string& sql, IfLost lost) {
    return run(sql, lost, [&] { return connection.exec(sql); });
  }

  Error connection_lost(IfLost lost) const {
    const bool unknown = lost == IfLost::may_have_committed;
    return Error(
               ErrorCode::connection_lost,
               fmt::format("The connection to {} was lost (backend {}){}.", target, connection.backend_pid(),
                           unknown ? " before the answer came; the statement may have been committed" : ""),
               "Run the command again once the server can be reached; it continues where it was.")
        .with_effect(unknown ? Effect::unknown : Effect::none);
  }

  void prepare(const std::string& sql) {
    if (prepared.contains(sql)) return;
    std::string name = fmt::format("crossfade_{}", ++prepared_ever);
    connection.prepare(name, sql);
    prepared.emplace(sql, std::move(name));
  }

  // A pooler answers with a process id of its own making. Behind it our settings would stay with a session
  // that the application gets next, and our locks and lease would belong to a backend that is not ours. Asked
  // before anything is set.
  void refuse_pooler() {
    const SqlResult result = plain("SELECT pg_catalog.pg_backend_pid()", IfLost::nothing_changed);
    if (int_of(result.one("the backend")[0]) == connection.backend_pid()) return;
    throw Error(ErrorCode::connection_pooled,
                fmt::format("The server of {} is reached through a connection pooler (PgBouncer or its like);"
                            " crossfade needs sessions of its own.",
                            target),
                "Connect crossfade to PostgreSQL itself; the application may stay behind the pooler.");
  }

  void pin_settings() { plain(pin_settings_sql(), IfLost::nothing_changed); }

  void identify(Target wanted) {
    const SqlResult result = plain(identity_sql(), IfLost::nothing_changed);
    const SqlResult::Row& row = result.one("the identity of the server");
    if (wanted == Target::primary && (bool_of(row[0]) || bool_of(row[1]))) {
      throw Error(ErrorCode::read_only_server,
                  fmt::format("The server of {} is {}.", target, bool_of(row[0]) ? "a standby" : "read-only"),
                  "Connect to the primary, for example with target_session_attrs=read-write and all hosts.");
    }
    identity.version_num = connection.server_version();
    identity.database_oid = static_cast<std::uint32_t>(int_of(row[2]));
    identity.timeline = row[3].value_or("");
    if (!bool_of(row[4])) return;
    const SqlResult control = plain(control_file_sql(), IfLost::nothing_changed);
    const SqlResult::Row& file = control.one("the control file");
    identity.system_identifier = text_of(file[0]);
    // On a standby the control file is all there is; on a primary it may still name the timeline before a
    // promotion.
    if (identity.timeline.empty()) identity.timeline = text_of(file[1]);
  }
};

SqlSession::SqlSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqlSession::SqlSession(SqlSession&&) noexcept = default;
SqlSession& SqlSession::operator=(SqlSession&&) noexcept = default;
SqlSession::~SqlSession() = default;

SqlSession SqlSession::connect(const ConnectOptions& options, Target target) {
  const auto deadline = std::chrono::steady_clock::now() + options.connect_timeout;
  const std::string conninfo = dsn::for_session(options);
  const std::string name = dsn::description(dsn::parse(options.dsn));
  std::unique_ptr<Impl> impl;
  try {
    impl = std::make_unique<Impl>(conninfo, name);
  } catch (const std::exception& exception) {
    throw explain_connect_failure(conninfo, name, exception.what(), deadline);
  }
  if (const int version = impl->connection.server_version(); version < kOldestServer) {
    throw Error(
        ErrorCode::server_too_old,
        fmt::format("The server of {} is PostgreSQL {}; 14 is the oldest supported.", name, version / 10000));
  }
  try {
    impl->refuse_pooler();
    impl->pin_settings();
    impl->identify(target);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::connection_lost) throw;
    throw Error(ErrorCode::server_unreachable,
                fmt::format("The server of {} closed the new connection.", name),
                "Check that the server runs and that nothing between here and it closes connections.");
  }
  return SqlSession(std::move(impl));
}

void SqlSession::watch(std::function<void(const std::string&)> watcher) {
  impl_->watcher = std::move(watcher);
}

SqlResult SqlSession::exec(const std::string& sql, const SqlParams& params) {
  return impl_->run(sql, impl_->if_lost(), [&] { return impl_->connection.exec(sql, params); });
}

SqlResult SqlSession::exec_prepared(const std::string& sql, const SqlParams& params) {
  try {
    return impl_->run(sql, impl_->if_lost(), [&] {
      impl_->prepare(sql);
      return impl_->connection.exec_prepared(impl_->prepared.at(sql), params);
    });
  } catch (const Error& error) {
    // "cached plan must not change result type": the next attempt needs a new plan. The old name is not
    // deallocated, because the transaction may be one in which the server obeys nothing but ROLLBACK.
    if (error.sqlstate() == "0A000") impl_->prepared.erase(sql);
    throw;
  }
}

SqlResult SqlSession::script(const std::string& sql) {
  try {
    return impl_->plain(sql, IfLost::may_have_committed);
  } catch (const Error&) {
    // The message stopped at the error, so its own COMMIT was not reached and the session sits in a dead
    // transaction.
    if (impl_->broken || impl_->in_transaction || !begins_a_transaction(sql)) throw;
    try {
      impl_->plain("ROLLBACK", IfLost::nothing_changed);
    } catch (const Error&) {
      impl_->broken = true;
    }
    throw;
  }
}

void SqlSession::begin() {
  if (impl_->in_transaction) throw Error(ErrorCode::internal_error, "begin() inside an open transaction.");
  impl_->plain("BEGIN", IfLost::nothing_changed);
  impl_->in_transaction = true;
  impl_->failed = false;
}

void SqlSession::commit() {
  if (impl_->broken) throw impl_->connection_lost(IfLost::nothing_changed);
  if (!impl_->in_transaction) throw Error(ErrorCode::internal_error, "commit() without an open transaction.");
  if (impl_->failed) {
    // COMMIT would answer ROLLBACK without an error.
    rollback();
    throw Error(ErrorCode::internal_error,
                "commit() of a transaction in which a statement failed; it was rolled back.");
  }
  impl_->in_transaction = false;
  impl_->plain("COMMIT", IfLost::may_have_committed);
}

void SqlSession::rollback() noexcept {
  if (!impl_ || !impl_->in_transaction) return;
  impl_->in_transaction = impl_->failed = false;
  try {
    impl_->plain("ROLLBACK", IfLost::nothing_changed);
  } catch (...) {
    impl_->broken = true;
  }
}

void SqlSession::commit_with(const std::string& sql) {
  if (impl_->broken) throw impl_->connection_lost(IfLost::nothing_changed);
  if (!impl_->in_transaction)
    throw Error(ErrorCode::internal_error, "commit_with() without an open transaction.");
  if (impl_->failed) return commit();
  try {
    impl_->plain(sql + "\nCOMMIT", IfLost::may_have_committed);
  } catch (const Error&) {
    rollback();
    throw;
  }
  impl_->in_transaction = false;
}

bool SqlSession::in_transaction() const { return impl_->in_transaction; }

void SqlSession::set_lock_timeout(std::chrono::milliseconds timeout) {
  impl_->plain(fmt::format("SET lock_timeout = {}", timeout.count()), IfLost::nothing_changed);
}

void SqlSession::set_statement_timeout(std::chrono::milliseconds timeout) {
  impl_->plain(fmt::format("SET statement_timeout = {}", timeout.count()), IfLost::nothing_changed);
}

void SqlSession::cancel() noexcept {
  if (impl_ && !impl_->broken) impl_->connection.cancel();
}

int SqlSession::backend_pid() const { return impl_->connection.backend_pid(); }
const ServerIdentity& SqlSession::identity() const { return impl_->identity; }
bool SqlSession::is_open() const { return !impl_->broken && impl_->connection.is_open(); }
std::vector<std::string> SqlSession::take_notices() { return impl_->connection.take_notices(); }

Transaction::Transaction(SqlSession& session) : session_(session) { session_.begin(); }

Transaction::~Transaction() {
  if (open_) session_.rollback();
}

void Transaction::commit() {
  open_ = false;
  session_.commit();
}

void SqlSession::recovered() { impl_->failed = false; }

Savepoint::Savepoint(SqlSession& session) : session_(session) { session_.exec("SAVEPOINT crossfade"); }

Savepoint::~Savepoint() {
  if (!open_) return;
  try {
    rollback();
  } catch (const std::exception&) {
    // The session broke; there is nothing left to undo.
  }
}

void Savepoint::rollback() {
  open_ = false;
  session_.exec("ROLLBACK TO SAVEPOINT crossfade");
  session_.recovered();
  session_.exec("RELEASE SAVEPOINT crossfade");
}

void Savepoint::release() {
  open_ = false;
  session_.exec("RELEASE SAVEPOINT crossfade");
}

bool silence_user_triggers(SqlSession& session) {
  // Those that fire all the same expect the role's own search_path; statements that fire them set it from
  // here.
  session.exec(
      "SELECT set_config('crossfade.search_path', reset_val, false) FROM pg_settings"
      " WHERE name = 'search_path'");
  try {
    session.exec("SET session_replication_role = replica");
    return true;
  } catch (const Error& error) {
    if (error.sqlstate() != "42501") throw;
    return false;
  }
}

}  // namespace crossfade

#include "support/application_session.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>

#include <optional>

namespace crossfade::test {
namespace {

using Result = std::unique_ptr<PGresult, void (*)(PGresult*)>;

Result owned(PGresult* result) { return {result, PQclear}; }

bool is_good(const PGresult* result) {
  switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_EMPTY_QUERY:
    case PGRES_COPY_IN:
      return true;
    default:
      return false;
  }
}

ApplicationError error_of(pg_conn* connection, const PGresult* result, const std::string& sql) {
  const char* sqlstate = result == nullptr ? nullptr : PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char* message = result == nullptr ? PQerrorMessage(connection) : PQresultErrorMessage(result);
  return {sqlstate == nullptr ? "" : sqlstate, message, sql};
}

Result checked(pg_conn* connection, PGresult* raw, const std::string& sql) {
  auto result = owned(raw);
  if (!is_good(result.get())) throw error_of(connection, result.get(), sql);
  return result;
}

}  // namespace

ApplicationError::ApplicationError(std::string sqlstate, const std::string& message, const std::string& sql)
    : std::runtime_error(fmt::format("{} {}in: {}", sqlstate, message, sql)),
      sqlstate_(std::move(sqlstate)) {}

ApplicationSession::ApplicationSession(const std::string& dsn, const std::string& settings)
    : connection_(PQconnectdb((dsn + " application_name=application").c_str()), PQfinish) {
  if (PQstatus(connection_.get()) != CONNECTION_OK) throw error_of(connection_.get(), nullptr, "connect");
  PQsetNoticeProcessor(
      connection_.get(), [](void*, const char*) {}, nullptr);
  run("SET search_path = public;" + settings);
}

void ApplicationSession::run(const std::string& sql) {
  checked(connection_.get(), PQexec(connection_.get(), sql.c_str()), sql);
}

std::vector<std::vector<std::string>> ApplicationSession::rows(const std::string& sql) {
  const auto result = checked(connection_.get(), PQexec(connection_.get(), sql.c_str()), sql);
  std::vector<std::vector<std::string>> all;
  for (int row = 0; row < PQntuples(result.get()); ++row) {
    auto& fields = all.emplace_back();
    for (int field = 0; field < PQnfields(result.get()); ++field) {
      const bool null = PQgetisnull(result.get(), row, field) != 0;
      fields.emplace_back(null ? "NULL" : PQgetvalue(result.get(), row, field));
    }
  }
  return all;
}

std::string ApplicationSession::value(const std::string& sql) { return rows(sql).at(0).at(0); }

void ApplicationSession::copy_in(const std::string& sql, std::string_view data) {
  run(sql);
  const auto sent = PQputCopyData(connection_.get(), data.data(), static_cast<int>(data.size()));
  if (sent != 1 || PQputCopyEnd(connection_.get(), nullptr) != 1) {
    throw error_of(connection_.get(), nullptr, sql);
  }
  sent_ = sql;
  finish();
}

int ApplicationSession::backend_pid() const { return PQbackendPID(connection_.get()); }

void ApplicationSession::send(const std::string& sql) {
  if (PQsendQuery(connection_.get(), sql.c_str()) != 1) throw error_of(connection_.get(), nullptr, sql);
  sent_ = sql;
}

bool ApplicationSession::is_answered() {
  PQconsumeInput(connection_.get());
  return PQisBusy(connection_.get()) == 0;
}

void ApplicationSession::finish() {
  std::optional<ApplicationError> failure;
  while (auto* raw = PQgetResult(connection_.get())) {
    const auto result = owned(raw);
    if (!failure && !is_good(result.get())) failure = error_of(connection_.get(), result.get(), sent_);
  }
  if (failure) throw *failure;
}

}  // namespace crossfade::test

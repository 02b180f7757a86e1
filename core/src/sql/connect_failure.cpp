#include "connect_failure.hpp"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <memory>

#include "pqxx_errors.hpp"

namespace crossfade {
namespace {

using Clock = std::chrono::steady_clock;

struct Finish {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};

struct Refusal {
  std::string sqlstate;
  bool password_missing = false;  // noticed by libpq itself, which gives no SQLSTATE
};

// With PQERRORS_SQLSTATE the server's line is `SEVERITY:  28P01`, in any language. Of several hosts the last
// one counts.
std::string last_sqlstate(std::string_view text) {
  while (!text.empty()) {
    const std::size_t newline = text.rfind('\n');
    const std::string_view line = newline == std::string_view::npos ? text : text.substr(newline + 1);
    text = newline == std::string_view::npos ? std::string_view{} : text.substr(0, newline);
    const std::size_t mark = line.rfind(":  ");
    if (mark == std::string_view::npos || line.size() != mark + 8) continue;
    const std::string_view code = line.substr(mark + 3);
    const auto is_code = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); };
    if (std::ranges::all_of(code, is_code)) return std::string(code);
  }
  return {};
}

Refusal ask_again(const std::string& conninfo, Clock::time_point deadline) {
  const std::unique_ptr<PGconn, Finish> connection(PQconnectStart(conninfo.c_str()));
  if (!connection || PQstatus(connection.get()) == CONNECTION_BAD) return {};
  PQsetErrorVerbosity(connection.get(), PQERRORS_SQLSTATE);
  PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;
  while (wanted == PGRES_POLLING_READING || wanted == PGRES_POLLING_WRITING) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd socket{PQsocket(connection.get()),
                  wanted == PGRES_POLLING_READING ? short{POLLIN} : short{POLLOUT}, 0};
    if (left <= 0 || poll(&socket, 1, static_cast<int>(left)) <= 0) return {};
    wanted = PQconnectPoll(connection.get());
  }
  if (wanted == PGRES_POLLING_OK) return {};
  return {last_sqlstate(PQerrorMessage(connection.get())), PQconnectionNeedsPassword(connection.get()) != 0};
}

}  // namespace

Error explain_connect_failure(const std::string& conninfo, const std::string& target, const std::string& text,
                              Clock::time_point deadline) {
  const Refusal refusal = ask_again(conninfo, deadline);
  const std::string reason = server_message(text).primary;
  if (refusal.password_missing || refusal.sqlstate.starts_with("28")) {
    return Error(ErrorCode::authentication_failed, fmt::format("Could not log in to {}: {}", target, reason),
                 "Check the role, pg_hba.conf, and the password in ~/.pgpass or PGPASSWORD.")
        .with_sqlstate(refusal.sqlstate);
  }
  if (refusal.sqlstate == "42501") {
    return Error(ErrorCode::authentication_failed, fmt::format("May not connect to {}: {}", target, reason),
                 "GRANT CONNECT ON DATABASE … TO the role.")
        .with_sqlstate(refusal.sqlstate);
  }
  std::string hint = "Check that the server runs and that host and port are right.";
  if (refusal.sqlstate == "3D000") hint = "Check the name of the database.";
  if (refusal.sqlstate.starts_with("53"))
    hint = "The server is short of a resource (max_connections?); try again later.";
  if (refusal.sqlstate == "57P03") hint = "The server is starting up or shutting down; try again.";
  return Error(ErrorCode::server_unreachable, fmt::format("Could not connect to {}: {}", target, reason),
               hint)
      .with_sqlstate(refusal.sqlstate);
}

}  // namespace crossfade

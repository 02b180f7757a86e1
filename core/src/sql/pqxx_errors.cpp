#include "pqxx_errors.hpp"

#include <fmt/format.h>

#include <pqxx/pqxx>
#include <vector>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {
namespace {

ErrorCode code_of(std::string_view sqlstate) {
  if (sqlstate.starts_with("08") || sqlstate.starts_with("57P") || sqlstate == "25P03" ||
      sqlstate == "40003") {
    return ErrorCode::connection_lost;
  }
  if (sqlstate.starts_with("28")) return ErrorCode::authentication_failed;
  if (sqlstate == "42501") return ErrorCode::permission_denied;
  if (sqlstate == "42P01") return ErrorCode::undefined_table;
  if (sqlstate == "42703") return ErrorCode::undefined_column;
  if (sqlstate == "25006") return ErrorCode::read_only_server;
  return ErrorCode::statement_failed;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    lines.push_back(text.substr(0, newline));
    if (newline == std::string_view::npos) break;
    text.remove_prefix(newline + 1);
  }
  return lines;
}

// `LINE 1: …` and the caret under it: recognised by the caret, because the word LINE is translated.
bool is_caret(std::string_view line) {
  return line.find_first_not_of(' ') + 1 == line.size() && line.ends_with('^');
}

// `permission denied for table t`: readable only in English; in any other language the hint stays general.
std::string grant_hint(std::string_view message, std::string_view sql, std::string_view bare_role) {
  constexpr std::string_view general =
      "Grant the role what the server's message names, or run as the table's owner.";
  constexpr std::string_view start = "permission denied for ";
  constexpr std::string_view temporary = "permission denied to create temporary tables in database ";
  if (bare_role.empty()) return std::string(general);
  const auto role = display_identifier(bare_role);
  if (message.starts_with(temporary)) {
    message.remove_prefix(temporary.size());
    if (message.size() > 2) message = message.substr(1, message.size() - 2);
    return fmt::format("GRANT TEMPORARY ON DATABASE {} TO {}", display_identifier(message), role);
  }
  if (!message.starts_with(start)) return std::string(general);
  message.remove_prefix(start.size());
  const std::size_t space = message.find(' ');
  if (space == std::string_view::npos) return std::string(general);
  const std::string_view kind = message.substr(0, space);
  const auto name = display_identifier(message.substr(space + 1));
  // The server says the same of whoever may not look into it and of whoever may not make something in it.
  if (kind == "schema") return fmt::format("GRANT USAGE, CREATE ON SCHEMA {} TO {}", name, role);
  if (kind == "function") return fmt::format("GRANT EXECUTE ON FUNCTION {} TO {}", name, role);
  if (kind == "sequence") return fmt::format("GRANT USAGE ON SEQUENCE {} TO {}", name, role);
  if (kind == "database") return fmt::format("GRANT CREATE ON DATABASE {} TO {}", name, role);
  if (kind != "table" && kind != "view") return std::string(general);
  for (const std::string_view verb : {"SELECT", "INSERT", "UPDATE", "DELETE"}) {
    if (sql.starts_with(verb)) return fmt::format("GRANT {} ON {} TO {}", verb, name, role);
  }
  return fmt::format("GRANT SELECT, INSERT, UPDATE ON {} TO {}", name, role);
}

template <class Exception>
bool is_a(const std::exception& exception) {
  return dynamic_cast<const Exception*>(&exception) != nullptr;
}

}  // namespace

ServerMessage server_message(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  ServerMessage message;
  if (lines.empty()) return message;
  std::string_view first = lines.front();
  const std::size_t severity = first.find(":  ");
  if (severity != std::string_view::npos &&
      first.substr(0, severity).find_first_of(" \"'") == std::string_view::npos) {
    first.remove_prefix(severity + 3);
  }
  message.primary = first;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty() || is_caret(lines[i]) || (i + 1 < lines.size() && is_caret(lines[i + 1]))) continue;
    message.details += message.details.empty() ? "" : "\n";
    message.details += lines[i];
  }
  return message;
}

std::string sqlstate_of(const std::exception& exception) {
  if (const auto* failed = dynamic_cast<const pqxx::sql_error*>(&exception);
      failed && !failed->sqlstate().empty()) {
    return failed->sqlstate();
  }
  // libpqxx 6: class 40 is not an sql_error, 42501 loses its state, class 08 becomes a broken_connection.
  if (is_a<pqxx::serialization_failure>(exception)) return "40001";
  if (is_a<pqxx::deadlock_detected>(exception)) return "40P01";
  if (is_a<pqxx::statement_completion_unknown>(exception)) return "40003";
  if (is_a<pqxx::transaction_rollback>(exception)) return "40000";
  if (is_a<pqxx::insufficient_privilege>(exception)) return "42501";
  if (is_a<pqxx::too_many_connections>(exception)) return "53300";
  if (is_a<pqxx::broken_connection>(exception)) return "08000";
  if (is_a<pqxx::disk_full>(exception)) return "53100";
  if (is_a<pqxx::out_of_memory>(exception)) return "53200";
  return {};
}

Error statement_error(const std::exception& exception, std::string_view sql, std::string_view role) {
  const std::string sqlstate = sqlstate_of(exception);
  ServerMessage message = server_message(exception.what());
  if (sqlstate.empty() && !is_a<pqxx::sql_error>(exception)) {
    return Error(ErrorCode::internal_error, fmt::format("libpqxx refused a call: {}", message.primary));
  }
  ErrorCode code = code_of(sqlstate);
  // The connection lives, so the state was raised by the statement: by a foreign server, or by RAISE.
  if (code == ErrorCode::connection_lost || code == ErrorCode::authentication_failed) {
    code = ErrorCode::statement_failed;
  }
  if (code == ErrorCode::permission_denied) {
    const std::string hint = grant_hint(message.primary, sql, role);
    message.details = message.details.empty() ? hint : message.details + "\n" + hint;
  }
  return Error(code, std::move(message.primary), std::move(message.details)).with_sqlstate(sqlstate);
}

Error error_from_sqlstate(std::string_view sqlstate, std::string message) {
  Error error(code_of(sqlstate), std::move(message));
  error.with_sqlstate(std::string(sqlstate));
  if (sqlstate == "40003") error.with_effect(Effect::unknown);
  return error;
}

}  // namespace crossfade

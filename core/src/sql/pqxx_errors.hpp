// What an exception of libpqxx means. Decided by SQLSTATE, or by exception class where libpqxx 6 hides it;
// the text is in the server's language and only shown.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "crossfade/core/error.hpp"

namespace crossfade {

struct ServerMessage {
  std::string primary;  // the first line, without its severity
  std::string details;  // DETAIL, HINT, CONTEXT: one line each
};
ServerMessage server_message(std::string_view text);

// Empty when the exception says nothing about its SQLSTATE.
std::string sqlstate_of(const std::exception& exception);

// A statement failed and the connection lives. `role` appears in the hint of permission_denied.
Error statement_error(const std::exception& exception, std::string_view sql, std::string_view role);

}  // namespace crossfade

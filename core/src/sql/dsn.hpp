// Connection strings: what libpq makes of them, what may be shown of them, what a session adds to them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "crossfade/core/sql_session.hpp"

namespace crossfade::dsn {

using Keywords = std::map<std::string, std::string>;

// The keywords that the text sets. Throws usage_error when libpq cannot read it, or when a URI holds an
// unescaped '@' (libpq would take the tail of a password for a host); the text is not repeated, because it
// may hold a secret.
Keywords parse(std::string_view text);
std::string to_conninfo(const Keywords& keywords);
// password, sslpassword and whatever else libpq marks as secret.
bool is_secret(const std::string& keyword);

// The options' dsn with everything a session needs at start-up. Keywords that the dsn sets win, except
// client_encoding and application_name.
std::string for_session(const ConnectOptions& options);
// `database "app" at db1:5432`, with libpq's environment and defaults filled in.
std::string description(const Keywords& keywords);

}  // namespace crossfade::dsn

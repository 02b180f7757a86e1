// Why a connection could not be made. libpqxx keeps no SQLSTATE of a refused start-up, so libpq is asked once
// more.
#pragma once

#include <chrono>
#include <string>

#include "crossfade/core/error.hpp"

namespace crossfade {

// `target` is how the server is named in the message; `text` what libpqxx said. Gives up at `deadline`.
Error explain_connect_failure(const std::string& conninfo, const std::string& target, const std::string& text,
                              std::chrono::steady_clock::time_point deadline);

}  // namespace crossfade

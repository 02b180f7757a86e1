// A user's program: everything that it needs comes from find_package(crossfade).
#include <cstdio>

#include "crossfade/core/error.hpp"
#include "crossfade/core/state_schema.hpp"
#include "crossfade/cutover/machine.hpp"
#include "crossfade/cutover/migrator.hpp"

int main() {
  std::printf("crossfade %s\n%s", crossfade::crossfade_version().c_str(), crossfade::machine_text().c_str());
  // Reaches down to libpq, and needs no server.
  crossfade::Migrator migrator({.dsn = "host=/nonexistent dbname=none"});
  try {
    migrator.list();
  } catch (const crossfade::Error& error) {
    std::printf("%s\n", std::string(error.name()).c_str());
    return error.code() == crossfade::ErrorCode::server_unreachable ? 0 : 1;
  }
  return 1;
}

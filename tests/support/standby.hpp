// A standby that streams from a running server, and what tests do to one: wait for it, hold it back, lose it.
#pragma once

#include <string>

#include "support/postgres_server.hpp"

namespace crossfade::test {

class Standby {
 public:
  // A copy of `primary`, in recovery and answering on return. `settings` as in PostgresOptions.
  explicit Standby(PostgresServer& primary, std::vector<std::string> settings = {});

  PostgresServer& server() { return server_; }
  std::string dsn(const Database& database, std::string_view role = "app_owner") const {
    return server_.dsn(database.name(), role);
  }
  // Waits until it has replayed everything that the primary has committed.
  void wait_replayed();
  // Replay stops where it is (it is asked for, and waited for) and goes on.
  void pause_replay();
  void resume_replay();

 private:
  PostgresServer& primary_;
  PostgresServer server_;
};

}  // namespace crossfade::test

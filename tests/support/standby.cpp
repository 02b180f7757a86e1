#include "support/standby.hpp"

#include <utility>

#include "support/wait_until.hpp"

namespace crossfade::test {

Standby::Standby(PostgresServer& primary, std::vector<std::string> settings)
    : primary_(primary),
      server_(
          {.settings = std::move(settings), .role = PostgresOptions::Role::primary, .follows = &primary}) {}

void Standby::wait_replayed() {
  // A commit of our own flushes what was committed asynchronously before it.
  primary_.admin().exec("CREATE TABLE IF NOT EXISTS public.standby_mark (n int)");
  primary_.admin().exec("INSERT INTO public.standby_mark VALUES (1)");
  const auto position =
      text_of(primary_.admin().exec("SELECT pg_current_wal_flush_lsn()").one("the position")[0]);
  wait_until(
      [&] {
        const auto reached =
            server_.admin().exec("SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", {position});
        return bool_of(reached.one("the replay position")[0]);
      },
      "the standby to replay");
}

void Standby::pause_replay() {
  server_.admin().exec("SELECT pg_wal_replay_pause()");
  wait_until(
      [&] {
        return text_of(server_.admin().exec("SELECT pg_get_wal_replay_pause_state()").one("the state")[0]) ==
               "paused";
      },
      "the replay to pause");
}

void Standby::resume_replay() { server_.admin().exec("SELECT pg_wal_replay_resume()"); }

}  // namespace crossfade::test

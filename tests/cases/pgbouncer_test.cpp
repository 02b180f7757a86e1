// A real PgBouncer in transaction mode: the application behind it goes through a whole life; crossfade itself
// is not let through.
#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <stdexcept>

#include "case_test.hpp"
#include "support/child_process.hpp"
#include "support/program.hpp"

namespace crossfade::test {
namespace {

// In front of one server, on a socket in a folder of its own.
class PgBouncer {
 public:
  explicit PgBouncer(const PostgresServer& server) {
    const auto binary =
        std::filesystem::exists("/usr/sbin/pgbouncer") ? "/usr/sbin/pgbouncer" : "/usr/bin/pgbouncer";
    if (!std::filesystem::exists(binary))
      throw std::runtime_error("no pgbouncer on this machine: see tests/install_packages.sh");
    write_text(path("users.txt"), "\"app_owner\" \"\"\n\"postgres\" \"\"\n");
    write_text(
        path("pgbouncer.ini"),
        fmt::format("[databases]\n* = host={}\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {}\n"
                    "auth_type = trust\nauth_file = {}\nadmin_users = postgres\n"
                    "pool_mode = transaction\ndefault_pool_size = 2\nlogfile = {}\n",
                    server.folder().string(), folder_.path().string(), path("users.txt"), path("log")));
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
    ChildOptions options;
    options.command = {binary, path("pgbouncer.ini")};
    options.run_as = "postgres";  // it does not run as root
    process_ = ChildProcess(options);
    wait_until([&] { return std::filesystem::exists(path(".s.PGSQL.6432")); }, "pgbouncer");
  }
  // As `dsn` but through it.
  std::string through(const std::string& database, const std::string& role = "app_owner") const {
    return fmt::format("host={} port=6432 dbname={} user={}", folder_.path().string(), database, role);
  }

 private:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  PrivateFolder folder_{"pgbouncer"};
  ChildProcess process_;
};

class PgBouncerCases : public CaseTest {
 protected:
  std::string through() { return bouncer_.through(database().name()); }
  PgBouncer bouncer_{server()};
};

TEST_F(PgBouncerCases, CrossfadeIsNotLetThroughAndLeavesNothingBehind) {
  make_table(10);
  std::string message;
  EXPECT_EQ(code_of(
                [&] {
                  Migrator({.dsn = through(), .redis = {}, .operator_name = "ada", .host = "lovelace"})
                      .plan({spec()});
                },
                &message),
            ErrorCode::connection_pooled);
  EXPECT_NE(message.find("connection pooler"), std::string::npos) << message;
  const auto program = Program::run(crossfade_binary(), {"list"}, {{"CROSSFADE_DSN", through()}});
  EXPECT_EQ(program.exit_status, 2) << program.err;
  EXPECT_NE(program.err.find("PostgreSQL itself"), std::string::npos) << program.err;
  ApplicationSession application(through());
  const auto backend = application.value("SELECT pg_backend_pid()");
  EXPECT_EQ(application.value("SELECT reset_val = setting FROM pg_settings WHERE name = 'row_security'"),
            "t");
  EXPECT_EQ(application.value("SELECT pg_backend_pid()"), backend) << "the pool has more than one";
}

TEST_F(PgBouncerCases, AnApplicationBehindItLivesThroughSwitchAndWayBack) {
  make_table(200);
  std::vector<std::unique_ptr<ApplicationSession>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<ApplicationSession>(through()));
  int key = 1000;
  const auto work = [&] {
    for (auto& client : clients) {
      client->run(
          fmt::format("BEGIN; INSERT INTO public.t (id, b) VALUES ({0}, {0}); UPDATE public.t SET b = b"
                      " WHERE id = {0}; COMMIT",
                      ++key));
      EXPECT_EQ(client->rows("SELECT * FROM public.t WHERE id = 1").size(), 1U);
      EXPECT_EQ(client->value("SELECT b FROM public.t WHERE id = 1"), "1");
      client->run(
          "DO $$DECLARE r record; BEGIN FOR r IN SELECT b FROM public.t LOOP r.b := r.b; END LOOP;"
          " END$$");
    }
  };
  const auto backends = [&] {
    std::set<std::string> pids;
    for (auto& client : clients) pids.insert(client->value("SELECT pg_backend_pid()"));
    return pids;
  };
  const auto reconnect = [&](const std::string& to) {
    const auto before = backends();
    const auto hook =
        Program::run(std::string(CROSSFADE_SOURCE_FOLDER) + "/examples/hooks/pgbouncer_reconnect.sh", {},
                     {{"CROSSFADE_TO", to},
                      {"CROSSFADE_EVENT", to == "compare" ? "rollback" : "advance"},
                      {"PGBOUNCER_ADMIN", bouncer_.through("pgbouncer", "postgres")}});
    EXPECT_EQ(hook.exit_status, 0) << hook.err;
    work();
    const auto after = backends();
    for (const auto& backend : before) EXPECT_EQ(after.count(backend), 0U) << backend;
  };
  work();
  start();
  for (const Phase phase : {Phase::backfill, Phase::compare, Phase::switched}) {
    advance_to(phase);
    work();
  }
  reconnect("switched");
  roll_back_to(Phase::compare);
  work();
  reconnect("compare");
  advance_to(Phase::dropped);
  work();
}

}  // namespace
}  // namespace crossfade::test

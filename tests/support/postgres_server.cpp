#include "support/postgres_server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <libpq-fe.h>
#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

namespace fs = std::filesystem;

constexpr auto kStartTimeout = std::chrono::seconds(60);

ChildOptions as_postgres(std::vector<std::string> command) {
  ChildOptions options;
  options.command = std::move(command);
  options.run_as = "postgres";
  options.directory = "/";
  options.environment["LC_ALL"] = "C.UTF-8";
  return options;
}

// The folder that all test processes of a build share; holds one initdb result per server version.
fs::path cache_folder() {
  const char* chosen = std::getenv("CROSSFADE_TEST_CACHE");
#ifdef CROSSFADE_TEST_CACHE_FOLDER
  const fs::path folder = chosen != nullptr ? chosen : CROSSFADE_TEST_CACHE_FOLDER;
#else
  const fs::path folder = chosen != nullptr
                              ? fs::path(chosen)
                              : fs::temp_directory_path() / fmt::format("crossfade-test-cache-{}", geteuid());
#endif
  fs::create_directories(folder);
  return folder;
}

// initdb takes half a second, a copy of its result a tenth of that.
fs::path initialized_data() {
  const fs::path binaries = PostgresServer::binaries();
  std::string version = run_checked(as_postgres({binaries / "postgres", "--version"}));
  for (char& c : version) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '_';
  }
  const fs::path folder = cache_folder();
  const fs::path ready = folder / version;
  const FileLock lock(folder / "lock");
  if (fs::exists(ready)) return ready;
  const PrivateFolder workshop("initdb");
  const fs::path made = workshop.path() / "data";
  run_checked(as_postgres({binaries / "initdb", "-D", made, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                           "--locale=C.UTF-8", "--no-sync", "--no-instructions"}));
  // Copied beside and renamed, so that a killed test leaves no half of it under the final name.
  const fs::path half = folder / (version + ".half");
  fs::remove_all(half);
  ChildOptions copy;
  copy.command = {"/bin/cp", "-a", made, half};
  run_checked(copy);
  fs::rename(half, ready);
  return ready;
}

const std::vector<std::string>& settings() {
  static const std::vector<std::string> list{
      "listen_addresses=",
      "fsync=off",
      "wal_level=logical",
      "max_prepared_transactions=10",
      "track_commit_timestamp=off",
      "max_connections=60",
      "shared_buffers=64MB",
      "deadlock_timeout=1s",
      "autovacuum=on",
      "log_min_messages=warning",
      "hot_standby=on",
      "unix_socket_permissions=0777",
      "dynamic_shared_memory_type=mmap",  // goes with the folder, even when the server is killed
  };
  return list;
}

}  // namespace

fs::path PostgresServer::binaries() {
  if (const char* chosen = std::getenv("CROSSFADE_TEST_PG_BINDIR")) return chosen;
  std::vector<fs::path> candidates;
  if (fs::exists("/usr/bin/pg_config")) {
    ChildOptions ask;
    ask.command = {"/usr/bin/pg_config", "--bindir"};
    std::string answer = run_checked(ask);
    candidates.emplace_back(answer.substr(0, answer.find('\n')));
  }
  const fs::path debian = "/usr/lib/postgresql";
  if (fs::exists(debian)) {
    for (const fs::directory_entry& version : fs::directory_iterator(debian))
      candidates.push_back(version.path() / "bin");
  }
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate / "initdb") && fs::exists(candidate / "postgres")) return candidate;
  }
  throw std::runtime_error(
      "no PostgreSQL server found (pg_config --bindir, /usr/lib/postgresql/*/bin): install the package "
      "postgresql, or "
      "name the folder of its programs in CROSSFADE_TEST_PG_BINDIR");
}

PostgresServer::PostgresServer(PostgresOptions options) : options_(std::move(options)) {
  if (options_.follows != nullptr) {
    run_checked(
        as_postgres({binaries() / "pg_basebackup", "-D", data_path(), "-h", options_.follows->folder(), "-U",
                     "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync"}));
    start();
    return;
  }
  ChildOptions copy;
  copy.command = {"/bin/cp", "-a", initialized_data(), data_path()};
  run_checked(copy);
  if (options_.role == PostgresOptions::Role::standby) {
    write_text(data_path() / "standby.signal", "");
    give_to_postgres(data_path() / "standby.signal");
    // No less than the control file, which has initdb's value, says of the primary.
    options_.settings.emplace_back("max_connections=100");
  }
  start();
  if (options_.role == PostgresOptions::Role::primary) admin().exec("CREATE ROLE app_owner LOGIN");
}

PostgresServer::~PostgresServer() {
  if (process_.is_running()) process_.signal(SIGQUIT);
  process_.wait(kStartTimeout);
}

void PostgresServer::start() {
  std::vector<std::string> command{binaries() / "postgres", "-D", data_path(), "-k", folder_.path()};
  for (const std::vector<std::string>* list : {&settings(), &std::as_const(options_.settings)}) {
    for (const std::string& setting : *list) command.insert(command.end(), {"-c", setting});
  }
  ChildOptions child = as_postgres(std::move(command));
  child.death_signal = SIGQUIT;
  const int log = open(log_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  child.output = child.error_output = log;
  process_ = ChildProcess(child);
  close(log);
  const auto failed = [this](std::string_view what) {
    std::string text = this->log();
    return std::runtime_error(fmt::format("PostgreSQL {}; the end of its log:\n{}", what,
                                          text.substr(text.size() > 3000 ? text.size() - 3000 : 0)));
  };
  try {
    wait_until([this] { return !process_.is_running() || answers(); }, "PostgreSQL to answer", kStartTimeout);
  } catch (const std::runtime_error&) {
    throw failed("did not answer in time");
  }
  if (!process_.is_running()) throw failed("ended at its start");
  ++starts_;
}

bool PostgresServer::answers() const { return PQping(dsn("postgres", "postgres").c_str()) == PQPING_OK; }

void PostgresServer::stop(int signal) {
  admin_.reset();
  process_.signal(signal);
  if (!process_.wait(kStartTimeout)) throw std::runtime_error("PostgreSQL did not stop in time");
}

void PostgresServer::stop_immediate() { stop(SIGQUIT); }
void PostgresServer::stop_fast() { stop(SIGINT); }

void PostgresServer::restart() {
  if (process_.is_running()) stop_immediate();
  start();
}

void PostgresServer::promote() {
  admin().exec("SELECT pg_promote(true, 60)");
  admin_.reset();
}

void PostgresServer::set_access_rules(std::string_view pg_hba) {
  write_text(data_path() / "pg_hba.conf", pg_hba);
  const SqlResult before = admin().exec("SELECT pg_conf_load_time()");
  admin().exec("SELECT pg_reload_conf()");
  wait_until([&] { return admin().exec("SELECT pg_conf_load_time()").rows != before.rows; },
             "PostgreSQL to load its access rules");
}

SqlSession& PostgresServer::admin() {
  if (!admin_ || !admin_->is_open()) {
    ConnectOptions options;
    options.dsn = dsn("postgres", "postgres");
    options.application_name = "test-admin";
    admin_ = SqlSession::connect(options, SqlSession::Target::allow_standby);
    admin_->exec("SET search_path = public");
  }
  return *admin_;
}

std::string PostgresServer::dsn(std::string_view database, std::string_view role) const {
  return fmt::format("host={} dbname={} user={}", folder_.path().string(), database, role);
}

std::unique_ptr<Database> PostgresServer::create_database() {
  std::string name = fmt::format("test_{}", ++databases_);
  admin().exec(fmt::format("CREATE DATABASE {} OWNER app_owner TEMPLATE template0", name));
  return std::unique_ptr<Database>(new Database(*this, std::move(name)));
}

Database::~Database() {
  try {
    if (server_.is_running()) server_.admin().exec(fmt::format("DROP DATABASE {} WITH (FORCE)", name_));
  } catch (const std::exception&) {  // a crash test may leave the server unwilling; its folder goes anyway
  }
}

std::string Database::dsn() const { return server_.dsn(name_, "app_owner"); }
std::string Database::superuser_dsn() const { return server_.dsn(name_, "postgres"); }

SqlSession open_session(const std::string& dsn, const std::string& application_name) {
  ConnectOptions options;
  options.dsn = dsn;
  options.application_name = application_name;
  SqlSession session = SqlSession::connect(options);
  session.exec("SET search_path = public");
  session.exec("SET client_min_messages = notice");
  return session;
}

}  // namespace crossfade::test

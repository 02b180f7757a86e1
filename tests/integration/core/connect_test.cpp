// What happens when no session comes about, and what is said about it.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "crossfade/core/sql_session.hpp"
#include "support/database_test.hpp"

namespace crossfade::test {
namespace {

constexpr const char* kSecret = "Hunter2Xyz";

Error refusal_of(const std::string& dsn, SqlSession::Target target = SqlSession::Target::primary) {
  ConnectOptions options;
  options.dsn = dsn;
  options.connect_timeout = std::chrono::milliseconds(3000);
  try {
    SqlSession::connect(options, target);
  } catch (const Error& error) {
    const std::string said = error.message() + error.hint() + error.object();
    EXPECT_EQ(said.find(kSecret), std::string::npos) << said;
    return error;
  }
  ADD_FAILURE() << "connected";
  return Error(ErrorCode::internal_error, "connected");
}

class ConnectTest : public DatabaseTest {
 protected:
  ~ConnectTest() override { server().set_access_rules("local all all trust\n"); }

  // From here on only `postgres` comes in without a password.
  void demand_passwords() {
    super_sql("SET password_encryption = 'scram-sha-256'; ALTER ROLE app_owner PASSWORD 'right'");
    server().set_access_rules("local all postgres trust\nlocal all all scram-sha-256\n");
  }
  std::string socket() const { return server().folder().string(); }
  std::string encoded_socket() const {
    std::string out;
    for (const char c : socket()) out += c == '/' ? std::string("%2F") : std::string(1, c);
    return out;
  }
};

TEST_F(ConnectTest, NoServerIsUnreachable) {
  const Error socket = refusal_of("host=/nonexistent dbname=app");
  EXPECT_EQ(socket.code(), ErrorCode::server_unreachable);
  EXPECT_NE(socket.message().find("\"app\" at /nonexistent"), std::string::npos) << socket.message();
  EXPECT_EQ(refusal_of("host=127.0.0.1 port=1 dbname=app").code(), ErrorCode::server_unreachable);
  EXPECT_EQ(refusal_of("host=no-such-host.invalid dbname=app").code(), ErrorCode::server_unreachable);
}

TEST_F(ConnectTest, AnUnknownDatabaseIsUnreachableWithItsState) {
  const Error error = refusal_of(server().dsn("nowhere", "app_owner"));
  EXPECT_EQ(error.code(), ErrorCode::server_unreachable);
  EXPECT_EQ(error.sqlstate(), "3D000");
  EXPECT_NE(error.message().find("nowhere"), std::string::npos);
}

TEST_F(ConnectTest, AWrongOrMissingPasswordOrRoleIsAuthenticationFailed) {
  demand_passwords();
  const Error wrong = refusal_of(dsn() + " password=wrong");
  EXPECT_EQ(wrong.code(), ErrorCode::authentication_failed);
  EXPECT_EQ(wrong.sqlstate(), "28P01");
  EXPECT_EQ(refusal_of(dsn()).code(), ErrorCode::authentication_failed);
  EXPECT_EQ(refusal_of(server().dsn(database().name(), "nobody") + " password=x").code(),
            ErrorCode::authentication_failed);
  server().set_access_rules("local all postgres trust\n");
  EXPECT_EQ(refusal_of(dsn()).sqlstate(), "28000");
  ConnectOptions right;
  right.dsn = superuser_dsn();
  EXPECT_NO_THROW(SqlSession::connect(right));
}

TEST_F(ConnectTest, ARoleWithoutConnectIsToldWhichGrant) {
  super_sql("CREATE ROLE stranger LOGIN; REVOKE CONNECT ON DATABASE " + database().name() + " FROM PUBLIC");
  const Error error = refusal_of(server().dsn(database().name(), "stranger"));
  EXPECT_EQ(error.sqlstate(), "42501");
  EXPECT_EQ(error.code(), ErrorCode::authentication_failed);
  EXPECT_NE(error.hint().find("GRANT CONNECT"), std::string::npos);
  super_sql("DROP ROLE stranger");
}

TEST_F(ConnectTest, AFullServerIsUnreachableWithItsState) {
  super_sql("ALTER DATABASE " + database().name() + " CONNECTION LIMIT 0");
  EXPECT_EQ(refusal_of(dsn()).sqlstate(), "53300");
}

TEST_F(ConnectTest, AStandbyIsReadOnlyUnlessAllowed) {
  PostgresOptions options;
  options.role = PostgresOptions::Role::standby;
  PostgresServer standby(options);
  const std::string dsn = standby.dsn("postgres", "postgres");
  EXPECT_EQ(refusal_of(dsn).code(), ErrorCode::read_only_server);
  ConnectOptions connect;
  connect.dsn = dsn;
  SqlSession session = SqlSession::connect(connect, SqlSession::Target::allow_standby);
  EXPECT_EQ(session.identity().timeline, "00000001");
}

// https://github.com/reorg/pg_repack/issues/285, https://github.com/PowerDNS/pdns/issues/459: every
// refusal_of() looks for the secret in all that the error says.
TEST_F(ConnectTest, NoFormOfASecretIsEverSaid) {
  demand_passwords();
  const std::string name = database().name(), secret = kSecret;
  for (const std::string& dsn : std::vector<std::string>{
           "host=" + socket() + " user=app_owner dbname=" + name + " password=" + secret,
           "host=" + socket() + " user=app_owner dbname=" + name + " password = '" + secret + "'",
           "host=no-such-host.invalid user=app_owner password=" + secret,
           "postgresql://app_owner:" + secret + "@" + encoded_socket() + "/" + name,
           "postgresql://app_owner:" + secret + "@no-such-host.invalid/" + name,
           "postgresql://app_owner@" + encoded_socket() + "/" + name + "?password=" + secret,
           "postgresql://app_owner:p@" + secret + "@localhost/" + name,
           "postgresql://app_owner:p/" + secret + "@localhost/" + name,
           "host=db password=two " + secret,
           "host=db password='" + secret,
       }) {
    refusal_of(dsn);
  }
  setenv("PGPASSWORD", kSecret, 1);
  EXPECT_EQ(refusal_of(dsn()).code(), ErrorCode::authentication_failed);
  unsetenv("PGPASSWORD");
}

// A server of the oldest kind that speaks our protocol, as far as its greeting.
class OldServer {
 public:
  OldServer() : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder_.path() / ".s.PGSQL.5432";
    std::memcpy(address.sun_path, path.c_str(), path.size());
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 8) != 0) {
      throw std::runtime_error("cannot listen");
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~OldServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string folder() const { return folder_.path(); }

 private:
  static std::string message(char kind, const std::string& body) {
    const auto size = static_cast<unsigned>(body.size() + 4);
    return std::string{kind, static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                       static_cast<char>(size >> 8), static_cast<char>(size)} +
           body;
  }
  void serve() const {
    const std::string greeting = message('R', std::string(4, '\0')) +
                                 message('S', std::string("server_version\0"
                                                          "13.9\0",
                                                          20)) +
                                 message('S', std::string("client_encoding\0"
                                                          "UTF8\0",
                                                          21)) +
                                 message('K', std::string("\0\0\0\1\0\0\0\1", 8)) + message('Z', "I");
    for (int client = accept(listener_, nullptr, nullptr); client >= 0;
         client = accept(listener_, nullptr, nullptr)) {
      std::array<char, 4096> startup{};
      if (recv(client, startup.data(), startup.size(), 0) > 0)
        send(client, greeting.data(), greeting.size(), MSG_NOSIGNAL);
      while (recv(client, startup.data(), startup.size(), 0) > 0) {  // until it goes
      }
      close(client);
    }
  }

  PrivateFolder folder_{"old"};
  int listener_;
  std::thread thread_;
};

TEST_F(ConnectTest, AServerBelowFourteenIsRefused) {
  const OldServer old;
  const Error error = refusal_of("host=" + old.folder() + " dbname=app user=app");
  EXPECT_EQ(error.code(), ErrorCode::server_too_old) << error.message();
  EXPECT_NE(error.message().find("PostgreSQL 13"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace crossfade::test

// A private redis-server: a direct child of the test process, without persistence, on a socket in a private
// folder.
#pragma once

#include <string>
#include <vector>

#include "support/child_process.hpp"
#include "support/files.hpp"

namespace crossfade::test {

struct RedisOptions {
  std::string password;  // also listens on a loopback port, because a unix: url holds no password
  std::vector<std::string> arguments;  // to redis-server, after our own
};

class RedisServer {
 public:
  // Started and answering on return. A machine without redis-server throws std::runtime_error.
  explicit RedisServer(RedisOptions options = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  std::string url() const;  // unix:///… ; with a password: redis://:PASSWORD@127.0.0.1:PORT
  int port() const { return port_; }
  std::filesystem::path socket() const { return folder_.path() / "redis.sock"; }
  pid_t pid() const { return process_.pid(); }

  // One command by redis-cli; its output without the last newline.
  std::string command(const std::vector<std::string>& words) const;
  void flush();    // every key is gone
  void kill();     // SIGKILL; returns when it is dead
  void restart();  // empty, at the same address
  void sigstop();  // accepts connections (the kernel does), answers nothing; returns when it is stopped
  void sigcont();

 private:
  void start();

  RedisOptions options_;
  PrivateFolder folder_{"redis"};
  int port_ = 0;
  ChildProcess process_;
};

}  // namespace crossfade::test

#include "support/redis_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

std::string program(const char* name) {
  for (const char* folder : {"/usr/bin", "/usr/local/bin"}) {
    const auto path = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(path)) return path;
  }
  throw std::runtime_error(
      fmt::format("no {} found: install the package redis-server (with redis-tools)", name));
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(socket);
  if (!bound) throw std::runtime_error("no free loopback port");
  return ntohs(address.sin_port);
}

// The third field of /proc/PID/stat; the second may hold blanks, so it is counted from the closing
// parenthesis.
char state_of(pid_t pid) {
  const std::string stat = read_text(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '?' : stat.at(name_end + 2);
}

}  // namespace

RedisServer::RedisServer(RedisOptions options) : options_(std::move(options)) {
  if (!options_.password.empty()) port_ = free_port();
  start();
}

RedisServer::~RedisServer() { kill(); }

void RedisServer::start() {
  ChildOptions child;
  child.command = {program("redis-server"),
                   "--port",
                   std::to_string(port_),
                   "--bind",
                   "127.0.0.1",
                   "--unixsocket",
                   socket(),
                   "--save",
                   "",
                   "--appendonly",
                   "no",
                   "--dir",
                   folder_.path(),
                   "--daemonize",
                   "no"};
  if (!options_.password.empty())
    child.command.insert(child.command.end(), {"--requirepass", options_.password});
  child.command.insert(child.command.end(), options_.arguments.begin(), options_.arguments.end());
  const auto log_path = folder_.path() / "redis.log";
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  child.output = child.error_output = log;
  process_ = ChildProcess(child);
  close(log);
  wait_until([&] { return !process_.is_running() || command({"PING"}) == "PONG"; }, "redis-server to answer");
  if (!process_.is_running())
    throw std::runtime_error("redis-server ended at its start:\n" + read_text(log_path));
}

std::string RedisServer::url() const {
  if (options_.password.empty()) return "unix://" + socket().string();
  return fmt::format("redis://:{}@127.0.0.1:{}", options_.password, port_);
}

std::string RedisServer::command(const std::vector<std::string>& words) const {
  const MemoryFile output;
  ChildOptions child;
  child.command = {program("redis-cli"), "-s", socket()};
  child.command.insert(child.command.end(), words.begin(), words.end());
  if (!options_.password.empty()) child.environment["REDISCLI_AUTH"] = options_.password;
  child.output = child.error_output = output.descriptor();
  ChildProcess client(child);
  if (!client.wait(std::chrono::seconds(20))) throw std::runtime_error("redis-cli did not end");
  std::string text = output.text();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

void RedisServer::flush() { command({"FLUSHALL"}); }

void RedisServer::kill() {
  process_.signal(SIGKILL);
  process_.wait(std::chrono::seconds(20));
}

void RedisServer::restart() {
  kill();
  start();
}

void RedisServer::sigstop() {
  process_.signal(SIGSTOP);
  wait_until([this] { return state_of(pid()) == 'T'; }, "redis-server to be stopped");
}

void RedisServer::sigcont() { process_.signal(SIGCONT); }

}  // namespace crossfade::test

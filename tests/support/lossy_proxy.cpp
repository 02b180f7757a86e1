#include "support/lossy_proxy.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace crossfade::test {
namespace {

// ReadyForQuery, idle, in a transaction, or in a failed one: the answer is complete.
bool ends_an_answer(std::string_view bytes) {
  constexpr std::string_view head("Z\0\0\0\x05", 5);
  return bytes.size() >= 6 && bytes.substr(bytes.size() - 6, 5) == head;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw std::runtime_error("the path of a socket is too long: " + path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

int unix_socket() {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0) throw std::runtime_error("no socket");
  return made;
}

bool send_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::string received(int from) {
  std::array<char, 65536> buffer{};
  const ssize_t count = recv(from, buffer.data(), buffer.size(), 0);
  return count <= 0 ? std::string{} : std::string(buffer.data(), static_cast<std::size_t>(count));
}

}  // namespace

LossyProxy::LossyProxy(const PostgresServer& server)
    : server_socket_(server.folder() / ".s.PGSQL.5432"),
      listener_(unix_socket()),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  const sockaddr_un address = address_of(folder_.path() / ".s.PGSQL.5432");
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 16) != 0) {
    throw std::runtime_error("the proxy cannot listen");
  }
  thread_ = std::thread([this] { run(); });
}

LossyProxy::~LossyProxy() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto count = write(stop_, &one, sizeof one);
  thread_.join();
  for (const auto& [client, pair] : pairs_) {
    close(client);
    close(pair.server);
  }
  close(listener_);
  close(stop_);
}

std::string LossyProxy::dsn(std::string_view database, std::string_view role) const {
  return fmt::format("host={} dbname={} user={}", folder_.path().string(), database, role);
}

void LossyProxy::lose_answer_to(std::string_view text) { arm(Loss::answer, text); }
void LossyProxy::lose_message(std::string_view text) { arm(Loss::message, text); }

void LossyProxy::arm(Loss loss, std::string_view text) {
  const std::lock_guard guard(mutex_);
  armed_ = loss;
  text_ = text;
}

LossyProxy::Loss LossyProxy::loss_for(std::string_view message) {
  const std::lock_guard guard(mutex_);
  if (armed_ == Loss::nothing || message.find(text_) == std::string_view::npos) return Loss::nothing;
  return std::exchange(armed_, Loss::nothing);
}

void LossyProxy::run() {
  for (;;) {
    std::vector<pollfd> watched{{stop_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [client, pair] : pairs_) {
      watched.push_back({client, POLLIN, 0});
      watched.push_back({pair.server, POLLIN, 0});
    }
    poll(watched.data(), watched.size(), -1);
    if (watched[0].revents != 0) return;
    for (std::size_t i = 2; i < watched.size(); i += 2) {
      const int client = watched[i].fd;
      Pair& pair = pairs_.at(client);
      const bool lives = (watched[i].revents == 0 || pass_to_server(client, pair)) &&
                         (watched[i + 1].revents == 0 || pass_to_client(client, pair));
      if (lives) continue;
      close(client);
      close(pair.server);
      pairs_.erase(client);
    }
    if (watched[1].revents != 0) accept_client();
  }
}

void LossyProxy::accept_client() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return;
  const int server = unix_socket();
  const sockaddr_un address = address_of(server_socket_);
  if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(server);
    close(client);
    return;
  }
  pairs_[client] = {server, false};
}

bool LossyProxy::pass_to_server(int client, Pair& pair) {
  const std::string message = received(client);
  if (message.empty()) return false;
  const Loss loss = loss_for(message);
  if (loss == Loss::message) {
    ++losses_;
    return false;
  }
  pair.losing_answer = pair.losing_answer || loss == Loss::answer;
  return send_all(pair.server, message);
}

bool LossyProxy::pass_to_client(int client, Pair& pair) {
  const std::string answer = received(pair.server);
  if (answer.empty()) return false;
  if (!pair.losing_answer) return send_all(client, answer);
  if (!ends_an_answer(answer)) return true;
  ++losses_;
  return false;
}

}  // namespace crossfade::test

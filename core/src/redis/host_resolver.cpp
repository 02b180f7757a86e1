#include "host_resolver.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace crossfade::redis {
namespace {

std::vector<std::string> look_up(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* first = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(first, freeaddrinfo);
  std::vector<std::string> found;
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), static_cast<socklen_t>(text.size()),
                    nullptr, 0, NI_NUMERICHOST) == 0) {
      found.emplace_back(text.data());
    }
  }
  return found;
}

}  // namespace

// Shared with the thread that asks, which may outlive the resolver by as long as a name server takes to time
// out.
struct HostResolver::State {
  std::string host;
  std::mutex mutex;
  std::condition_variable answered;
  std::vector<std::string> last;
  bool asking = false;
};

HostResolver::HostResolver(std::string host) : state_(std::make_shared<State>()) {
  state_->host = std::move(host);
}

std::vector<std::string> HostResolver::addresses(std::chrono::steady_clock::time_point deadline) {
  if (auto numeric = look_up(state_->host, AI_NUMERICHOST); !numeric.empty()) return numeric;
  std::unique_lock lock(state_->mutex);
  if (!state_->asking) {
    state_->asking = true;
    std::thread([state = state_] {
      std::vector<std::string> found = look_up(state->host, 0);
      const std::lock_guard guard(state->mutex);
      if (!found.empty()) state->last = std::move(found);
      state->asking = false;
      state->answered.notify_all();
    }).detach();
  }
  state_->answered.wait_until(lock, deadline, [this] { return !state_->asking; });
  return state_->last;
}

}  // namespace crossfade::redis

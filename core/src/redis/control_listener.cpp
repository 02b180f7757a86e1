#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "keys.hpp"
#include "redis_connection.hpp"

namespace crossfade {

using redis::Clock;
using redis::Reply;

struct ControlListener::Impl {
  redis::Url url;
  redis::HostResolver resolver;
  std::string channel;
  bool absent;
  int waker;
  std::unique_ptr<redis::Connection> connection;
  Clock::time_point next_attempt{};

  Impl(const std::string& text, const MigrationId& id)
      : url(text.empty() ? redis::Url{} : redis::parse_url(text)),
        resolver(url.host),
        channel(redis::control_channel(id)),
        absent(text.empty()),
        waker(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (waker < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~Impl() { close(waker); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // At most one attempt a second; a failing one takes the call budget.
  void subscribe() {
    if (absent || connection || Clock::now() < next_attempt) return;
    const auto deadline = Clock::now() + redis::kCallBudget;
    std::string trouble;
    connection = redis::Connection::open(url, resolver, deadline, trouble);
    if (connection) {
      const std::vector<Reply> replies = connection->call({{"SUBSCRIBE", channel}}, deadline);
      if (replies.empty() || replies.front().kind == Reply::Kind::error) connection.reset();
    }
    next_attempt = Clock::now() + std::chrono::seconds(1);
  }

  bool message_came() {
    std::vector<Reply> pushed;
    if (!connection->read_pushed(pushed)) connection.reset();
    return std::ranges::any_of(pushed, [](const Reply& reply) {
      return reply.elements.size() == 3 && reply.elements[0].text == "message";
    });
  }
};

ControlListener::ControlListener(const std::string& url, const MigrationId& id)
    : impl_(std::make_unique<Impl>(url, id)) {
  impl_->subscribe();
}

ControlListener::~ControlListener() = default;

bool ControlListener::wait(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    impl_->subscribe();
    auto until = deadline;
    if (!impl_->absent && !impl_->connection) until = std::min(until, impl_->next_attempt);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    // poll() passes over a negative descriptor.
    std::array<pollfd, 2> watched{
        pollfd{impl_->waker, POLLIN, 0},
        pollfd{impl_->connection ? impl_->connection->descriptor() : -1, POLLIN, 0}};
    poll(watched.data(), watched.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 3600000)));
    if (watched[0].revents != 0) {
      std::uint64_t wakes = 0;
      [[maybe_unused]] const auto count = read(impl_->waker, &wakes, sizeof wakes);
      return false;
    }
    if (watched[1].revents != 0 && impl_->message_came()) return true;
    if (Clock::now() >= deadline) return false;
  }
}

void ControlListener::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto count = write(impl_->waker, &one, sizeof one);
}

}  // namespace crossfade

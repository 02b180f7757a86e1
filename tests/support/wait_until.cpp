#include "support/wait_until.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <thread>

namespace crossfade::test {

void wait_until(const std::function<bool()>& happened, std::string_view what,
                std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!happened()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw std::runtime_error(fmt::format("waited {} ms in vain for: {}", timeout.count(), what));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
}

}  // namespace crossfade::test

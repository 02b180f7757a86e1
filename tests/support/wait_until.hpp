// Tests wait for events, never for time to pass.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

namespace crossfade::test {

// Polls until `happened` returns true. Throws std::runtime_error that names `what` when `timeout` is over.
void wait_until(const std::function<bool()>& happened, std::string_view what,
                std::chrono::milliseconds timeout = std::chrono::seconds(20));

}  // namespace crossfade::test

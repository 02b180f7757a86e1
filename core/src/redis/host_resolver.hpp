// Host names to addresses, without ever waiting for a name server longer than a deadline.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace crossfade::redis {

class HostResolver {
 public:
  explicit HostResolver(std::string host);
  // Numeric addresses, asked anew on every call (a failover may have moved the name); what the last answer
  // was when the new one does not come before the deadline; empty when there never was one.
  std::vector<std::string> addresses(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace crossfade::redis

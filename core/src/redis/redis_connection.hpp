// One connection to Redis. No call throws because of the server; every call ends at its deadline.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_resolver.hpp"
#include "redis_url.hpp"

struct redisContext;
struct redisReply;

namespace crossfade::redis {

using Clock = std::chrono::steady_clock;
using Command = std::vector<std::string>;

// How long any call may take, reconnecting included.
inline constexpr std::chrono::milliseconds kCallBudget{200};

struct Reply {
  enum class Kind { nil, text, integer, array, error } kind = Kind::nil;
  std::string text;  // of text and error
  long long integer = 0;
  std::vector<Reply> elements;
};

class Connection {
 public:
  // Connected, logged in, and a PING answered: the kernel accepts for a frozen server, too. nullptr: see
  // `trouble`.
  static std::unique_ptr<Connection> open(const Url& url, HostResolver& resolver, Clock::time_point deadline,
                                          std::string& trouble);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // One reply per command, error replies among them; empty when the connection broke and must be thrown away.
  std::vector<Reply> call(const std::vector<Command>& commands, Clock::time_point deadline);

  // For a subscribed connection. descriptor() became readable: takes in what is there, false when it broke.
  int descriptor() const;
  bool read_pushed(std::vector<Reply>& messages);

  const std::string& trouble() const { return trouble_; }

 private:
  struct Free {
    void operator()(redisContext* context) const;
  };
  explicit Connection(redisContext* context) : context_(context) {}
  static redisContext* connect(const Url& url, HostResolver& resolver, Clock::time_point deadline);
  bool log_in(const Url& url, Clock::time_point deadline);

  std::unique_ptr<redisContext, Free> context_;
  std::string trouble_;
};

}  // namespace crossfade::redis

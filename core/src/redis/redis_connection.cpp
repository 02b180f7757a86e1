#include "redis_connection.hpp"

#include <fcntl.h>
#include <hiredis.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <mutex>

namespace crossfade::redis {
namespace {

// hiredis writes without MSG_NOSIGNAL: a server that went away would kill the process.
void survive_broken_pipes() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction current{};
    if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
  });
}

// Never zero, which would mean for ever.
timeval time_left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  const auto count = std::max<std::int64_t>(left.count(), 1000);
  return {static_cast<time_t>(count / 1000000), static_cast<suseconds_t>(count % 1000000)};
}

Reply copied(const redisReply& reply) {
  Reply out;
  switch (reply.type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      out.kind = Reply::Kind::text;
      out.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_ERROR:
      out.kind = Reply::Kind::error;
      out.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_INTEGER:
      out.kind = Reply::Kind::integer;
      out.integer = reply.integer;
      break;
    case REDIS_REPLY_ARRAY:
      out.kind = Reply::Kind::array;
      for (std::size_t i = 0; i < reply.elements; ++i) out.elements.push_back(copied(*reply.element[i]));
      break;
    default:
      break;
  }
  return out;
}

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using OwnedReply = std::unique_ptr<redisReply, FreeReply>;

}  // namespace

void Connection::Free::operator()(redisContext* context) const { redisFree(context); }

Connection::~Connection() = default;

redisContext* Connection::connect(const Url& url, HostResolver& resolver, Clock::time_point deadline) {
  if (!url.socket.empty()) return redisConnectUnixWithTimeout(url.socket.c_str(), time_left(deadline));
  redisContext* context = nullptr;
  for (const std::string& address : resolver.addresses(deadline)) {
    if (context != nullptr) redisFree(context);
    context = redisConnectWithTimeout(address.c_str(), url.port, time_left(deadline));
    if (context != nullptr && context->err == 0) break;
  }
  return context;
}

std::unique_ptr<Connection> Connection::open(const Url& url, HostResolver& resolver,
                                             Clock::time_point deadline, std::string& trouble) {
  survive_broken_pipes();
  redisContext* context = connect(url, resolver, deadline);
  if (context == nullptr) {
    trouble = "the host name has no address";
    return nullptr;
  }
  std::unique_ptr<Connection> connection(new Connection(context));
  if (context->err != 0) {
    trouble = context->errstr;
    return nullptr;
  }
  fcntl(context->fd, F_SETFD, FD_CLOEXEC);
  if (url.socket.empty()) redisEnableKeepAlive(context);
  if (!connection->log_in(url, deadline)) {
    trouble = connection->trouble();
    return nullptr;
  }
  return connection;
}

bool Connection::log_in(const Url& url, Clock::time_point deadline) {
  std::vector<Command> commands;
  if (!url.password.empty()) {
    Command login{"AUTH"};
    if (!url.user.empty()) login.push_back(url.user);
    login.push_back(url.password);
    commands.push_back(login);
  }
  if (url.database != 0) commands.push_back({"SELECT", std::to_string(url.database)});
  commands.push_back({"PING"});
  const std::vector<Reply> replies = call(commands, deadline);
  for (const Reply& reply : replies) {
    if (reply.kind != Reply::Kind::error) continue;
    trouble_ = reply.text;
    return false;
  }
  return !replies.empty();
}

std::vector<Reply> Connection::call(const std::vector<Command>& commands, Clock::time_point deadline) {
  redisContext* const context = context_.get();
  const auto broken = [&] {
    trouble_ = context->errstr[0] != '\0' ? context->errstr : "no answer in time";
    return std::vector<Reply>{};
  };
  if (redisSetTimeout(context, time_left(deadline)) != REDIS_OK) return broken();
  for (const Command& command : commands) {
    std::vector<const char*> words;
    std::vector<std::size_t> sizes;
    for (const std::string& word : command) {
      words.push_back(word.data());
      sizes.push_back(word.size());
    }
    if (redisAppendCommandArgv(context, static_cast<int>(words.size()), words.data(), sizes.data()) !=
        REDIS_OK) {
      return broken();
    }
  }
  std::vector<Reply> replies;
  while (replies.size() < commands.size()) {
    // The kernel's timeout counts anew for every read.
    if (Clock::now() >= deadline || redisSetTimeout(context, time_left(deadline)) != REDIS_OK)
      return broken();
    void* raw = nullptr;
    if (redisGetReply(context, &raw) != REDIS_OK || raw == nullptr) return broken();
    replies.push_back(copied(*OwnedReply(static_cast<redisReply*>(raw))));
  }
  return replies;
}

int Connection::descriptor() const { return context_->fd; }

bool Connection::read_pushed(std::vector<Reply>& messages) {
  // Two messages may come in one read, and the second would raise no further POLLIN.
  if (redisBufferRead(context_.get()) != REDIS_OK) {
    trouble_ = context_->errstr;
    return false;
  }
  for (;;) {
    void* raw = nullptr;
    if (redisGetReplyFromReader(context_.get(), &raw) != REDIS_OK) {
      trouble_ = context_->errstr;
      return false;
    }
    if (raw == nullptr) return true;
    messages.push_back(copied(*OwnedReply(static_cast<redisReply*>(raw))));
  }
}

}  // namespace crossfade::redis

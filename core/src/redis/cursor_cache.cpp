#include "crossfade/core/cursor_cache.hpp"

#include <fmt/format.h>

#include <charconv>
#include <mutex>
#include <utility>
#include <vector>

#include "cache_scripts.hpp"
#include "crossfade/core/log.hpp"
#include "keys.hpp"
#include "redis_connection.hpp"

namespace crossfade {
namespace {

using redis::Clock;
using redis::Command;
using redis::kCallBudget;
using redis::Reply;

constexpr std::chrono::seconds kReconnectInterval{1};
constexpr std::chrono::seconds kTrustedAnswerAge{1};
// A server that lets us in and then refuses each write would otherwise be reported twice a second.
constexpr std::chrono::seconds kReportedBackAfter{5};
constexpr std::string_view kCursorSeconds = "604800";
constexpr std::string_view kPhaseSeconds = "5";
constexpr std::string_view kHeartbeatSeconds = "15";

// The words before the last one, which keeps its blanks. Empty when there are too few.
std::vector<std::string> words_of(std::string_view text, std::size_t count) {
  std::vector<std::string> words;
  while (words.size() + 1 < count) {
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return {};
    words.emplace_back(text.substr(0, blank));
    text.remove_prefix(blank + 1);
  }
  words.emplace_back(text);
  return words;
}

std::optional<std::int64_t> integer_of(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> number_of(const std::string& text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string_view to_text(CacheState state) {
  switch (state) {
    case CacheState::absent:
      return "absent";
    case CacheState::connected:
      return "connected";
    case CacheState::lost:
      return "lost";
  }
  return "";
}

// Workers of one process share a cache, hence the mutex; a lost server costs one of them the budget, once a
// second.
struct CursorCache::Impl {
  redis::Url url;
  redis::HostResolver resolver;
  std::mutex mutex;
  std::unique_ptr<redis::Connection> connection;
  Clock::time_point next_attempt{};
  Clock::time_point opened_at{};
  Clock::time_point last_answer{};
  bool reported_lost = false;

  explicit Impl(redis::Url parsed) : url(std::move(parsed)), resolver(url.host) {}

  bool ready(Clock::time_point deadline) {
    if (connection) return true;
    const auto now = Clock::now();
    if (now < next_attempt) return false;
    next_attempt = now + kReconnectInterval;
    std::string trouble;
    connection = redis::Connection::open(url, resolver, deadline, trouble);
    if (!connection) {
      lose(trouble);
      return false;
    }
    opened_at = last_answer = Clock::now();
    return true;
  }

  void lose(std::string trouble) {  // by value: it may live in the connection
    connection.reset();
    next_attempt = Clock::now() + kReconnectInterval;
    if (std::exchange(reported_lost, true)) return;
    log::write(log::Level::warn, "redis_lost", {{"url", url.display()}, {"reason", trouble}});
  }

  // One reply per command, or none at all. An error reply (READONLY after a failover, LOADING, NOAUTH, OOM)
  // means that this server is of no use now: it is left, and tried again in a second. NOSCRIPT is the
  // caller's.
  std::vector<Reply> call(const std::vector<Command>& commands, Clock::time_point deadline) {
    if (!ready(deadline)) return {};
    std::vector<Reply> replies = connection->call(commands, deadline);
    if (replies.empty()) {
      lose(connection->trouble());
      return {};
    }
    last_answer = Clock::now();
    for (const Reply& reply : replies) {
      if (reply.kind != Reply::Kind::error || reply.text.starts_with("NOSCRIPT")) continue;
      lose(reply.text);
      return {};
    }
    if (reported_lost && last_answer - opened_at > kReportedBackAfter) {
      reported_lost = false;
      log::write(log::Level::warn, "redis_back", {{"url", url.display()}});
    }
    return replies;
  }

  std::vector<Reply> call(const std::vector<Command>& commands) {
    return call(commands, Clock::now() + kCallBudget);
  }

  std::optional<Reply> evaluate(std::string_view script, std::string& sha, const std::string& key,
                                const std::vector<std::string>& arguments) {
    const auto deadline = Clock::now() + kCallBudget;
    const auto command = [&](const char* verb, std::string_view what) {
      Command words{verb, std::string(what), "1", key};
      words.insert(words.end(), arguments.begin(), arguments.end());
      return words;
    };
    if (sha.empty()) {
      const std::vector<Reply> loaded = call({{"SCRIPT", "LOAD", std::string(script)}}, deadline);
      if (loaded.empty()) return std::nullopt;
      sha = loaded.front().text;
    }
    std::vector<Reply> replies = call({command("EVALSHA", sha)}, deadline);
    // A restarted server forgot the script; EVAL also makes it known again.
    if (!replies.empty() && replies.front().kind == Reply::Kind::error) {
      replies = call({command("EVAL", script)}, deadline);
    }
    if (replies.empty() || replies.front().kind == Reply::Kind::error) return std::nullopt;
    return std::move(replies.front());
  }

  std::string take_sha, put_phase_sha;
};

CursorCache::CursorCache(const std::string& url) {
  if (url.empty()) return;
  impl_ = std::make_unique<Impl>(redis::parse_url(url));
}

CursorCache::~CursorCache() = default;
CursorCache::CursorCache(CursorCache&&) noexcept = default;
CursorCache& CursorCache::operator=(CursorCache&&) noexcept = default;

CacheState CursorCache::state() {
  if (!impl_) return CacheState::absent;
  const std::lock_guard guard(impl_->mutex);
  if (impl_->connection && Clock::now() - impl_->last_answer > kTrustedAnswerAge) {
    impl_->call({{"PING"}});
  } else {
    impl_->ready(Clock::now() + kCallBudget);
  }
  return impl_->connection ? CacheState::connected : CacheState::lost;
}

void CursorCache::put_cursor(const MigrationId& id, std::string_view pass, int unit,
                             const FastCursor& cursor) {
  if (!impl_) return;
  const std::lock_guard guard(impl_->mutex);
  const std::string key = redis::cursor_key(id, pass);
  const std::string value =
      fmt::format("{} {} {} {}", id.text, cursor.token.text, cursor.rows, cursor.position);
  impl_->call({{"HSET", key, std::to_string(unit), value}, {"EXPIRE", key, std::string(kCursorSeconds)}});
}

std::optional<FastCursor> CursorCache::get_cursor(const MigrationId& id, std::string_view pass, int unit,
                                                  const Token& token) {
  if (!impl_) return std::nullopt;
  const std::lock_guard guard(impl_->mutex);
  const std::vector<Reply> replies =
      impl_->call({{"HGET", redis::cursor_key(id, pass), std::to_string(unit)}});
  if (replies.empty() || replies.front().kind != Reply::Kind::text) return std::nullopt;
  const std::vector<std::string> words = words_of(replies.front().text, 4);
  if (words.empty() || words[0] != id.text || words[1] != token.text) return std::nullopt;
  const std::optional<std::int64_t> rows = integer_of(words[2]);
  if (!rows) return std::nullopt;
  return FastCursor{token, words[3], *rows};
}

void CursorCache::put_phase(const MigrationId& id, const PhaseHint& hint) {
  if (!impl_) return;
  const std::lock_guard guard(impl_->mutex);
  const std::string value =
      fmt::format("{} {} {} {}", id.text, to_text(hint.phase), hint.epoch.value, hint.token.text);
  impl_->evaluate(redis::kPutPhaseScript, impl_->put_phase_sha, redis::phase_key(id),
                  {value, std::to_string(hint.epoch.value), std::string(kPhaseSeconds)});
}

std::optional<PhaseHint> CursorCache::get_phase(const MigrationId& id) {
  if (!impl_) return std::nullopt;
  const std::lock_guard guard(impl_->mutex);
  const std::vector<Reply> replies = impl_->call({{"GET", redis::phase_key(id)}});
  if (replies.empty() || replies.front().kind != Reply::Kind::text) return std::nullopt;
  const std::vector<std::string> words = words_of(replies.front().text, 4);
  if (words.empty() || words[0] != id.text) return std::nullopt;
  const std::optional<Phase> phase = phase_from_text(words[1]);
  const std::optional<std::int64_t> epoch = integer_of(words[2]);
  if (!phase || !epoch) return std::nullopt;
  return PhaseHint{*phase, Epoch{*epoch}, Token{words[3]}};
}

void CursorCache::put_heartbeat(const MigrationId& id, std::string_view worker, const Token& token,
                                const WorkerHeartbeat& heartbeat) {
  if (!impl_) return;
  const std::lock_guard guard(impl_->mutex);
  impl_->call({{"SET", redis::worker_key(id, worker),
                fmt::format("{} {} {:.1f} {} {}", id.text, token.text, heartbeat.rows_per_second,
                            heartbeat.unit, heartbeat.since),
                "EX", std::string(kHeartbeatSeconds)}});
}

std::optional<WorkerHeartbeat> CursorCache::get_heartbeat(const MigrationId& id, std::string_view worker,
                                                          const Token& token) {
  if (!impl_) return std::nullopt;
  const std::lock_guard guard(impl_->mutex);
  const std::vector<Reply> replies = impl_->call({{"GET", redis::worker_key(id, worker)}});
  if (replies.empty() || replies.front().kind != Reply::Kind::text) return std::nullopt;
  const std::vector<std::string> words = words_of(replies.front().text, 5);
  if (words.empty() || words[0] != id.text || words[1] != token.text) return std::nullopt;
  const std::optional<double> rate = number_of(words[2]);
  const std::optional<std::int64_t> unit = integer_of(words[3]);
  if (!rate || !unit) return std::nullopt;
  return WorkerHeartbeat{*rate, static_cast<int>(*unit), words[4]};
}

void CursorCache::publish_control(const MigrationId& id, std::string_view what) {
  if (!impl_) return;
  const std::lock_guard guard(impl_->mutex);
  impl_->call({{"PUBLISH", redis::control_channel(id), std::string(what)}});
}

std::optional<std::chrono::milliseconds> CursorCache::take(const MigrationId& id, const Token& token,
                                                           std::int64_t rows, std::int64_t rows_per_second) {
  if (!impl_) return std::nullopt;
  if (rows <= 0 || rows_per_second <= 0) return std::chrono::milliseconds(0);  // 0: no limit
  const std::lock_guard guard(impl_->mutex);
  const std::optional<Reply> reply =
      impl_->evaluate(redis::kTakeScript, impl_->take_sha, redis::bucket_key(id),
                      {token.text, std::to_string(rows), std::to_string(rows_per_second)});
  if (!reply || reply->kind != Reply::Kind::integer) return std::nullopt;
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::microseconds(reply->integer));
}

void CursorCache::forget(const MigrationId& id) {
  if (!impl_) return;
  const std::lock_guard guard(impl_->mutex);
  const auto deadline = Clock::now() + kCallBudget;
  std::string cursor = "0";
  // Every key expires by itself, so a Redis too large to be scanned within the budget is no harm.
  do {
    const Command scan{"SCAN", cursor, "MATCH", redis::prefix(id) + "*", "COUNT", "1000"};
    const std::vector<Reply> replies = impl_->call({scan}, deadline);
    if (replies.empty() || replies.front().elements.size() != 2) return;
    cursor = replies.front().elements[0].text;
    Command unlink{"UNLINK"};
    for (const Reply& key : replies.front().elements[1].elements) unlink.push_back(key.text);
    if (unlink.size() > 1 && impl_->call({unlink}, deadline).empty()) return;
  } while (cursor != "0" && Clock::now() + std::chrono::milliseconds(50) < deadline);
}

}  // namespace crossfade

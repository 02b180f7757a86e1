// The door to Redis: fast cursors, control hints, the phase key. Nothing here is true; PostgreSQL is.
// No call throws because of Redis: a failing server turns state() to lost, calls return nothing, and a
// reconnect is tried again at most once a second. Values carry uuid and token; a value of another migration
// or token reads as absent.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/phase.hpp"

namespace crossfade {

enum class CacheState { absent, connected, lost };
std::string_view to_text(CacheState state);

struct FastCursor {
  Token token;
  std::string position;  // opaque to the cache: a text[] literal
  std::int64_t rows = 0;
};

struct PhaseHint {
  Phase phase;
  Epoch epoch;
  Token token;
};

// What a worker of a sweep says of itself.
struct WorkerHeartbeat {
  double rows_per_second = 0;
  int unit = 0;
  std::string since;  // when it took the unit: ISO 8601, by the worker's clock
};

class CursorCache {
 public:
  // url: "", or redis://[:PASSWORD@]HOST[:PORT][/DB], or unix:///path/to/socket. "" gives an absent cache.
  // Throws usage_error on a malformed url (without repeating a password); never because the server is down.
  explicit CursorCache(const std::string& url);
  ~CursorCache();
  CursorCache(CursorCache&&) noexcept;
  CursorCache& operator=(CursorCache&&) noexcept;

  CacheState state();

  // Key crossfade:{uuid}:cursor:<pass>, one hash field per unit; lives seven days.
  void put_cursor(const MigrationId& id, std::string_view pass, int unit, const FastCursor& cursor);
  std::optional<FastCursor> get_cursor(const MigrationId& id, std::string_view pass, int unit,
                                       const Token& token);

  // Key crossfade:{uuid}:phase, five seconds to live.
  void put_phase(const MigrationId& id, const PhaseHint& hint);
  std::optional<PhaseHint> get_phase(const MigrationId& id);

  // Key crossfade:{uuid}:worker:<worker>, fifteen seconds to live, for observers. A worker is known by the
  // pid of its backend.
  void put_heartbeat(const MigrationId& id, std::string_view worker, const Token& token,
                     const WorkerHeartbeat& heartbeat);
  std::optional<WorkerHeartbeat> get_heartbeat(const MigrationId& id, std::string_view worker,
                                               const Token& token);

  // Channel crossfade:{uuid}:control: "something changed, read PostgreSQL again".
  void publish_control(const MigrationId& id, std::string_view what);

  // Takes n rows' worth of tokens from crossfade:{uuid}:bucket at `rows_per_second` (Lua, server time).
  // Returns how long to wait before working; nullopt when Redis cannot answer and the caller must pace
  // itself.
  std::optional<std::chrono::milliseconds> take(const MigrationId& id, const Token& token, std::int64_t rows,
                                                std::int64_t rows_per_second);

  // Removes every key of the migration (closed phases).
  void forget(const MigrationId& id);

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Its own connection, because a subscribed one can do nothing else.
class ControlListener {
 public:
  ControlListener(const std::string& url, const MigrationId& id);
  ~ControlListener();
  // Waits up to `timeout` for a message; true when one came. Without Redis it just waits (interruptible by
  // wake()).
  bool wait(std::chrono::milliseconds timeout);
  // From any thread: ends a wait early.
  void wake();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace crossfade

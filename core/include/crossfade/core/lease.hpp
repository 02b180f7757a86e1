// The runner's lease on a migration: at most one process drives it. Judged by PostgreSQL's clock only.
//
// The lease is fifteen seconds, renewed by a keeper; it names the backend that holds it, so that a lease
// whose backend is gone from the same server is free at once. Whoever acquires draws a new token; every later
// write presents it, so a runner that wakes up late changes nothing (the fence in each chunk finds another
// token).
#pragma once

#include <chrono>
#include <string>

#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

inline constexpr std::chrono::seconds kLeaseLength{15};

struct LeaseHolder {
  std::string operator_name, host;
  int pid = 0;
  std::string until;
};

// What to do about a holder that shows signs of life.
enum class Contention {
  give_up,    // throw busy as soon as it renews
  take_over,  // wait for `patience`, then take the lease whatever the holder says; its writes are fenced off
};

class RunnerLease {
 public:
  // A lease that is free, expired or whose backend is gone is taken at once. Otherwise waits for `patience`
  // at most, then throws busy naming the holder, or takes over. The lease lives as long as `session`.
  static RunnerLease acquire(SqlSession& session, const MigrationId& id, const std::string& operator_name,
                             const std::string& host, std::chrono::milliseconds patience,
                             Contention contention);
  // Throws superseded, naming the new holder, when the token is no longer ours.
  void renew(SqlSession& session);
  // After the session that held it broke: the same token on a new session. Throws superseded as renew does.
  void rebind(SqlSession& session);
  // Frees the lease if it is still ours; never throws.
  void release(SqlSession& session) noexcept;
  const Token& token() const { return token_; }
  const MigrationId& migration() const { return id_; }

 private:
  RunnerLease(MigrationId id, Token token) : id_(std::move(id)), token_(std::move(token)) {}
  MigrationId id_;
  Token token_;
};

}  // namespace crossfade

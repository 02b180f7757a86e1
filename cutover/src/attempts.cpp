#include "attempts.hpp"

#include <fmt/format.h>

#include <thread>

#include "crossfade/core/lock_attempts.hpp"
#include "group.hpp"

namespace crossfade {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kBesideAnOldHolder{100};

std::string all_texts(const std::vector<LockHolder>& holders) {
  std::string text;
  for (const auto& holder : holders) text += (text.empty() ? "" : ", ") + holder.text();
  return text;
}

class Campaign {
 public:
  Campaign(PhaseEnv& env, const TransitionRequest& request, const std::vector<Migration>& group,
           const std::string& to)
      : env_(env),
        request_(request),
        m_(group.front()),
        to_(to),
        tables_(tables_of(env.session, group)),
        sampler_(env.connect, tables_) {
    for (const auto& m : group) {
      const auto name = m.row.table.display();
      if (names_.find(name) == std::string::npos) names_ += (names_.empty() ? "table " : ", ") + name;
    }
  }

  TransitionResult run(const std::function<Attempt(int, PauseSampler&)>& attempt_once) {
    for (int attempt = 1; attempt <= m_.spec.switch_attempts; ++attempt) {
      if (request_.check) request_.check();
      if (env_.stop)
        throw Error(ErrorCode::interrupted, "interrupted before the phase change", "", m_.row.name);
      if (way_is_free(attempt)) {
        auto tried = attempt_once(attempt, sampler_);
        if (tried.result) return *tried.result;
        missed(attempt, tried);
      }
      std::this_thread::sleep_for(pause_after(attempt));
    }
    throw lock_attempts_exhausted(m_.row.table.display(), m_.spec.switch_attempts, m_.spec.lock_timeout,
                                  missed_, watch_.look(env_.session, tables_), unreached_);
  }

 private:
  // True when an attempt may be made now. Otherwise the holders are named, and signalled if the operator
  // asked for it.
  bool way_is_free(int attempt) {
    const auto holders = watch_.old_holders(env_.session, tables_, m_.spec.lock_timeout);
    if (holders.empty()) {
      if (request_.tell) request_.tell("the lock on " + names_, attempt, "[]");
      return true;
    }
    missed_ = "a transaction older than the lock budget holds the table";
    record_miss(env_.session, request_.id, to_, attempt, "older holder", holders, {});
    if (request_.notice) {
      request_.notice(fmt::format("attempt {} of {}: waiting for {}", attempt, m_.spec.switch_attempts,
                                  holders.front().text()));
    }
    if (request_.tell) request_.tell(all_texts(holders), attempt, to_json(holders));
    unreached_ = signal_holders(env_.session, tables_, holders, env_.signals);
    for (const auto& sentence : unreached_) {
      if (request_.notice) request_.notice(sentence);
    }
    std::this_thread::sleep_for(kBesideAnOldHolder);
    return false;
  }

  void missed(int attempt, const Attempt& tried) {
    missed_ = tried.missed;
    record_miss(env_.session, request_.id, to_, attempt, missed_, {}, tried.cost);
    // A miss that queued nobody is the normal way under load and no news.
    if (request_.notice && lock_wait(attempt, m_.spec.lock_timeout).count() > 0) {
      request_.notice(fmt::format("attempt {} of {}: {}", attempt, m_.spec.switch_attempts, missed_));
    }
  }

  PhaseEnv& env_;
  const TransitionRequest& request_;
  const Migration& m_;
  const std::string& to_;
  const std::vector<Oid> tables_;
  std::string names_;
  HolderWatch watch_;
  PauseSampler sampler_;
  std::string missed_;
  std::vector<std::string> unreached_;
};

}  // namespace

TransitionResult with_lock_attempts(PhaseEnv& env, const TransitionRequest& request,
                                    const std::vector<Migration>& group, const std::string& to,
                                    const std::function<Attempt(int, PauseSampler&)>& attempt_once) {
  return Campaign(env, request, group, to).run(attempt_once);
}

}  // namespace crossfade

// Foreign keys of partitioned tables before a switch in either direction (shadow/forerunners.hpp).
#include <algorithm>

#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "handlers.hpp"

namespace crossfade {

namespace {
// As the runner's other steps.
constexpr std::chrono::milliseconds kSlice{500};
}  // namespace

StepResult build_forerunners(PhaseEnv& env, const Migration& m, ShortLock& lock) {
  const auto ledger = load_ledger(env.session, m.row.id);
  const auto missing = missing_forerunners(env.session, m, ledger);
  if (missing.empty()) return {StepResult::Kind::settled, {}, {}};
  env.progress(-1, -1, missing.front());
  return with_short_lock(
      env, m, lock,
      [&](std::chrono::milliseconds wait) { return make_forerunners(env.session, m, ledger, wait, kSlice); },
      locked_with_forerunners(env.session, m, ledger));
}

StepResult drop_forerunners(PhaseEnv& env, const Migration& m, ShortLock& lock) {
  const auto ledger = load_ledger(env.session, m.row.id);
  if (!forerunners_begun(env.session, m, ledger)) return {StepResult::Kind::settled, {}, {}};
  return with_short_lock(
      env, m, lock,
      [&](std::chrono::milliseconds wait) { return drop_one_forerunner(env.session, m, ledger, wait); },
      locked_with_forerunners(env.session, m, ledger));
}

std::vector<Blocker> forerunner_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  for (auto& missing : missing_forerunners(env.session, m, load_ledger(env.session, m.row.id)))
    blockers.push_back({ErrorCode::not_ready, std::move(missing), "",
                        "the command that asks for the phase change proves it first"});
  return blockers;
}

}  // namespace crossfade

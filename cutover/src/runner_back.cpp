// The runner's way back by one phase, and what is taken away when it is given up.
#include <algorithm>
#include <ranges>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/log.hpp"
#include "group.hpp"
#include "runner.hpp"

namespace crossfade {

void Runner::go_back() {
  const auto group = load_in_working_order();
  const auto& leader = group.back();
  if (const auto to = rollback_phase(leader.row.phase)) {
    ask_for(to_text(Event::rollback), *to, leader.spec.switch_attempts, std::nullopt);
  }
  const auto handler = make_phase_handler(leader.row.phase);
  const auto each_with_table = [&](const std::function<void(const Migration&)>& work) {
    for (const auto& m : group) {
      if (relation_name(session_, m.row.table_oid)) work(m);
    }
  };
  // Only the switch back rests on a comparison; every other way back is open whatever the state of the work.
  const auto compared = [&](const Migration& m) { refresh(*handler, m.row.id); };
  const bool switches = leader.row.phase == Phase::switched;
  if (switches) {
    each_with_table(compared);
    // What nothing will open is told before anything is prepared, which may cost the application's writes.
    std::vector<Blocker> refused;
    each_with_table([&](const Migration& m) {
      for (auto& blocker : unaccepted(handler->rollback_blockers(env_, m), env_.accepted)) {
        if (blocker.code == ErrorCode::rollback_refused) refused.push_back(of_member(m, std::move(blocker)));
      }
    });
    if (!refused.empty()) throw error_of(refused, leader.row.name);
  }
  try {
    each_with_table(
        [&](const Migration& m) { repeat(m, [&] { return handler->prepare_rollback(env_, m); }); });
    if (switches) {
      failpoint::hit("way_back.prepared");
      each_with_table(compared);
    }
    change(Event::rollback);
  } catch (const Error& error) {
    if (switches && error.code() == ErrorCode::rollback_refused) take_back_what_was_prepared();
    throw;
  }
  request_.reset();
  run_owed_hook();
}

// It was refused for one of the group, and what was prepared for the others may fail the application's
// writes. What cannot be taken away now is told by status, and taken away by the next command.
void Runner::take_back_what_was_prepared() {
  try {
    abandon_rollback();
  } catch (const Error& error) {
    log::write(log::Level::warn, "way_back_not_taken_back", {{"reason", error.message()}});
  }
}

void Runner::abandon_rollback() {
  const auto group = load_group(session_, setup_.id);
  const auto handler = make_phase_handler(group.front().row.phase);
  for (const auto& m : group) repeat(m, [&] { return handler->abandon_rollback(env_, m); });
}

}  // namespace crossfade

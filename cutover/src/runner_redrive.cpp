// The runner's part of a redrive: the status that it needs, and the loop.
#include <thread>

#include "runner.hpp"

namespace crossfade {

namespace {
constexpr std::chrono::milliseconds kSlice{500};
}  // namespace

void Runner::finish_redrives() {
  for (const auto& each : load_in_working_order()) {
    follow_progress(each);
    last_fingerprint_ = {};
    while (true) {
      check();
      auto m = load(each.row.id);
      if (m.row.status == Status::paused) hold_while_paused();
      m = load(each.row.id);
      require_not_failed(m);
      bool open = true;
      bool followed = false;
      const auto done = guarded(m, followed, [&] {
        const auto again = redriver_.step(env_, m, kSlice);
        open = again.has_value();
        return again.value_or(StepResult{});
      });
      if (!open) break;
      if (done) std::this_thread::sleep_for(done->pause);
    }
  }
}

std::vector<PassRow> Runner::redrive(const RedriveOptions& options) {
  // A settled phase has work again; a failed one is tried again. Both are legal events of the machine.
  if (load().row.status == Status::settled)
    change_status(session_, setup_.id, Event::fail, "redrive", env_.token);
  change_status(session_, setup_.id, Event::retry, "", env_.token);
  if (options.all) {
    for (const auto& m : load_in_working_order()) accept_replaced_functions(session_, m);
  }
  // One that was interrupted is finished first.
  finish_redrives();
  std::vector<PassRow> passes;
  auto group = load_in_working_order();
  // Numbers and keys are those of the migration's own table.
  if (!options.all) group.erase(group.begin(), group.end() - 1);
  for (const auto& m : group) {
    if (const auto pass = open_redrive(session_, m, current_table(session_, m), options))
      passes.push_back(*pass);
  }
  cache_.publish_control(setup_.id, "redrive");
  finish_redrives();
  return passes;
}

}  // namespace crossfade

// SIGINT, SIGTERM and SIGHUP ask the running call to end after its current step, however often they come:
// inside the switch they are obeyed after it. SIGPIPE is ignored, so that a reader who leaves does not end
// the work.
#pragma once

#include <chrono>

#include "crossfade/cutover/migrator.hpp"

namespace crossfade::cli {

// A signal that was ignored when we were started (nohup, background jobs) stays ignored.
void install_signals();
bool stop_was_requested();
// Returns early when a signal comes.
void wait_unless_stopped(std::chrono::milliseconds duration);

// While it lives, a signal reaches this Migrator. One at a time.
class StopOnSignal {
 public:
  explicit StopOnSignal(Migrator& migrator);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
};

}  // namespace crossfade::cli

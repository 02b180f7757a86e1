#include "signals.hpp"

#include <poll.h>

#include <atomic>
#include <csignal>

namespace crossfade::cli {

namespace {

std::atomic<Migrator*> running = nullptr;
std::atomic<bool> stop = false;
static_assert(std::atomic<Migrator*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_stop_signal(int /*number*/) {
  stop.store(true);
  if (Migrator* migrator = running.load()) migrator->request_stop();
}

}  // namespace

void install_signals() {
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  action.sa_handler = on_stop_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

bool stop_was_requested() { return stop.load(); }

void wait_unless_stopped(std::chrono::milliseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  while (!stop_was_requested()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    // poll returns when a signal comes, also with SA_RESTART; a signal just before it costs one slice.
    constexpr std::chrono::milliseconds kSlice{200};
    poll(nullptr, 0, static_cast<int>(std::min(left, kSlice).count()));
  }
}

StopOnSignal::StopOnSignal(Migrator& migrator) {
  running.store(&migrator);
  if (stop_was_requested()) migrator.request_stop();
}

StopOnSignal::~StopOnSignal() { running.store(nullptr); }

}  // namespace crossfade::cli

// A command of the spec, run by the shell as a child of this process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace crossfade {

struct HookResult {
  enum class End { exited, signalled, timed_out, not_started };
  End end = End::not_started;
  int number = 0;          // exit status, signal or errno
  std::string last_lines;  // of its output and errors together, printable, on one line

  bool succeeded() const { return end == End::exited && number == 0; }
  std::string text() const;  // "exit status 3"
};

using HookFacts = std::vector<std::pair<std::string, std::string>>;

// /bin/sh -c `command` in a process group of its own: standard input is /dev/null, no descriptor of ours is
// open in it, its environment is ours without PGPASSWORD and CROSSFADE_*, and with `facts`. Waits for the
// command, not for what it leaves in the background. After `timeout` its group gets SIGTERM, and SIGKILL
// five seconds later; when `check` throws, SIGINT in the same way, and the exception goes on.
HookResult run_hook_command(const std::string& command, const HookFacts& facts,
                            std::chrono::milliseconds timeout, const std::function<void()>& check);

}  // namespace crossfade

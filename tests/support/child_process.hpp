// A child process that dies with the thread that started it: start children from a thread that outlives them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace crossfade::test {

struct ChildOptions {
  std::vector<std::string> command;  // an absolute path and its arguments
  // Added to the inherited environment; nullopt removes. PG* and CROSSFADE_* are never inherited.
  std::map<std::string, std::optional<std::string>> environment;
  std::string run_as;  // a user name, obeyed when we are root; empty: ourselves
  int output = -1;     // descriptors for stdout and stderr; -1: /dev/null
  int error_output = -1;
  int death_signal = 9;
  std::string directory;  // to run in; empty: ours
};

class ChildProcess {
 public:
  ChildProcess() = default;
  // Throws std::runtime_error when the process cannot be made; a command that is not there exits with 127.
  explicit ChildProcess(const ChildOptions& options);
  // Kills with SIGKILL what still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  bool is_running();
  void signal(int number);
  // The status as waitpid gives it; nullopt when it still runs after `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout);

 private:
  pid_t pid_ = -1;  // stays after the end
  std::optional<int> status_;
};

// Runs to the end. Throws std::runtime_error with the output when the exit status is not 0.
std::string run_checked(ChildOptions options);

}  // namespace crossfade::test

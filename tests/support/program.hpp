// Runs a program as a person would, apart from a terminal: arguments, environment, captured output, signals.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/child_process.hpp"
#include "support/files.hpp"

namespace crossfade::test {

struct ProgramResult {
  int exit_status = -1;  // -1 when a signal ended it
  int signal = 0;        // 0 when it exited
  std::string out, err;
};

// Starts in the constructor; standard input is /dev/null; a running program is killed with the object.
// The environment is ours without PG* and CROSSFADE_*, changed by `environment` (nullopt removes).
class Program {
 public:
  using Environment = std::map<std::string, std::optional<std::string>>;
  Program(const std::string& path, const std::vector<std::string>& arguments,
          const Environment& environment = {});

  // To the end. Throws std::runtime_error with the output when it takes longer than `timeout`.
  static ProgramResult run(const std::string& path, const std::vector<std::string>& arguments,
                           const Environment& environment = {},
                           std::chrono::milliseconds timeout = std::chrono::seconds(60));

  pid_t pid() const { return child_.pid(); }
  bool is_running() { return child_.is_running(); }
  void signal(int number) { child_.signal(number); }
  ProgramResult wait(std::chrono::milliseconds timeout = std::chrono::seconds(60));
  // What it wrote up to now.
  std::string out() const { return out_->text(); }
  std::string err() const { return err_->text(); }

 private:
  std::string name_;
  std::unique_ptr<MemoryFile> out_ = std::make_unique<MemoryFile>(), err_ = std::make_unique<MemoryFile>();
  ChildProcess child_;
};

// CROSSFADE_BINARY of the environment, else the one of this build. Throws std::runtime_error when there is
// none.
std::string crossfade_binary();

}  // namespace crossfade::test

#include "support/program.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>
#include <stdexcept>

namespace crossfade::test {

Program::Program(const std::string& path, const std::vector<std::string>& arguments,
                 const Environment& environment)
    : name_(path) {
  ChildOptions options;
  options.command = {path};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.environment = environment;
  options.output = out_->descriptor();
  options.error_output = err_->descriptor();
  child_ = ChildProcess(options);
}

ProgramResult Program::run(const std::string& path, const std::vector<std::string>& arguments,
                           const Environment& environment, std::chrono::milliseconds timeout) {
  return Program(path, arguments, environment).wait(timeout);
}

ProgramResult Program::wait(std::chrono::milliseconds timeout) {
  const std::optional<int> status = child_.wait(timeout);
  if (!status) {
    throw std::runtime_error(fmt::format("{} still runs after {} ms\nstdout:\n{}\nstderr:\n{}", name_,
                                         timeout.count(), out(), err()));
  }
  ProgramResult result;
  if (WIFEXITED(*status)) result.exit_status = WEXITSTATUS(*status);
  if (WIFSIGNALED(*status)) result.signal = WTERMSIG(*status);
  result.out = out();
  result.err = err();
  return result;
}

std::string crossfade_binary() {
  if (const char* chosen = std::getenv("CROSSFADE_BINARY")) return chosen;
#ifdef CROSSFADE_BUILT_BINARY
  return CROSSFADE_BUILT_BINARY;
#else
  throw std::runtime_error("no crossfade binary: this build has none, and CROSSFADE_BINARY is not set");
#endif
}

}  // namespace crossfade::test

// Runs a command and says how long it took and how much memory it held: `seconds kibibytes status` in FILE.
//
//   crossfade_bench_measure FILE COMMAND [ARGUMENT...]
//
// The memory is the greatest resident set of the process (VmHWM), as the kernel hands it over at its end.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

extern char** environ;  // NOLINT: the name that POSIX gives it

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: crossfade_bench_measure FILE COMMAND [ARGUMENT...]\n");
    return 2;
  }
  const auto began = std::chrono::steady_clock::now();
  pid_t child = 0;
  if (const int failure = posix_spawnp(&child, arguments[2], nullptr, nullptr, arguments + 2, environ)) {
    fmt::print(stderr, "{} cannot be run: {}\n", arguments[2], std::strerror(failure));
    return 127;
  }
  int status = 0;
  rusage used{};
  if (wait4(child, &status, 0, &used) != child) {
    std::perror("wait4");
    return 127;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  std::ofstream(arguments[1]) << fmt::format("{:.6f} {} {}\n", taken.count(), used.ru_maxrss, code);
  return code;
}

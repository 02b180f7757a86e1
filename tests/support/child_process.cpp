#include "support/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "support/files.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

// Everything that needs memory or locks is done here, before fork(): other threads may hold the heap's lock.
struct Launch {
  std::vector<std::string> command, environment;
  std::vector<char*> argv, envp;
  std::vector<gid_t> groups;
  uid_t uid = 0;
  gid_t gid = 0;
  bool changes_user = false;

  explicit Launch(const ChildOptions& options) : command(options.command) {
    collect_environment(options);
    for (std::string& text : command) argv.push_back(text.data());
    for (std::string& text : environment) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    if (options.run_as.empty() || geteuid() != 0) return;
    const passwd* user = getpwnam(options.run_as.c_str());
    if (user == nullptr)
      throw std::runtime_error(fmt::format("no user \"{}\" on this machine", options.run_as));
    changes_user = true;
    uid = user->pw_uid;
    gid = user->pw_gid;
    int count = 64;
    groups.resize(static_cast<std::size_t>(count));
    getgrouplist(options.run_as.c_str(), gid, groups.data(), &count);
    groups.resize(static_cast<std::size_t>(count));
  }

  void collect_environment(const ChildOptions& options) {
    std::map<std::string, std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const std::size_t equals = text.find('=');
      if (equals == std::string_view::npos || text.starts_with("PG") || text.starts_with("CROSSFADE_"))
        continue;
      all[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
    for (const auto& [name, value] : options.environment) {
      if (value)
        all[name] = *value;
      else
        all.erase(name);
    }
    for (const auto& [name, value] : all) environment.push_back(name + "=" + value);
  }
};

[[noreturn]] void become(const Launch& launch, const ChildOptions& options, pid_t parent) {
  if (launch.changes_user && (setgroups(launch.groups.size(), launch.groups.data()) != 0 ||
                              setgid(launch.gid) != 0 || setuid(launch.uid) != 0)) {
    _exit(126);
  }
  // After setuid, which would clear it. The parent may have died in between.
  prctl(PR_SET_PDEATHSIG, options.death_signal);
  if (getppid() != parent) _exit(126);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(options.output >= 0 ? options.output : null, STDOUT_FILENO);
  dup2(options.error_output >= 0 ? options.error_output : null, STDERR_FILENO);
  if (!options.directory.empty() && chdir(options.directory.c_str()) != 0) _exit(126);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  execve(launch.argv[0], launch.argv.data(), launch.envp.data());
  _exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  const Launch launch(options);
  std::fflush(nullptr);  // or the child's buffers would be written twice
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(launch, options, parent);
  if (pid_ < 0) throw std::runtime_error(fmt::format("fork failed: {}", std::strerror(errno)));
}

ChildProcess::~ChildProcess() {
  if (!is_running()) return;
  signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(std::exchange(other.status_, std::nullopt)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

bool ChildProcess::is_running() {
  if (pid_ < 0 || status_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return !status_;
}

void ChildProcess::signal(int number) {
  if (is_running()) ::kill(pid_, number);
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
  try {
    wait_until([this] { return !is_running(); }, "the end of a child process", timeout);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
  return status_;
}

std::string run_checked(ChildOptions options) {
  const MemoryFile output;
  options.output = options.error_output = output.descriptor();
  ChildProcess child(options);
  const std::optional<int> status = child.wait(std::chrono::minutes(2));
  if (status != 0) {
    throw std::runtime_error(fmt::format("{} failed ({}):\n{}", options.command.front(),
                                         status ? fmt::format("wait status {}", *status) : "timeout",
                                         output.text()));
  }
  return output.text();
}

}  // namespace crossfade::test

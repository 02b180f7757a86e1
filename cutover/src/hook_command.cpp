#include "hook_command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

#include "crossfade/core/printable.hpp"

namespace crossfade {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};
constexpr std::size_t kKeptBytes = 4096;
constexpr int kKeptLines = 5;

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  void reset(int number) {
    close();
    number_ = number;
  }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

std::vector<std::string> environment_with(const HookFacts& facts) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("CROSSFADE_") && !text.starts_with("PGPASSWORD=")) all.emplace_back(text);
  }
  for (const auto& [name, value] : facts) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

class Child {
 public:
  // errno, or 0.
  int start(const std::string& command, const HookFacts& facts) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    output_.reset(ends[0]);
    const Descriptor writing(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::vector<std::string> words{"sh", "-c", command}, environment = environment_with(facts);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, writing.number(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, writing.number(), STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, ours;
    sigemptyset(&none);
    sigemptyset(&ours);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) sigaddset(&ours, number);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ours);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int failed = posix_spawn(&pid_, "/bin/sh", &actions, &attributes, pointers(words).data(),
                                   pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed;
  }

  // Reads what it says for a moment. The status once it has ended.
  std::optional<int> wait_a_little() {
    constexpr int kSliceMilliseconds = 50;
    pollfd poll_output{output_.number(), POLLIN, 0};
    if (poll_output.fd < 0 || poll(&poll_output, 1, kSliceMilliseconds) > 0) read_output();
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
    if (output_.number() >= 0) read_output();
    // Whoever uses the library may have had the child reaped for him.
    return ended == pid_ ? status : kUnknown;
  }

  void end(int signal) {
    const auto deadline = Clock::now() + kGrace;
    kill(-pid_, signal);
    while (!wait_a_little()) {
      if (Clock::now() > deadline) kill(-pid_, SIGKILL);
    }
  }

  std::string last_lines() const {
    std::vector<std::string_view> lines;
    for (std::string_view rest = said_; !rest.empty();) {
      const auto newline = rest.find('\n');
      if (newline != 0) lines.push_back(rest.substr(0, newline));
      if (newline == std::string_view::npos) break;
      rest.remove_prefix(newline + 1);
    }
    std::string text;
    const auto skipped = lines.size() > kKeptLines ? lines.size() - kKeptLines : 0;
    for (std::size_t i = skipped; i < lines.size(); ++i)
      text += (text.empty() ? "" : " | ") + printable(lines[i], 300);
    return text;
  }

  static constexpr int kUnknown = 0xFF00;  // as exit status 255

 private:
  void read_output() {
    char buffer[1024];
    ssize_t got = 0;
    while (output_.number() >= 0 && (got = read(output_.number(), buffer, sizeof buffer)) > 0) {
      said_.append(buffer, static_cast<std::size_t>(got));
      if (said_.size() > kKeptBytes) said_.erase(0, said_.size() - kKeptBytes);
    }
    // At its end poll would answer at once, for ever.
    if (got == 0) output_.close();
  }

  pid_t pid_ = -1;
  Descriptor output_;
  std::string said_;
};

HookResult result_of(int status, const Child& child) {
  if (WIFSIGNALED(status)) return {HookResult::End::signalled, WTERMSIG(status), child.last_lines()};
  return {HookResult::End::exited, WEXITSTATUS(status), child.last_lines()};
}

}  // namespace

std::string HookResult::text() const {
  switch (end) {
    case End::exited:
      return fmt::format("exit status {}", number);
    case End::signalled:
      return fmt::format("signal {}", number);
    case End::timed_out:
      return "timeout";
    case End::not_started:
      return fmt::format("not started ({})", std::strerror(number));
  }
  return {};
}

HookResult run_hook_command(const std::string& command, const HookFacts& facts,
                            std::chrono::milliseconds timeout, const std::function<void()>& check) {
  Child child;
  if (const int failed = child.start(command, facts); failed != 0)
    return {HookResult::End::not_started, failed, {}};
  const auto deadline = Clock::now() + timeout;
  while (true) {
    if (const auto status = child.wait_a_little()) return result_of(*status, child);
    if (Clock::now() > deadline) {
      child.end(SIGTERM);
      return {HookResult::End::timed_out, 0, child.last_lines()};
    }
    try {
      check();
    } catch (...) {
      child.end(SIGINT);
      throw;
    }
  }
}

}  // namespace crossfade

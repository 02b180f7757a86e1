#include "support/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace crossfade::test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "crossfade-test-";

std::runtime_error failed(std::string_view what) {
  return std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

fs::path root() {
  const fs::path memory = "/dev/shm";
  return access(memory.c_str(), W_OK | X_OK) == 0 ? memory : fs::temp_directory_path();
}

// Requires: the caller holds the lock on the making of folders.
void remove_left_behind() {
  for (const fs::directory_entry& entry : fs::directory_iterator(root())) {
    if (!entry.path().filename().string().starts_with(kPrefix) || !entry.is_directory()) continue;
    const int folder = open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) continue;
    std::error_code ignored;
    if (flock(folder, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), ignored);
    close(folder);
  }
}

}  // namespace

MemoryFile::MemoryFile() : descriptor_(memfd_create("crossfade-test", MFD_CLOEXEC)) {
  if (descriptor_ < 0) throw failed("memfd_create");
}

MemoryFile::~MemoryFile() { close(descriptor_); }

std::string MemoryFile::text() const {
  std::string out;
  std::vector<char> buffer(65536);
  ssize_t count = 0;
  while ((count = pread(descriptor_, buffer.data(), buffer.size(), static_cast<off_t>(out.size()))) > 0) {
    out.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return out;
}

FileLock::FileLock(const fs::path& path, Wait wait)
    : descriptor_(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600)) {
  if (descriptor_ < 0) throw failed(fmt::format("cannot open the lock {}", path.string()));
  held_ = flock(descriptor_, wait == Wait::yes ? LOCK_EX : LOCK_EX | LOCK_NB) == 0;
}

FileLock::~FileLock() { close(descriptor_); }

PrivateFolder::PrivateFolder(std::string_view purpose) {
  const FileLock making(root() / fmt::format(".crossfade-test-lock-{}", geteuid()));
  remove_left_behind();
  std::string name = (root() / fmt::format("{}{}-XXXXXX", kPrefix, purpose)).string();
  if (mkdtemp(name.data()) == nullptr) throw failed("mkdtemp");
  path_ = name;
  give_to_postgres(path_);
  lock_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0 || flock(lock_, LOCK_EX) != 0) throw failed("cannot lock a private folder");
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const fs::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) throw failed(fmt::format("cannot write {}", path.string()));
}

void give_to_postgres(const fs::path& path) {
  if (geteuid() != 0) return;
  const passwd* user = getpwnam("postgres");
  if (user == nullptr) throw std::runtime_error("no user postgres, and PostgreSQL refuses to run as root");
  if (lchown(path.c_str(), user->pw_uid, user->pw_gid) != 0)
    throw failed(fmt::format("chown {}", path.string()));
}

}  // namespace crossfade::test

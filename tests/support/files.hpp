// Private files of a test process.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace crossfade::test {

// Holds what a child writes; nameless, gone with the object.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int descriptor() const { return descriptor_; }
  std::string text() const;

 private:
  int descriptor_;
};

// An exclusive flock on a file or folder for the life of the object; closed on exec.
class FileLock {
 public:
  enum class Wait { yes, no };
  explicit FileLock(const std::filesystem::path& path, Wait wait = Wait::yes);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return held_; }

 private:
  int descriptor_;
  bool held_ = false;
};

// A folder that only we and user postgres may enter, in memory (/dev/shm) when possible, removed with the
// object. A process that was killed leaves its folder behind; the next one to make a folder removes it.
class PrivateFolder {
 public:
  explicit PrivateFolder(std::string_view purpose);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, std::string_view text);
// Gives a path to user postgres when we are root.
void give_to_postgres(const std::filesystem::path& path);

}  // namespace crossfade::test

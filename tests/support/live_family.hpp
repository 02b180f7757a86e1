// An application that writes a family of tables which refer to each other: parents and children in one
// transaction, children before their parent where the constraint is deferred, keys that change and rows that
// go with everything that refers to them.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace crossfade::test {

// The tables, as their owner: parent p (code), children c1, c2 (composite, deferred) and c3, and g, which
// refers to c3. `rows` parents, each with children.
std::string family_sql(int rows);

class LiveFamily {
 public:
  LiveFamily(const std::string& dsn, int writers);
  ~LiveFamily();
  LiveFamily(const LiveFamily&) = delete;
  LiveFamily& operator=(const LiveFamily&) = delete;

  // Waits until that many more transactions were committed.
  void let_write(std::int64_t transactions);
  // Ends the writers; throws std::runtime_error with the first error that one of them met.
  void stop();

 private:
  void write(const std::string& dsn, int number);

  std::atomic<bool> ending_ = false;
  std::atomic<std::int64_t> transactions_ = 0;
  std::mutex mutex_;
  std::optional<std::string> failure_;
  std::vector<std::thread> threads_;
};

}  // namespace crossfade::test

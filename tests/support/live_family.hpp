// An application that writes a family of tables which refer to each other: parents and children in one
// transaction, children before their parent where the constraint is deferred, keys that change and rows that
// go with everything that refers to them.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace crossfade::test {

// The tables, as their owner: parent p (code), children c1, c2 (composite, deferred) and c3, and g, which
// refers to c3. `rows` parents, each with children.
std::string family_sql(int rows);
// The same family, in which c1, c2 and g are partitioned, c1 in two levels, and a part of c2 has its columns
// in another order and the constraint under another name; that of g is deferrable.
std::string partitioned_family_sql(int rows);
// What the two shapes of the family have in common, beside the parts.
inline const std::vector<std::string> kFamily{"p", "c1", "c2", "c3", "g"};

// What a writer sends, a message each; rows with numbers from `id` on, of which it has `kFamilyIds` for each
// turn, are its own.
using FamilyTurn = std::function<std::vector<std::string>(int id, int turn)>;
inline constexpr int kFamilyIds = 10;
std::vector<std::string> family_turn(int id, int turn);

// Each message does the same to the tables of public and to those of the schema `twin`, which nothing else
// touches.
FamilyTurn doubled(FamilyTurn turn, const std::string& twin);
// Of one snapshot: what a table of the family holds and its twin does not, or the other way round.
std::vector<std::string> apart(const std::string& dsn, const std::string& twin);

class LiveFamily {
 public:
  LiveFamily(const std::string& dsn, int writers, FamilyTurn turn = family_turn);
  ~LiveFamily();
  LiveFamily(const LiveFamily&) = delete;
  LiveFamily& operator=(const LiveFamily&) = delete;

  // Waits until that many more transactions were committed.
  void let_write(std::int64_t transactions);
  // Ends the writers; throws std::runtime_error with the first error that one of them met.
  void stop();

 private:
  void write(const std::string& dsn, int number);

  FamilyTurn turn_;
  std::atomic<bool> ending_ = false;
  std::atomic<std::int64_t> transactions_ = 0;
  std::mutex mutex_;
  std::optional<std::string> failure_;
  std::vector<std::thread> threads_;
};

}  // namespace crossfade::test

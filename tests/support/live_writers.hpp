// An application that never stops: threads whose transactions apply the same change to a table and to its
// twin, a copy that nothing else touches. At every snapshot the two hold the same, and whatever differs
// somebody else did.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace crossfade::test {

using Random = std::mt19937_64;

// CROSSFADE_TEST_SEED, else a fresh one; printed once per process.
std::uint64_t test_seed();

// Which values the application writes: those of before the switch, or also those that only the new column
// holds.
enum class Values { narrow, wide };

// What the application knows of its table. All texts are SQL.
struct LiveTable {
  std::string name, twin;
  std::vector<std::string> key;  // columns
  std::string column;            // the migrated one, by the only name that the application knows
  std::string other;             // an integer column that is not migrated
  // The key of number n, a value per key column. Numbers 0 … rows-1 exist at the start; those below rows/2
  // are never deleted.
  std::function<std::vector<std::string>(std::int64_t)> key_of;
  std::int64_t rows = 0;
  // A value for the column. Its text is the same for table and twin.
  std::function<std::string(Random&, Values)> value;
};

// How writers take locks.
enum class LockOrder {
  consistent,  // no two writers can deadlock with each other: every 40P01 has crossfade in it, and fails the
               // test
  opposite,    // they can, and try again
};

// Of one transaction: a statement runs once per table when it holds "{table}".
struct LiveStatement {
  std::string sql;
  std::string copied_rows = {};  // a query whose rows follow, when sql is COPY … FROM STDIN
};
using LiveTransaction = std::vector<LiveStatement>;

// What an operation draws its transaction from.
class Draw {
 public:
  Draw(const LiveTable& table, Random& random, Values values, LockOrder order, int writer)
      : table_(table), random_(random), values_(values), order_(order), writer_(writer) {}

  const LiveTable& table() const { return table_; }
  Random& random() { return random_; }
  Values values() const { return values_; }
  std::int64_t number(std::int64_t below);
  std::int64_t stable();  // the number of a row that always exists
  std::int64_t hot();     // one of few such rows
  std::int64_t churn();   // the number of a row that comes and goes, or never was
  std::int64_t fresh();   // one that nobody drew before
  std::string value() { return table_.value(random_, values_); }

  std::string key_list(std::int64_t n) const;  // "1, 'a'"
  std::string key_is(std::int64_t n) const;    // "k1 = 1 AND k2 = 'a'"
  std::string key_becomes(std::int64_t n) const;
  std::string key_columns() const;

  // What the application does so that its own transactions meet in one order: rows that come and go are
  // locked by number, and of transactions over several lasting rows there is one at a time.
  LiveStatement lock_churn(std::vector<std::int64_t> numbers);
  LiveStatement lock_several();

 private:
  const LiveTable& table_;
  Random& random_;
  Values values_;
  LockOrder order_;
  int writer_;
};

struct LiveOperation {
  std::string name;
  std::function<LiveTransaction(Draw&)> make;
};
// Inserts with and without the column, updates of it, of others and of the key, deletes, re-inserts,
// rollbacks, savepoints, COPY, ON CONFLICT, several rows in both orders.
std::vector<LiveOperation> standard_operations(const std::vector<std::string>& without = {});

struct LiveOptions {
  int writers = 4;
  LockOrder order = LockOrder::consistent;
  std::string settings;  // statements at the start of each session
};

class LiveWriters {
 public:
  // Writing on return.
  LiveWriters(std::string dsn, LiveTable table, std::vector<LiveOperation> operations,
              LiveOptions options = {});
  ~LiveWriters();
  LiveWriters(const LiveWriters&) = delete;
  LiveWriters& operator=(const LiveWriters&) = delete;

  // Takes effect for every transaction that has not begun; on return those of before have ended.
  void set_values(Values values);
  // On return no transaction is open, and none begins before resume().
  void pause();
  void resume();
  // Waits until that many more transactions were committed.
  void let_write(std::int64_t transactions);
  // Throws std::runtime_error with the first error that a writer should not have met.
  void check() const;
  // Ends them, checks, and throws unless every operation was committed or rolled back at least once.
  void stop();

  std::int64_t transactions() const { return transactions_; }
  std::int64_t deadlocks() const { return deadlocks_; }

 private:
  void write(int number);
  void end();
  // The values to write in the transaction that may begin now; nullopt when it is over.
  std::optional<Values> begin_turn();
  void end_turn(const std::string& done);  // empty: to be tried again

  std::string dsn_;
  LiveTable table_;
  std::vector<LiveOperation> operations_;
  LiveOptions options_;
  std::uint64_t seed_;
  std::atomic<std::int64_t> transactions_ = 0, deadlocks_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  int busy_ = 0;  // writers in a transaction
  int pauses_ = 0;
  bool ending_ = false;
  Values values_ = Values::narrow;
  std::map<std::string, std::int64_t> done_;  // by operation
  std::optional<std::string> failure_;
  std::vector<std::thread> threads_;
};

}  // namespace crossfade::test

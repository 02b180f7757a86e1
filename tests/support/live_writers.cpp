#include "support/live_writers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "support/application_session.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

// Between two transactions of a writer, so that several of them leave room on a small machine.
constexpr auto kThinkTime = std::chrono::milliseconds(2);
constexpr std::int64_t kHotRows = 3;
constexpr std::int64_t kSeveral = 1;  // the advisory lock of transactions over several lasting rows
constexpr std::int64_t kChurnLocks = 1000;

std::string with_table(const std::string& sql, const std::string& table) {
  constexpr std::string_view kPlace = "{table}";
  std::string text = sql;
  for (auto at = text.find(kPlace); at != std::string::npos; at = text.find(kPlace, at + table.size())) {
    text.replace(at, kPlace.size(), table);
  }
  return text;
}

// In the text format of COPY; no value that tests write needs an escape.
std::string copy_data(ApplicationSession& session, const std::string& query) {
  std::string data;
  for (const auto& row : session.rows(query)) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      data += (i > 0 ? "\t" : "") + (row[i] == "NULL" ? std::string("\\N") : row[i]);
    }
    data += "\n";
  }
  return data;
}

void run(ApplicationSession& session, const LiveStatement& statement, const LiveTable& table) {
  if (statement.sql.find("{table}") == std::string::npos) return session.run(statement.sql);
  const bool copies = !statement.copied_rows.empty();
  const auto data = copies ? copy_data(session, statement.copied_rows) : std::string();
  for (const auto& name : {table.name, table.twin}) {
    const auto sql = with_table(statement.sql, name);
    if (copies) {
      session.copy_in(sql, data);
    } else {
      session.run(sql);
    }
  }
}

void run(ApplicationSession& session, const LiveTransaction& transaction, const LiveTable& table) {
  session.run("BEGIN");
  try {
    for (const auto& statement : transaction) run(session, statement, table);
    if (transaction.back().sql != "ROLLBACK") session.run("COMMIT");
  } catch (const ApplicationError& error) {
    if (!error.sqlstate().empty()) session.run("ROLLBACK");
    throw;
  }
}

LiveStatement advisory(std::int64_t number) {
  return {fmt::format("SELECT pg_advisory_xact_lock({})", number)};
}

std::string join(const std::vector<std::string>& words, std::string_view by) {
  return fmt::format("{}", fmt::join(words, by));
}

}  // namespace

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* chosen = std::getenv("CROSSFADE_TEST_SEED");
    const std::uint64_t drawn =
        chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::uint64_t{std::random_device{}()};
    std::printf("CROSSFADE_TEST_SEED=%llu\n", static_cast<unsigned long long>(drawn));
    return drawn;
  }();
  return seed;
}

std::int64_t Draw::number(std::int64_t below) {
  return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random_);
}

std::int64_t Draw::stable() { return number(std::max<std::int64_t>(table_.rows / 2, kHotRows)); }
std::int64_t Draw::hot() { return number(kHotRows); }
std::int64_t Draw::churn() { return table_.rows / 2 + number(table_.rows); }

std::int64_t Draw::fresh() {
  static std::atomic<std::int64_t> used = 0;
  return 10 * table_.rows + used++;
}

std::string Draw::key_list(std::int64_t n) const { return join(table_.key_of(n), ", "); }
std::string Draw::key_columns() const { return join(table_.key, ", "); }

std::string Draw::key_is(std::int64_t n) const {
  std::vector<std::string> terms;
  const auto values = table_.key_of(n);
  for (std::size_t i = 0; i < values.size(); ++i) terms.push_back(table_.key[i] + " = " + values[i]);
  return join(terms, " AND ");
}

std::string Draw::key_becomes(std::int64_t n) const {
  std::vector<std::string> terms;
  const auto values = table_.key_of(n);
  for (std::size_t i = 0; i < values.size(); ++i) terms.push_back(table_.key[i] + " = " + values[i]);
  return join(terms, ", ");
}

LiveStatement Draw::lock_churn(std::vector<std::int64_t> numbers) {
  std::ranges::sort(numbers);
  if (order_ == LockOrder::opposite && writer_ % 2 == 1) std::ranges::reverse(numbers);
  std::string sql;
  for (const auto number : numbers) {
    sql += advisory(kChurnLocks + number).sql + ";";
  }
  return {sql};
}

LiveStatement Draw::lock_several() {
  return order_ == LockOrder::consistent ? advisory(kSeveral) : LiveStatement{"SELECT"};
}

LiveWriters::LiveWriters(std::string dsn, LiveTable table, std::vector<LiveOperation> operations,
                         LiveOptions options)
    : dsn_(std::move(dsn)),
      table_(std::move(table)),
      operations_(std::move(operations)),
      options_(std::move(options)),
      seed_(test_seed()) {
  for (int number = 0; number < options_.writers; ++number) {
    threads_.emplace_back([this, number] { write(number); });
  }
  try {
    let_write(options_.writers);
  } catch (...) {
    end();
    throw;
  }
}

LiveWriters::~LiveWriters() { end(); }

void LiveWriters::end() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  turn_.notify_all();
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::optional<Values> LiveWriters::begin_turn() {
  std::unique_lock lock(mutex_);
  turn_.wait_for(lock, kThinkTime, [this] { return ending_; });
  turn_.wait(lock, [this] { return ending_ || pauses_ == 0; });
  if (ending_) return std::nullopt;
  ++busy_;
  return values_;
}

void LiveWriters::end_turn(const std::string& done) {
  {
    const std::scoped_lock lock(mutex_);
    --busy_;
    if (!done.empty()) ++done_[done];
  }
  turn_.notify_all();
}

void LiveWriters::write(int number) {
  Random random(seed_ + static_cast<std::uint64_t>(number));
  std::string operation = "connect";
  bool in_turn = false;
  try {
    ApplicationSession session(dsn_, options_.settings);
    std::optional<LiveTransaction> again;
    Values drawn_for = Values::narrow;
    while (const auto values = begin_turn()) {
      in_turn = true;
      if (!again || *values != drawn_for) {
        const auto& drawn = operations_[random() % operations_.size()];
        operation = drawn.name;
        Draw draw(table_, random, *values, options_.order, number);
        again = drawn.make(draw);
        drawn_for = *values;
      }
      try {
        run(session, *again, table_);
        again.reset();
        ++transactions_;
      } catch (const ApplicationError& error) {
        if (error.sqlstate() != "40P01" || options_.order == LockOrder::consistent) throw;
        ++deadlocks_;
      }
      end_turn(again ? "" : operation);
      in_turn = false;
    }
  } catch (const std::exception& exception) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = fmt::format("writer {}, {}: {}", number, operation, exception.what());
      ending_ = true;
    }
    if (in_turn) end_turn("");
    turn_.notify_all();
  }
}

void LiveWriters::check() const {
  const std::scoped_lock lock(mutex_);
  if (failure_) throw std::runtime_error("the application met an error: " + *failure_);
}

void LiveWriters::pause() {
  {
    std::unique_lock lock(mutex_);
    ++pauses_;
    turn_.wait(lock, [this] { return busy_ == 0; });
  }
  check();
}

void LiveWriters::resume() {
  {
    const std::scoped_lock lock(mutex_);
    --pauses_;
  }
  turn_.notify_all();
}

void LiveWriters::set_values(Values values) {
  pause();
  {
    const std::scoped_lock lock(mutex_);
    values_ = values;
  }
  resume();
}

void LiveWriters::let_write(std::int64_t transactions) {
  const auto wanted = transactions_ + transactions;
  wait_until(
      [&] {
        check();
        return transactions_ >= wanted;
      },
      "the application to write", std::chrono::seconds(60));
}

void LiveWriters::stop() {
  end();
  check();
  for (const auto& operation : operations_) {
    if (!done_.contains(operation.name)) {
      throw std::runtime_error("the application never did: " + operation.name);
    }
  }
}

}  // namespace crossfade::test

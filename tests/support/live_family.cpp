#include "support/live_family.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "support/application_session.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {

std::string family_sql(int rows) {
  return fmt::format(R"sql(
CREATE TABLE p (id int PRIMARY KEY, tenant int NOT NULL, code int NOT NULL UNIQUE, n int NOT NULL DEFAULT 0,
  UNIQUE (tenant, code));
CREATE TABLE c1 (id int PRIMARY KEY, code int NOT NULL REFERENCES p (code) ON UPDATE CASCADE
  ON DELETE CASCADE, n int NOT NULL DEFAULT 0);
CREATE INDEX c1_code ON c1 (code);
CREATE TABLE c2 (id int PRIMARY KEY, tenant int, code int,
  CONSTRAINT two FOREIGN KEY (tenant, code) REFERENCES p (tenant, code) ON UPDATE CASCADE ON DELETE SET NULL
    DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE c3 (id int PRIMARY KEY, code int UNIQUE REFERENCES p (code) ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE g (id int PRIMARY KEY, c_code int REFERENCES c3 (code) ON UPDATE CASCADE ON DELETE SET NULL);
CREATE INDEX g_code ON g (c_code);
COMMENT ON CONSTRAINT two ON c2 IS 'over two columns';
CREATE VIEW family AS SELECT p.code, c1.id AS child, c1.code AS child_code FROM p JOIN c1 USING (code);
INSERT INTO p SELECT i, i % 5, i FROM generate_series(1, {0}) i;
INSERT INTO c1 SELECT i, i FROM generate_series(1, {0}) i;
INSERT INTO c2 SELECT i, i % 5, i FROM generate_series(1, {0}) i;
INSERT INTO c3 SELECT i, i FROM generate_series(1, {0}) i;
INSERT INTO g SELECT i, i FROM generate_series(1, {0}) i;
)sql",
                     rows);
}

std::vector<std::string> family_turn(int id, int turn) {
  std::vector<std::string> sent{
      fmt::format("BEGIN; INSERT INTO p (id, tenant, code) VALUES ({0}, 1, {0}); INSERT INTO c1 (id, "
                  "code) VALUES ({0}, {0});"
                  "INSERT INTO c2 (id, tenant, code) VALUES ({0}, 1, {0}); INSERT INTO c3 (id, code) "
                  "VALUES ({0}, {0});"
                  "INSERT INTO g (id, c_code) VALUES ({0}, {0}); COMMIT",
                  id),
      fmt::format("BEGIN; INSERT INTO c2 (id, tenant, code) VALUES (-{0}, 2, -{0}); INSERT INTO p (id, "
                  "tenant, code) VALUES (-{0}, 2, -{0});"
                  "COMMIT",
                  id),
      fmt::format("UPDATE p SET code = code + 100000000 WHERE code = {}", id),
      fmt::format("UPDATE c1 SET n = n + 1 WHERE code = {}", id + 100000000),
      fmt::format("BEGIN; UPDATE p SET n = n + 1 WHERE code = -{0}; DELETE FROM p WHERE code = -{0}; COMMIT",
                  id)};
  if (turn % 3 != 0) sent.push_back(fmt::format("DELETE FROM p WHERE id = {}", id));
  return sent;
}

LiveFamily::LiveFamily(const std::string& dsn, int writers, FamilyTurn turn) : turn_(std::move(turn)) {
  for (int number = 1; number <= writers; ++number)
    threads_.emplace_back([this, dsn, number] { write(dsn, number); });
}

LiveFamily::~LiveFamily() {
  ending_ = true;
  for (auto& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

// Each writer has rows of its own, so that no two of them meet.
void LiveFamily::write(const std::string& dsn, int number) {
  std::string sql;
  try {
    ApplicationSession session(dsn);
    for (int turn = 0; !ending_; ++turn) {
      for (auto& statements : turn_(number * 10000000 + turn * kFamilyIds, turn)) {
        sql = std::move(statements);
        session.run(sql);
        ++transactions_;
      }
    }
  } catch (const std::exception& error) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = fmt::format("{}: {}", error.what(), sql);
    ending_ = true;
  }
}

void LiveFamily::let_write(std::int64_t transactions) {
  const auto until = transactions_ + transactions;
  wait_until([&] { return transactions_ >= until || ending_; }, "transactions of the family");
}

void LiveFamily::stop() {
  ending_ = true;
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  if (failure_) throw std::runtime_error(*failure_);
}

}  // namespace crossfade::test

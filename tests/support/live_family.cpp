#include "support/live_family.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

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

std::string partitioned_family_sql(int rows) {
  return fmt::format(R"sql(
CREATE TABLE p (id int PRIMARY KEY, tenant int NOT NULL, code int NOT NULL UNIQUE, n int NOT NULL DEFAULT 0,
  UNIQUE (tenant, code));
CREATE TABLE c1 (id int PRIMARY KEY, code int NOT NULL REFERENCES p (code) ON UPDATE CASCADE
  ON DELETE CASCADE, n int NOT NULL DEFAULT 0) PARTITION BY RANGE (id);
CREATE TABLE c1_low PARTITION OF c1 FOR VALUES FROM (MINVALUE) TO (10000000);
CREATE TABLE c1_mid PARTITION OF c1 FOR VALUES FROM (10000000) TO (20000000) PARTITION BY HASH (id);
CREATE TABLE c1_mid_0 PARTITION OF c1_mid FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE c1_mid_1 PARTITION OF c1_mid FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE c1_rest PARTITION OF c1 DEFAULT;
CREATE INDEX c1_code ON c1 (code);
CREATE TABLE c2 (id int PRIMARY KEY, tenant int, code int,
  CONSTRAINT two FOREIGN KEY (tenant, code) REFERENCES p (tenant, code) ON UPDATE CASCADE ON DELETE SET NULL
    DEFERRABLE INITIALLY DEFERRED) PARTITION BY RANGE (id);
CREATE TABLE c2_minus PARTITION OF c2 FOR VALUES FROM (MINVALUE) TO (0);
CREATE TABLE c2_plus (code int, gone text, id int PRIMARY KEY, tenant int, CONSTRAINT of_plus
  FOREIGN KEY (tenant, code) REFERENCES p (tenant, code) ON UPDATE CASCADE ON DELETE SET NULL
    DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE c2_plus DROP COLUMN gone;
COMMENT ON CONSTRAINT of_plus ON c2_plus IS 'its own name';
ALTER TABLE c2 ATTACH PARTITION c2_plus FOR VALUES FROM (0) TO (MAXVALUE);
CREATE TABLE c3 (id int PRIMARY KEY, code int UNIQUE REFERENCES p (code) ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE g (id int PRIMARY KEY, c_code int REFERENCES c3 (code) ON UPDATE CASCADE ON DELETE SET NULL
  DEFERRABLE) PARTITION BY HASH (id);
CREATE TABLE g_0 PARTITION OF g FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE g_1 PARTITION OF g FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX g_code ON g (c_code);
COMMENT ON CONSTRAINT two ON c2 IS 'over two columns';
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

// Without what begins and ends it.
FamilyTurn doubled(FamilyTurn turn, const std::string& twin) {
  return [turn = std::move(turn), twin](int id, int number) {
    auto sent = turn(id, number);
    for (auto& statements : sent) {
      for (const std::string word : {"BEGIN; ", "COMMIT"}) {
        if (const auto at = statements.find(word); at != std::string::npos) statements.erase(at, word.size());
      }
      statements = fmt::format("BEGIN; {0}; SET LOCAL search_path = {1}; {0}; COMMIT", statements, twin);
    }
    return sent;
  };
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

std::vector<std::string> apart(const std::string& dsn, const std::string& twin) {
  ApplicationSession session(dsn);
  std::string query;
  for (const auto& table : kFamily) {
    for (const auto& [one, other] : {std::pair<std::string, std::string>("public", twin), {twin, "public"}}) {
      const auto columns = table == "g"    ? "id::text, c_code::text, ''"
                           : table == "c2" ? "id::text, code::text, tenant::text"
                           : table == "c3" ? "id::text, code::text, ''"
                                           : "id::text, code::text, n::text";
      query += fmt::format(
          "{}(SELECT concat_ws(' ', '{}.{}', a, b, c) FROM (SELECT {} FROM {}.{} EXCEPT ALL"
          " SELECT {} FROM {}.{}) x (a, b, c) LIMIT 5)",
          query.empty() ? "" : " UNION ALL ", one, table, columns, one, table, columns, other, table);
    }
  }
  std::vector<std::string> found;
  for (auto& row : session.rows(query)) found.push_back(std::move(row[0]));
  return found;
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

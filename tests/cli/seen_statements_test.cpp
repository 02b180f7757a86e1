// What pg_stat_statements knows of the statements that will fail once.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "crossfade/cutover/migrator.hpp"
#include "support/application_session.hpp"
#include "support/postgres_server.hpp"

namespace crossfade::test {
namespace {

// On a server that loads the extension's library.
TEST(SeenStatementsTest, ThePlanListsThoseThatReturnTheColumn) {
  PostgresServer server({.settings = {"shared_preload_libraries=pg_stat_statements"}});
  const auto database = server.create_database();
  ApplicationSession superuser(database->superuser_dsn(), "CREATE EXTENSION pg_stat_statements");
  ApplicationSession application(
      database->dsn(), "CREATE TABLE t (id int PRIMARY KEY, b int); CREATE TABLE u (id int, b int)");
  const std::vector<std::string> readers{"SELECT * FROM t WHERE id = 1", "SELECT id, b FROM t",
                                         "INSERT INTO t VALUES (1, 2) RETURNING b",
                                         "UPDATE t SET b = 3 WHERE id = 1 RETURNING *"};
  for (const auto& statement : readers) application.run(statement);
  for (const char* statement : {"SELECT id FROM t WHERE b = 1", "SELECT count(*) FROM t", "SELECT b FROM u",
                                "UPDATE t SET b = 3 WHERE id = 1 RETURNING id"}) {
    application.run(statement);
  }
  Migrator migrator({.dsn = database->dsn(), .redis = {}, .operator_name = "ada", .host = "lovelace"});
  std::vector<std::string> seen;
  for (const auto& finding :
       migrator
           .plan({"[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\n"
                  "type = \"bigint\"\n"})
           .findings) {
    const auto at = finding.message.find("return column ");
    if (finding.id != "star_readers" || !finding.message.starts_with("pg_stat_statements")) continue;
    EXPECT_EQ(finding.severity, Severity::info);
    ASSERT_NE(at, std::string::npos) << finding.message;
    seen.push_back(finding.message.substr(finding.message.find(": ", at) + 2));
  }
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector<std::string>{"INSERT INTO t VALUES ($1, $2) RETURNING b",
                                            "SELECT * FROM t WHERE id = $1", "SELECT id, b FROM t",
                                            "UPDATE t SET b = $1 WHERE id = $2 RETURNING *"}));
}

}  // namespace
}  // namespace crossfade::test

// Types without equality, and expressions that never give the same twice.
#include <fmt/format.h>

#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class TypesTest : public DatabaseTest {};

// https://github.com/hasura/graphql-engine/issues/2036,
// https://github.com/nearform/temporal_tables/issues/33: json and point have no "=".
TEST_F(TypesTest, JsonBecomesJsonbBesideAPoint) {
  auto s = integer_scenario();
  s.spec = R"toml(
[migration]
name = "m"
table = "public.t"
[[column]]
name = "j"
type = "jsonb"
[tuning]
chunk_target = "10ms"
[drop]
soak = "0s"
)toml";
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, j json NOT NULL DEFAULT '{\"d\":  1}', n int NOT NULL DEFAULT 0, "
      "p point"
      " DEFAULT '(1,2)');"
      "INSERT INTO t (id, j) SELECT g, ('{\"b\" : ' || g || ', \"a\":1,\"a\":  2}')::json FROM "
      "generate_series(0, 1999) g";
  s.twin_setup.clear();
  s.live.column = "j";
  s.live.rows = 2000;
  s.live.value = [](Random& random, Values) {
    return fmt::format("'{{\"z\": [1,  {}], \"a\": null}}'", random() % 1000);
  };
  s.forward = "{old}::jsonb";
  s.backward = "{new}::json";
  s.misfit = "";
  Lifecycle life(dsn(), s);
  life.walk_there_and_back();
  life.finish();
}

// https://github.com/xataio/pgroll/pull/694: what never gives the same twice can never be compared.
TEST_F(TypesTest, AVolatileExpressionIsRefusedForGoodInBothDirections) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b int); CREATE SEQUENCE s");
  Migrator migrator({.dsn = dsn(), .redis = {}, .operator_name = "ada", .host = "lovelace"});
  migrator.init();
  const auto refused = [&](const std::string& forward, const std::string& backward) {
    const auto spec = fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"bigint\"\n"
        "forward = \"{}\"\nbackward = \"{}\"\n",
        forward, backward);
    for (const auto& accept :
         {std::vector<Acceptance>{}, std::vector<Acceptance>{{"expression_not_immutable", "please"}}}) {
      try {
        migrator.start({spec}, accept);
        ADD_FAILURE() << "accepted: " << forward << ", " << backward;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::finding_refused) << error.what();
      }
    }
  };
  for (const auto* addend :
       {"(random() * 10)::int", "nextval('s')::int", "extract(epoch FROM clock_timestamp())::int"}) {
    refused(fmt::format("b + {}", addend), "b::int");
    refused("b", fmt::format("(b + {})::int", addend));
  }
  EXPECT_TRUE(migrator.list().empty());
}

}  // namespace
}  // namespace crossfade::test

// A column that is computed anew: the same type, other content, and no way to compute the old content again.
#include <fmt/format.h>

#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class OneWayTest : public DatabaseTest {};

std::string key(std::int64_t n) { return "id = " + std::to_string(n); }

LiveTransaction reprice(Draw& draw) {
  return {{fmt::format("UPDATE {{table}} SET price_cents = {0}, total_cents = {0} * quantity WHERE {1}",
                       draw.number(5000), key(draw.stable()))}};
}

LiveTransaction order(Draw& draw) {
  const auto price = draw.number(5000), quantity = draw.number(9);
  return {{fmt::format(
      "INSERT INTO {{table}} (id, price_cents, quantity, total_cents, n) VALUES ({}, {}, {}, {}, 0)",
      draw.fresh(), price, quantity, price * quantity)}};
}

LiveTransaction annotate(Draw& draw) {
  return {{fmt::format("UPDATE {{table}} SET n = n + 1 WHERE {}", key(draw.stable()))}};
}

LiveTransaction cancel(Draw& draw) {
  const auto n = draw.churn();
  return {draw.lock_churn({n}), {fmt::format("DELETE FROM {{table}} WHERE id = {}", n)}};
}

LifecycleScenario scenario() {
  LifecycleScenario s;
  s.spec = R"toml(
[migration]
name = "m"
table = "public.t"
[[column]]
name = "total_cents"
type = "integer"
forward = "price_cents * quantity"
[expect]
changed = "0%..60%"
[tuning]
chunk_target = "10ms"
[drop]
soak = "0s"
)toml";
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, price_cents int NOT NULL, quantity int NOT NULL, total_cents int "
      "NOT NULL,"
      " n int NOT NULL DEFAULT 0);"
      "INSERT INTO t SELECT g, g, g % 9, g * (g % 9) + CASE WHEN g % 3 = 1 THEN 7 ELSE 0 END"
      " FROM generate_series(0, 2999) g";
  s.live = integer_scenario().live;
  s.live.column = "total_cents";
  s.live.rows = 3000;
  s.operations = {{"reprice", reprice}, {"order", order}, {"annotate", annotate}, {"cancel", cancel}};
  s.forward = "price_cents * quantity";
  s.accept_rollback = {{"one_way_rollback", "the old totals are wanted"}};
  return s;
}

TEST_F(OneWayTest, GoesThereAndBackOnlyWithTheLossAcceptedAndKeepsTheOldContentOfUntouchedRows) {
  Lifecycle life(dsn(), scenario());
  life.walk_there_and_back();
  life.finish();
}

}  // namespace
}  // namespace crossfade::test

// Amounts that were stored as text, and not all of them are numbers.
#include <fmt/format.h>

#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

class TextToNumericTest : public DatabaseTest {};

constexpr const char* kDirty = "amount !~ '^-?[0-9]+([.][0-9]+)?$'";

LifecycleScenario scenario() {
  LifecycleScenario s;
  s.spec = R"toml(
[migration]
name = "m"
table = "public.t"
[[column]]
name = "amount"
type = "numeric(12,2)"
forward = "amount::numeric(12,2)"
backward = "amount::text"
[expect]
errors = "0..1000"
[tuning]
chunk_target = "10ms"
max_rejects = 1000
[drop]
soak = "0s"
)toml";
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, amount text NOT NULL DEFAULT '0', n int NOT NULL DEFAULT 0);"
      "CREATE INDEX t_amount ON t (amount);"
      "INSERT INTO t (id, amount) SELECT g, CASE WHEN g % 800 = 13 THEN 'about ' || g ELSE (g / 4.0)::text "
      "END"
      " FROM generate_series(0, 3999) g;"
      // Nobody but the clean-up writes these.
      "INSERT INTO t (id, amount) SELECT -g, 'about ' || g FROM generate_series(1, 5) g";
  s.live = integer_scenario().live;
  s.live.column = "amount";
  s.live.rows = 4000;
  // Before the switch the wide ones are what no number can be made of.
  s.live.value = [](Random& random, Values values) {
    if (values == Values::wide && random() % 4 == 0) return std::string("'n/a'");
    return fmt::format("'{}.{}'", random() % 100000, random() % 1000);
  };
  s.forward = "CASE WHEN {old} ~ '^-?[0-9]+([.][0-9]+)?$' THEN {old}::numeric(12,2) END";
  s.backward = "{new}::text";
  return s;
}

// The application cleans up, in table and twin.
void clean(Lifecycle& life) {
  life.writers().pause();
  for (const auto* table : {"t", "t_twin"}) {
    life.owner().run(fmt::format("UPDATE {} SET amount = '1' WHERE {}", table, kDirty));
  }
  life.writers().resume();
}

TEST_F(TextToNumericTest, DirtyRowsAreParkedAndFixedWhileTheApplicationWritesMoreOfThem) {
  Lifecycle life(dsn(), scenario());
  life.start();
  life.advance_to(Phase::dry_run);
  EXPECT_GE(life.migrator().dry_run_report(life.name())->errors, 5);
  life.writers().set_values(Values::wide);
  try {
    life.migrator().next(life.name());
    FAIL() << "the backfill settled with open rejects";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rejects_open) << error.what();
  }
  life.check();
  EXPECT_GE(life.migrator().rejects(life.name()).size(), 5U);
  life.writers().let_write(200);
  life.writers().set_values(Values::narrow);
  clean(life);
  EXPECT_EQ(life.migrator().retry_rejects(life.name()).open, 0);
  life.advance_to(Phase::backfill);
  EXPECT_TRUE(life.migrator().rejects(life.name()).empty());
  for (const auto phase : {Phase::dual_write, Phase::compare, Phase::switched}) {
    life.advance_to(phase);
    life.roll_back();
    life.advance_to(phase);
  }
  EXPECT_EQ(life.owner().value(
                "SELECT attnotnull FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'amount'"),
            "t");
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
  life.finish();
}

TEST_F(TextToNumericTest, RejectsOfANotNullColumnAreNeverAccepted) {
  Lifecycle life(dsn(), scenario());
  life.start();
  life.advance_to(Phase::dry_run);
  for (int i = 0; i < 2; ++i) {
    try {
      life.migrator().next(life.name(),
                           {.until = {}, .confirm = {}, .accept = {{"rejects_open", "never mind"}}});
      FAIL() << "went on with open rejects";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::rejects_open) << error.what();
    }
  }
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
}

TEST_F(TextToNumericTest, AFirstRejectStopsTheSweepWhenNoneIsAllowedAndTheTableRollsBack) {
  auto s = scenario();
  s.spec.replace(s.spec.find("max_rejects = 1000"), 18, "max_rejects = 0");
  Lifecycle life(dsn(), s);
  life.start();
  life.advance_to(Phase::dry_run);
  try {
    life.migrator().next(life.name());
    FAIL() << "a reject was not enough to stop";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::too_many_rejects) << error.what();
  }
  EXPECT_EQ(life.status().status, Status::failed);
  life.roll_back();
  life.roll_back_to(Phase::rolled_back);
  life.check_restored();
}

}  // namespace
}  // namespace crossfade::test

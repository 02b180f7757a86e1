// A join table whose only order is made of columns that move: it is swept, compared and mended by the old
// ones until the switch, and by the new ones after it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "moving_group_test.hpp"

namespace crossfade::test {
namespace {

class MovingKeyTest : public MovingGroupTest {
 protected:
  void prepare(const std::string& drop = {}) {
    sql("CREATE TABLE users (id int PRIMARY KEY);"
        "CREATE TABLE follows (follower_id int REFERENCES users ON UPDATE CASCADE, followed_id int REFERENCES"
        " users ON UPDATE CASCADE, PRIMARY KEY (follower_id, followed_id));"
        "INSERT INTO users SELECT generate_series(1, 60);"
        "INSERT INTO follows SELECT a, b FROM generate_series(1, 60) a, generate_series(1, 20) b");
    migrator_->start({spec("public.users", "id", drop)});
  }

  // Behind the capture's back: the other side of column `name` gets another value in one row.
  void falsify(const std::string& name, const std::string& where) {
    const auto row =
        sql("SELECT m.mark, quote_ident(b ->> CASE m.phase WHEN 'switched' THEN 'retired_name' ELSE"
            " 'shadow_name' END) FROM crossfade.migration m, LATERAL (SELECT m.binding::jsonb -> 'column' AS"
            " b) x WHERE b ->> 'name' = $1 AND m.table_oid = 'follows'::regclass",
            {name})
            .one("migration");
    ApplicationSession(dsn()).run(
        fmt::format("BEGIN; SELECT set_config('crossfade.sweep', '{}', true); UPDATE follows SET {} = 999 "
                    "WHERE {}; COMMIT",
                    text_of(row[0]), text_of(row[1]), where));
  }

  std::vector<std::string> differing_keys() {
    std::vector<std::string> keys;
    for (const auto& found : migrator_->differences("m"))
      keys.push_back(found.table + " " + fmt::format("{}", fmt::join(found.difference.key.parts, ",")));
    std::ranges::sort(keys);
    return keys;
  }
};

TEST_F(MovingKeyTest, IsThatOfTheMomentInEachPhase) {
  prepare();
  advance(Phase::backfill);
  EXPECT_EQ(value("SELECT bool_and(cardinality(u.watermark) = 2 AND u.done) FROM crossfade.unit u JOIN"
                  " crossfade.pass p ON p.id = u.pass_id JOIN crossfade.migration m ON m.id = p.migration_id"
                  " WHERE m.table_oid = 'follows'::regclass AND p.kind = 'backfill'"),
            "t");
  // Keys that move while they are the order.
  sql("UPDATE users SET id = id + 1000 WHERE id <= 5");
  // In two rows: what is written to one column of a row makes the other one right, too.
  falsify("follower_id", "(follower_id, followed_id) = (7, 9)");
  falsify("followed_id", "(follower_id, followed_id) = (8, 9)");
  const auto again = migrator_->redrive("m", {.unit = {}, .all = true, .from = {}, .to = {}});
  EXPECT_EQ(again.rows_written, 2);
  advance(Phase::compare);
  falsify("follower_id", "(follower_id, followed_id) = (1002, 1003)");
  falsify("followed_id", "(follower_id, followed_id) = (1004, 1003)");
  EXPECT_EQ(migrator_->compare("m").differences, 2);
  EXPECT_EQ(differing_keys(),
            (std::vector<std::string>{"public.follows 1002,1003", "public.follows 1004,1003"}));
  EXPECT_EQ(migrator_->repair("m"), 2);
  advance(Phase::switched);
  // Now it is made of the new columns, and holds what the old ones cannot.
  sql("INSERT INTO users (id) VALUES (4000000000); INSERT INTO follows (follower_id, followed_id) VALUES "
      "(4000000000, 1001), (9, "
      "4000000000)");
  falsify("followed_id", "(follower_id, followed_id) = (1004, 1005)");
  EXPECT_EQ(migrator_->compare("m").differences, 1);
  EXPECT_EQ(differing_keys(), (std::vector<std::string>{"public.follows 1004,1005"}));
  EXPECT_EQ(migrator_->repair("m"), 1);
  std::vector<std::string> misfits;
  for (const auto& misfit : migrator_->misfits("m"))
    misfits.push_back(fmt::format("{}", fmt::join(misfit.key.parts, ",")));
  std::ranges::sort(misfits);
  EXPECT_EQ(misfits, (std::vector<std::string>{"4000000000", "4000000000,1001", "9,4000000000"}));
  sql("DELETE FROM follows WHERE 4000000000 IN (follower_id, followed_id); DELETE FROM users WHERE id > "
      "9999");
  roll_back(Phase::compare);
  advance(Phase::compare);
  EXPECT_EQ(value("SELECT count(*) FROM follows WHERE follower_id = 1002 AND followed_id = 1003"), "1");
  advance(Phase::dropped);
  EXPECT_EQ(value("SELECT count(*) FROM follows"), "1200");
}

TEST_F(MovingKeyTest, IsTheKeyOfTheArchives) {
  prepare("archive = \"table\"\n");
  advance(Phase::switched);
  sql("UPDATE users SET id = id + 1000 WHERE id <= 5");
  advance(Phase::dropped);
  const auto archives =
      sql("SELECT quote_ident(relname) FROM pg_class WHERE relkind = 'r' AND relname LIKE "
          "'follows\\_cfarchive%'");
  ASSERT_EQ(archives.rows.size(), 2U);
  for (const auto& row : archives.rows) {
    const auto archive = text_of(row[0]);
    const auto old_value = value(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attname LIKE"
        " '%\\_cfold\\_%'",
        {archive});
    EXPECT_EQ(
        value(fmt::format("SELECT count(*) FROM {} a JOIN follows f USING (follower_id, followed_id) WHERE"
                          " a.{} = f.{}",
                          archive, old_value, old_value.substr(0, old_value.find("_cfold")))),
        "1200");
  }
}

}  // namespace
}  // namespace crossfade::test

// What stands on several columns that move together is built, switched and taken back once, whoever is killed
// where.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "group_test.hpp"
#include "kill_points.hpp"
#include "support/lifecycle.hpp"
#include "support/live_graph.hpp"

namespace crossfade::test {
namespace {

class SharedTwinsKillTest : public GroupRecoveryTest {
 protected:
  void make_graph() {
    sql(graph_sql(60));
    before_ = lines();
    write_spec("public.users", "id");
    succeed({"init"});
    family_.emplace(dsn(), 2, graph_turn);
    done({"start", spec_path()});
  }

  std::vector<std::string> lines() {
    ApplicationSession owner(dsn());
    std::vector<std::string> all;
    for (const auto& table : kGraphTables) {
      for (auto& line : describe_catalog(owner, "public." + table)) all.push_back(table + ": " + line);
    }
    return all;
  }

  // Indexes, constraints and statistics by their names, without what is ours.
  std::multiset<std::string> names() {
    std::multiset<std::string> names;
    for (const auto& row :
         sql("SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace ="
             " 'public'::regnamespace UNION ALL SELECT conname FROM pg_constraint WHERE connamespace ="
             " 'public'::regnamespace AND contype <> 'n' UNION ALL SELECT stxname FROM pg_statistic_ext WHERE"
             " stxnamespace = 'public'::regnamespace")
             .rows) {
      if (text_of(row[0]).find("_cf") == std::string::npos) names.insert(text_of(row[0]));
    }
    return names;
  }

  // All tables are of one phase: types, and what stands on the columns under its names; the application met
  // no error, and its rows are what it wrote.
  void expect_whole(Phase phase) {
    EXPECT_EQ(value("SELECT string_agg(DISTINCT phase, ' ') FROM crossfade.migration WHERE phase <>"
                    " 'rolled_back'"),
              to_text(phase));
    const bool switched = phase == Phase::switched || phase == Phase::dropped;
    EXPECT_EQ(
        value(
            "SELECT string_agg(DISTINCT format_type(a.atttypid, -1), ' ') FROM pg_attribute a JOIN pg_class c"
            " ON c.oid = a.attrelid WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND"
            " c.relname <> 'notes' AND a.attname IN ('id', 'follower_id', 'followed_id', 'parent_id')"),
        switched ? "bigint" : "integer");
    EXPECT_EQ(names(), names_) << to_text(phase);
    EXPECT_EQ(
        value("SELECT string_agg(i.indexrelid::regclass::text, ' ') FROM pg_index i WHERE i.indisreplident"
              " AND i.indrelid = 'follows'::regclass"),
        "back");
    family_->let_write(5);
    EXPECT_EQ(value(graph_difference_sql()), "0");
  }

  void kill_on_the_way(Phase from, Phase to, const Arguments& command) {
    for (const auto moment : kMoments) {
      SCOPED_TRACE(kill_point(from, to, moment));
      dies(command, kill_point(from, to, moment) + "=abort");
      expect_whole(moment == "sent" ? to : from);
    }
    done(command);
    expect_whole(to);
  }

  std::vector<std::string> before_;
  std::multiset<std::string> names_;
};

TEST_F(SharedTwinsKillTest, InEachBuildOfATwinAndAroundTheSwitchInBothDirections) {
  make_graph();
  names_ = names();
  done(next(Phase::backfill));
  // Each time one twin further: of single columns and of pairs, of indexes and of constraints with their
  // spares.
  int killed = 0;
  for (bool over = false; !over;) {
    const auto point = killed % 2 == 0 ? "twin.built=abort" : "twin.intent=abort@2";
    const auto result = crossfade(next(Phase::dual_write), point);
    over = result.signal != SIGKILL;
    if (over && result.exit_status != 0) {
      ASSERT_EQ(result.exit_status, 3) << result.err;
      over = false;
      continue;
    }
    if (over) break;
    ++killed;
    expect_whole(Phase::dual_write);
    ASSERT_LT(killed, 60);
  }
  EXPECT_GE(killed, 8);
  // One twin for each index, constraint and statistics object, whichever column carries it.
  EXPECT_EQ(
      value("SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE"
            " '%\\_cftwin\\_%'"),
      "8");
  EXPECT_EQ(value("SELECT count(*) FROM pg_statistic_ext WHERE stxname LIKE '%\\_cftwin\\_%'"), "1");
  done(next(Phase::compare));
  kill_on_the_way(Phase::compare, Phase::switched, next(Phase::switched));
  // What the way back owes is built online first.
  dies(back(Phase::compare), "twin.intent=abort");
  expect_whole(Phase::switched);
  dies(back(Phase::compare), "twin.built=abort");
  expect_whole(Phase::switched);
  kill_on_the_way(Phase::switched, Phase::compare, back(Phase::compare));
  done(back(Phase::rolled_back));
  EXPECT_EQ(lines(), before_);
  done({"start", spec_path()});
  done(next(Phase::switched));
  kill_on_the_way(Phase::switched, Phase::dropped, next(Phase::dropped));
  family_->stop();
  EXPECT_EQ(value(graph_difference_sql()), "0");
}

}  // namespace
}  // namespace crossfade::test

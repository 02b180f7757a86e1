#include "interleave.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace crossfade {
namespace {

InterleaveFacts full_pages() {
  InterleaveFacts facts;
  facts.blocks = 100'000;
  facts.rows_per_page = 60;
  facts.indexes = 4;
  return facts;
}

TEST(InterleaveTest, AFullTableIsSweptInSeveralVisits) {
  EXPECT_EQ(choose_interleave(full_pages()).visits, 15);
  auto facts = full_pages();
  facts.indexes = 1;
  EXPECT_EQ(choose_interleave(facts).visits, 8);
  facts.indexes = 3;
  facts.rows_per_page = 20;
  EXPECT_EQ(choose_interleave(facts).visits, 8);
  facts.rows_per_page = 5;
  EXPECT_EQ(choose_interleave(facts).visits, 2);
  facts.hot_share = 0.8;
  EXPECT_EQ(choose_interleave(facts).visits, 2);
}

TEST(InterleaveTest, WhatIsTunedCountsExceptInAReplay) {
  auto facts = full_pages();
  facts.tuned = 3;
  facts.old_snapshot = "session 7";
  facts.blocks = 1;
  EXPECT_EQ(choose_interleave(facts), (Interleave{3, "tuned"}));
  facts.writes = false;
  EXPECT_EQ(choose_interleave(facts).visits, 1);
  facts.writes = true;
  facts.tuned = 1;
  EXPECT_EQ(choose_interleave(facts), (Interleave{1, "tuned"}));
}

TEST(InterleaveTest, EachReasonAgainstItIsSaid) {
  const auto refused = [](const std::function<void(InterleaveFacts&)>& make) {
    auto facts = full_pages();
    make(facts);
    const auto chosen = choose_interleave(facts);
    EXPECT_EQ(chosen.visits, 1) << chosen.reason;
    return chosen.reason;
  };
  EXPECT_EQ(refused([](auto& f) { f.writes = false; }), "a replay should write nothing");
  EXPECT_EQ(refused([](auto& f) { f.shadow_is_indexed = true; }),
            "an index has the new column, so no update can be heap-only");
  EXPECT_EQ(refused([](auto& f) { f.blocks = 127; }), "the table is small");
  EXPECT_EQ(refused([](auto& f) { f.follows_pages = false; }),
            "neighbours in key order lie on different pages");
  EXPECT_EQ(refused([](auto& f) { f.rows_per_page = 3; }), "3 rows to a page");
  EXPECT_EQ(refused([](auto& f) { f.free_share = 0.5; }), "the fillfactor leaves 50 % of each page free");
  EXPECT_EQ(refused([](auto& f) { f.old_snapshot = "session 7"; }),
            "session 7 keeps dead rows from being removed");
  EXPECT_EQ(refused([](auto& f) { f.hot_share = 0.12; }),
            "only 12 % of the last window's updates stayed on their page");
}

}  // namespace
}  // namespace crossfade

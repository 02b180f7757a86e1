#include "crossfade/core/finding.hpp"

#include <set>

#include <gtest/gtest.h>

namespace crossfade {
namespace {

Finding refusal(std::string id) {
  return {Severity::refuse, std::move(id), "public.t", "It is so.", "Change it."};
}

TEST(FindingTest, EveryIdIsKnownOnceAndHasOneSentence) {
  std::set<std::string_view> ids;
  for (const FindingInfo& info : finding_table()) {
    EXPECT_TRUE(ids.insert(info.id).second) << info.id;
    EXPECT_EQ(find_finding(info.id), &info);
    EXPECT_TRUE(info.meaning.ends_with('.')) << info.id;
  }
  EXPECT_EQ(find_finding("no_such_finding"), nullptr);
}

TEST(FindingTest, TheIdsOfTheDesignAreAllThere) {
  for (const char* id : {"no_usable_key",
                         "relation_kind",
                         "unlogged_table",
                         "server_version",
                         "missing_privilege",
                         "row_security",
                         "name_in_use",
                         "generated_input",
                         "expression_not_immutable",
                         "expression_other_relation",
                         "expression_type",
                         "dependent_not_carried",
                         "foreign_dependents",
                         "published_table",
                         "user_trigger_fires",
                         "trigger_sorts_later",
                         "update_rule",
                         "column_order",
                         "star_readers",
                         "isolation_conflict",
                         "plpgsql_cached_types",
                         "twin_unique_may_reject",
                         "standby_snapshots_unseen",
                         "statistics_hidden",
                         "deadlock_timeout_short",
                         "not_supported_yet",
                         "nothing_changes",
                         "dry_run_changed",
                         "dry_run_errors",
                         "dry_run_lossy",
                         "rejects_open",
                         "misfits_open",
                         "one_way_rollback",
                         "old_snapshot",
                         "fingerprint_changed"}) {
    EXPECT_NE(find_finding(id), nullptr) << id;
  }
}

TEST(FindingTest, AnAcceptedRefusalNoLongerRefuses) {
  EXPECT_TRUE(unaccepted({refusal("one_way_rollback")}, {{"one_way_rollback", "agreed"}}).empty());
}

TEST(FindingTest, ARefusalThatNobodyAcceptedRefuses) {
  const auto open =
      unaccepted({refusal("one_way_rollback"), refusal("rejects_open")}, {{"rejects_open", "agreed"}});
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open.front().id, "one_way_rollback");
}

TEST(FindingTest, WhatCannotBeAcceptedRefusesEvenWhenAccepted) {
  for (const char* id :
       {"fingerprint_changed", "no_usable_key", "row_security", "old_snapshot", "unknown_id"}) {
    EXPECT_EQ(unaccepted({refusal(id)}, {{id, "please"}}).size(), 1U) << id;
  }
}

TEST(FindingTest, WarningsAndNotesRefuseNothing) {
  Finding warning = refusal("star_readers");
  warning.severity = Severity::warn;
  Finding note = refusal("no_usable_key");
  note.severity = Severity::info;
  EXPECT_TRUE(unaccepted({warning, note}, {}).empty());
}

TEST(FindingTest, SeveritiesHaveTheirWords) {
  EXPECT_EQ(to_text(Severity::refuse), "refuse");
  EXPECT_EQ(to_text(Severity::warn), "warn");
  EXPECT_EQ(to_text(Severity::info), "info");
}

}  // namespace
}  // namespace crossfade

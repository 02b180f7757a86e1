#include "crossfade/core/error.hpp"

#include <set>

#include <gtest/gtest.h>

namespace crossfade {
namespace {

// Exhaustive, so that the compiler names a code that the table might lack.
std::string_view expected_name(ErrorCode code) {
#define NAME_OF(code_name)   \
  case ErrorCode::code_name: \
    return #code_name;
  switch (code) {
    NAME_OF(usage_error)
    NAME_OF(spec_syntax)
    NAME_OF(spec_unknown_key)
    NAME_OF(spec_missing_key)
    NAME_OF(spec_bad_value)
    NAME_OF(spec_unreadable)
    NAME_OF(password_in_dsn)
    NAME_OF(tuning_out_of_bounds)
    NAME_OF(unknown_tuning_key)
    NAME_OF(unknown_phase)
    NAME_OF(unknown_finding)
    NAME_OF(failpoint_syntax)
    NAME_OF(connection_pooled)
    NAME_OF(finding_refused)
    NAME_OF(not_ready)
    NAME_OF(soak_not_over)
    NAME_OF(confirmation_missing)
    NAME_OF(lock_attempts_exhausted)
    NAME_OF(spec_conflict)
    NAME_OF(table_has_migration)
    NAME_OF(rollback_refused)
    NAME_OF(illegal_transition)
    NAME_OF(not_initialized)
    NAME_OF(unknown_migration)
    NAME_OF(schema_version)
    NAME_OF(expectation_missed)
    NAME_OF(not_supported_yet)
    NAME_OF(schema_in_use)
    NAME_OF(identity_mismatch)
    NAME_OF(permission_denied)
    NAME_OF(paused)
    NAME_OF(rejects_open)
    NAME_OF(undefined_table)
    NAME_OF(undefined_column)
    NAME_OF(old_snapshot)
    NAME_OF(request_cancelled)
    NAME_OF(trigger_fails)
    NAME_OF(hook_failed)
    NAME_OF(worker_mismatch)
    NAME_OF(unknown_unit)
    NAME_OF(phase_failed)
    NAME_OF(statement_failed)
    NAME_OF(too_many_rejects)
    NAME_OF(table_changed)
    NAME_OF(rows_suppressed)
    NAME_OF(differences_found)
    NAME_OF(fingerprint_changed)
    NAME_OF(standby_behind)
    NAME_OF(standby_mismatch)
    NAME_OF(internal_error)
    NAME_OF(server_unreachable)
    NAME_OF(connection_lost)
    NAME_OF(authentication_failed)
    NAME_OF(read_only_server)
    NAME_OF(server_too_old)
    NAME_OF(busy)
    NAME_OF(superseded)
    NAME_OF(outcome_unknown)
    NAME_OF(interrupted)
  }
#undef NAME_OF
  return {};
}

int expected_exit(int number) {
  if (number < 30) return 2;
  if (number < 60) return 3;
  if (number < 70) return 4;
  if (number < 80) return 5;
  if (number < 90) return 6;
  if (number < 100) return 7;
  if (number >= 110) return 3;
  return 130;
}

Error with_state(std::string sqlstate) {
  Error error(ErrorCode::statement_failed, "A statement failed.");
  error.with_sqlstate(std::move(sqlstate));
  return error;
}

TEST(ErrorTableTest, EveryNameIsTheEnumerator) {
  for (const ErrorInfo& info : error_table()) EXPECT_EQ(info.name, expected_name(info.code));
}

TEST(ErrorTableTest, EveryCodeOfTheEnumerationHasARow) {
  std::set<std::string_view> names;
  for (int number = 0; number <= 200; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    if (expected_name(code).empty()) continue;
    EXPECT_EQ(error_info(code).code, code);
    names.insert(error_info(code).name);
  }
  EXPECT_EQ(names.size(), error_table().size());
}

TEST(ErrorTableTest, TheTensOfACodeAreItsExitClass) {
  for (const ErrorInfo& info : error_table()) {
    EXPECT_EQ(info.exit_status, expected_exit(static_cast<int>(info.code))) << info.name;
  }
}

TEST(ErrorTableTest, EveryMeaningIsOneSentence) {
  for (const ErrorInfo& info : error_table()) {
    ASSERT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_TRUE(info.meaning.ends_with('.')) << info.name;
    EXPECT_EQ(info.meaning.find(". "), std::string_view::npos) << info.name;
  }
}

TEST(ErrorTableTest, OnlyUnavailabilityIsRetriedByCodeAlone) {
  for (const ErrorInfo& info : error_table()) {
    EXPECT_TRUE(info.disposition != Disposition::retry || info.exit_status == 5) << info.name;
  }
}

TEST(ErrorTest, CarriesWhatItWasGiven) {
  Error error(ErrorCode::busy, "Another runner holds it.", "Wait.", "items_price");
  error.with_sqlstate("55P03").with_effect(Effect::unknown);
  EXPECT_STREQ(error.what(), "Another runner holds it.");
  EXPECT_EQ(error.name(), "busy");
  EXPECT_EQ(error.exit_status(), 6);
  EXPECT_EQ(error.hint(), "Wait.");
  EXPECT_EQ(error.object(), "items_price");
  EXPECT_EQ(error.sqlstate(), "55P03");
  EXPECT_EQ(error.effect(), Effect::unknown);
  EXPECT_EQ(error.disposition(), Disposition::refuse);
}

TEST(ErrorTest, ATransientStatementMayBeRetriedAndAnotherMayNot) {
  for (const char* state : {"40001", "40P01", "55P03", "57014"}) {
    EXPECT_TRUE(with_state(state).is_transient()) << state;
    EXPECT_EQ(with_state(state).disposition(), Disposition::retry) << state;
  }
  for (const char* state : {"40002", "55000", "57P01", "22003", "08006", ""}) {
    EXPECT_FALSE(with_state(state).is_transient()) << state;
    EXPECT_EQ(with_state(state).disposition(), Disposition::ask_operator) << state;
  }
}

TEST(ErrorTest, TransientKindsAreToldApart) {
  EXPECT_TRUE(with_state("40001").is_serialization_or_deadlock());
  EXPECT_TRUE(with_state("40P01").is_serialization_or_deadlock());
  EXPECT_FALSE(with_state("55P03").is_serialization_or_deadlock());
  EXPECT_TRUE(with_state("55P03").is_lock_not_available());
  EXPECT_TRUE(with_state("57014").is_query_canceled());
}

TEST(ErrorTest, AFailureOnAValueIsADataError) {
  for (const char* state : {"21000", "22003", "22P02", "23502", "23505", "2F003", "38001", "39004", "P0001",
                            "P0002", "HV004", "0A000", "20000", "54000", "54001"}) {
    EXPECT_TRUE(with_state(state).is_data_error()) << state;
  }
}

TEST(ErrorTest, ACodeThatAUserMadeUpIsADataError) {
  for (const char* state : {"U0001", "ZZ999", "99001", "BAD01"})
    EXPECT_TRUE(with_state(state).is_data_error()) << state;
}

TEST(ErrorTest, WhatSaysNothingAboutTheRowIsNoDataError) {
  for (const char* state : {"08006", "25006", "28P01", "40001", "40P01", "42501", "42P01", "42883", "53100",
                            "53200", "55P03", "57014", "57P01", "58030", "XX000", "XX001", "CF001", ""}) {
    EXPECT_FALSE(with_state(state).is_data_error()) << state;
  }
}

}  // namespace
}  // namespace crossfade

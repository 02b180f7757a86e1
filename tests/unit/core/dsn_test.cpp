#include <gtest/gtest.h>

#include <functional>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {
namespace {

constexpr const char* kSecret = "Hunter2Xyz";

// Every form in which libpq takes a password; S stands for it.
const std::vector<std::string>& dsns_with_password() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> forms{
        "host=db password=S dbname=app",
        "host=db password = S dbname=app",
        "password='S' host=db",
        "password = 'S' host=db",
        "password='it\\'s S' host=db",
        "sslpassword=S host=db",
        "postgres://app:S@db/app",
        "postgresql://app:S@db:5432/app?sslmode=disable",
        "postgresql://:S@db/app",
        "postgresql://app@db/app?password=S",
        "postgresql:///app?host=db&password=S",
        "postgresql://app:%53@db/app",
    };
    for (std::string& form : forms) {
      if (const std::size_t at = form.find('S'); at != std::string::npos) form.replace(at, 1, kSecret);
    }
    return forms;
  }();
  return all;
}

// What libpq cannot read, or reads differently from what the writer meant.
const std::vector<std::string>& broken_dsns_with_password() {
  static const std::vector<std::string> all{
      std::string("password=two ") + kSecret + " host=db",
      std::string("password='") + kSecret,
      std::string("postgres://app:p@") + kSecret + "@db/app",
      std::string("postgres://app:p/") + kSecret + "@db/app",
      std::string("postgres://app:p%zz") + kSecret + "@db/app",
      std::string("postgres://app:p?") + kSecret + "@d@b/app",
  };
  return all;
}

std::string everything_said_by(const std::function<void()>& call, ErrorCode expected) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.message();
    return error.message() + error.hint() + error.object();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(RefusePasswordTest, KnowsEveryFormAndRepeatsNone) {
  for (const std::string& dsn : dsns_with_password()) {
    SCOPED_TRACE(dsn);
    const std::string said = everything_said_by([&] { refuse_password(dsn); }, ErrorCode::password_in_dsn);
    EXPECT_EQ(said.find(kSecret), std::string::npos);
  }
}

TEST(RefusePasswordTest, RefusesWhatLibpqCannotReadWithoutRepeatingIt) {
  for (const std::string& dsn : broken_dsns_with_password()) {
    SCOPED_TRACE(dsn);
    const std::string said = everything_said_by([&] { refuse_password(dsn); }, ErrorCode::password_in_dsn);
    EXPECT_EQ(said.find(kSecret), std::string::npos);
  }
}

TEST(RefusePasswordTest, LetsEverythingElsePass) {
  for (const std::string dsn :
       {"", "host=db dbname=app user=app", "postgresql://app@db:5432/app?sslmode=require", "service=app",
        "postgresql://db1:5432,db2:5432/app?target_session_attrs=read-write",
        "host=db passfile=/home/app/.pgpass"}) {
    EXPECT_NO_THROW(refuse_password(dsn)) << dsn;
  }
}

TEST(RefusePasswordTest, CallsAnUnreadableDsnWithoutPasswordAUsageError) {
  everything_said_by([] { refuse_password("host=db colour=blue"); }, ErrorCode::usage_error);
  everything_said_by([] { refuse_password("host='db"); }, ErrorCode::usage_error);
}

TEST(RedactedTest, ShowsNoSecretOfAnyForm) {
  for (const auto* list : {&dsns_with_password(), &broken_dsns_with_password()}) {
    for (const std::string& dsn : *list) {
      const std::string shown = redacted(dsn);
      EXPECT_EQ(shown.find(kSecret), std::string::npos) << dsn << " became " << shown;
      EXPECT_EQ(shown.find("password="), std::string::npos) << dsn << " became " << shown;
    }
  }
}

TEST(RedactedTest, ShowsTheRestInAFormThatLibpqReads) {
  EXPECT_EQ(redacted("postgresql://app:pw@db:5433/shop?sslmode=disable"),
            "dbname=shop host=db port=5433 sslmode=disable user=app");
  EXPECT_EQ(redacted("host=db dbname='my shop'"), "dbname='my shop' host=db");
  EXPECT_EQ(redacted("dbname='it\\'s' password=x"), "dbname='it\\'s'");
  EXPECT_EQ(redacted(""), "");
}

TEST(SqlValueTest, ReadsWhatPostgresWrites) {
  EXPECT_EQ(int_of("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(double_of("1.5e-3"), 0.0015);
  EXPECT_TRUE(bool_of("t"));
  EXPECT_FALSE(bool_of("f"));
  EXPECT_EQ(text_of(""), "");
}

TEST(SqlValueTest, RefusesNullAndNonsense) {
  everything_said_by([] { text_of(std::nullopt); }, ErrorCode::internal_error);
  for (const char* text : {"", "1x", " 1", "9223372036854775808", "1.0"}) {
    everything_said_by([&] { int_of(text); }, ErrorCode::internal_error);
  }
  everything_said_by([] { bool_of("true"); }, ErrorCode::internal_error);
  everything_said_by([] { double_of("1.5 "); }, ErrorCode::internal_error);
}

TEST(SqlResultTest, OneNamesWhatIsMissing) {
  const std::string said =
      everything_said_by([] { SqlResult{}.one("the migration row"); }, ErrorCode::internal_error);
  EXPECT_NE(said.find("the migration row"), std::string::npos);
}

TEST(ErrorFromSqlstateTest, MapsByState) {
  const auto code = [](const char* sqlstate) { return error_from_sqlstate(sqlstate, "x").code(); };
  EXPECT_EQ(code("08006"), ErrorCode::connection_lost);
  EXPECT_EQ(code("57P01"), ErrorCode::connection_lost);
  EXPECT_EQ(code("57014"), ErrorCode::statement_failed);
  EXPECT_EQ(code("42501"), ErrorCode::permission_denied);
  EXPECT_EQ(code("42P01"), ErrorCode::undefined_table);
  EXPECT_EQ(code("42703"), ErrorCode::undefined_column);
  EXPECT_EQ(code("25006"), ErrorCode::read_only_server);
  EXPECT_EQ(code("40P01"), ErrorCode::statement_failed);
  EXPECT_EQ(code("22003"), ErrorCode::statement_failed);
  EXPECT_EQ(error_from_sqlstate("40P01", "x").sqlstate(), "40P01");
  EXPECT_TRUE(error_from_sqlstate("40P01", "x").is_serialization_or_deadlock());
  EXPECT_EQ(error_from_sqlstate("40003", "x").effect(), Effect::unknown);
}

}  // namespace
}  // namespace crossfade

// Expressions that follow settings of the session: refused, or accepted and computed alike in every session.
#include <fmt/format.h>

#include "support/application_session.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

const std::vector<Acceptance> kAccepted{{"expression_not_immutable", "UTC is meant"}};

// Sessions of which no two agree on what a time looks like.
constexpr const char* kTokyo = "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'";
constexpr const char* kNewYork =
    "SET TimeZone = 'America/New_York'; SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601';"
    " SET extra_float_digits = -9; SET bytea_output = 'escape'";

class StableTest : public DatabaseTest {
 protected:
  StableTest() : migrator_({.dsn = dsn(), .redis = {}, .operator_name = "ada", .host = "lovelace"}) {
    migrator_.init();
  }

  static std::string spec(const std::string& type, const std::string& more = {}) {
    return fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"{}\"\n{}[drop]\n"
        "soak = \"0s\"\n",
        type, more);
  }

  Error refused(const std::string& text, const std::vector<Acceptance>& accept) {
    try {
      migrator_.start({text}, accept);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "accepted: " << text;
    return Error(ErrorCode::internal_error, "none");
  }

  // The whole life, with writes of both sessions in each phase that has a capture.
  void live(const std::string& text, const std::string& literal, const std::vector<Acceptance>& accept,
            const std::string& expected) {
    migrator_.start({text}, accept);
    ApplicationSession tokyo(dsn(), kTokyo), new_york(dsn(), kNewYork);
    int id = 100;
    const auto write = [&] {
      for (auto* application : {&tokyo, &new_york}) {
        application->run(fmt::format("INSERT INTO t VALUES ({}, {})", ++id, literal));
        application->run(fmt::format("UPDATE t SET b = {} WHERE id = {}", literal, id % 5));
      }
    };
    for (const auto phase : {Phase::backfill, Phase::dual_write, Phase::compare}) {
      migrator_.next("m", {.until = phase, .confirm = {}, .accept = {}});
      write();
    }
    migrator_.next("m", {.until = Phase::switched, .confirm = {}, .accept = {}});
    EXPECT_EQ(value(fmt::format("SELECT string_agg(DISTINCT b::text, '|') FROM t")), expected) << text;
    EXPECT_EQ(migrator_.status("m").differences, 0);
    migrator_.next("m", {.until = Phase::dropped, .confirm = "m", .accept = {}});
    sql("DROP TABLE t");
  }

  Migrator migrator_;
};

TEST_F(StableTest, ARefusalNamesTheFunctionAndIsGoneWithAnAcceptance) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b timestamptz)");
  const std::vector<std::pair<std::string, std::string>> cases{
      {spec("date"), "date(timestamp with time zone) is only stable"},
      {spec("text"), "timestamptz_out(timestamp with time zone)"},
      {spec("text", "forward = \"to_char(b, 'HH24')\"\n"),
       "to_char(timestamp with time zone,text) is only stable"},
      {spec("bool", "forward = \"b > now()\"\nbackward = \"NULL\"\n"), "now()"},
      {spec("date", "forward = \"CURRENT_DATE\"\nbackward = \"NULL\"\n"), "in a later transaction"}};
  for (const auto& [text, named] : cases) {
    const auto error = refused(text, {});
    EXPECT_EQ(error.code(), ErrorCode::finding_refused);
    EXPECT_NE(error.message().find(named), std::string::npos) << error.message();
    EXPECT_NE(error.hint().find("--accept expression_not_immutable"), std::string::npos) << error.hint();
    const auto plan = migrator_.plan({text});
    EXPECT_FALSE(plan.refusals.empty());
    EXPECT_FALSE(plan.statements.empty());
    migrator_.start({text}, kAccepted);
    migrator_.rollback("m");
  }
}

TEST_F(StableTest, WhatIsVolatileInAnyOfItsPartsIsRefusedWhateverIsAccepted) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b timestamptz); CREATE SEQUENCE s;"
      "CREATE FUNCTION shuffled(timestamptz) RETURNS timestamptz VOLATILE LANGUAGE sql RETURN $1");
  for (const auto& [forward, named] : std::vector<std::pair<std::string, std::string>>{
           {"to_char(b, 'HH24') || random()", "random()"},
           {"b::text || nextval('public.s')", "nextval(regclass)"},
           {"(b - clock_timestamp())::text", "clock_timestamp()"},
           {"CASE WHEN b IN ('2020-01-01', clock_timestamp()) THEN 'x' END", "clock_timestamp()"},
           {"public.shuffled(b)::text", "public.shuffled(timestamp with time zone)"}}) {
    const auto error = refused(
        spec("text", fmt::format("forward = \"{}\"\nbackward = \"b::timestamptz\"\n", forward)), kAccepted);
    EXPECT_EQ(error.code(), ErrorCode::finding_refused);
    EXPECT_NE(error.message().find(named + " is volatile"), std::string::npos) << error.message();
    EXPECT_EQ(error.hint().find("--accept"), std::string::npos) << error.hint();
  }
  EXPECT_TRUE(migrator_.list().empty());
}

TEST_F(StableTest, ItStillReadsNothingButColumnsOfItsRow) {
  sql("CREATE TABLE t (id int PRIMARY KEY, b timestamptz)");
  for (const auto* forward : {"t::text", "to_char(b, 'HH24') || tableoid", "(SELECT b::text)",
                              "max(b::text) OVER ()", "max(b)::text", "cf_probe::text"}) {
    const auto error = refused(
        spec("text", fmt::format("forward = \"{}\"\nbackward = \"b::timestamptz\"\n", forward)), kAccepted);
    EXPECT_EQ(error.code(), ErrorCode::finding_refused) << forward;
  }
}

TEST_F(StableTest, TimesAreTheSameForTriggerSweepAndComparison) {
  const auto make = [&] {
    sql("CREATE TABLE t (id int PRIMARY KEY, b timestamptz);"
        "INSERT INTO t SELECT g, '2024-03-10 22:30:00+00' FROM generate_series(0, 20) g");
  };
  make();
  live(spec("date"), "'2024-03-10 22:30:00+00'", kAccepted, "2024-03-10");
  make();
  live(spec("text"), "'2024-03-10 22:30:00+00'", kAccepted, "2024-03-10 22:30:00+00");
  make();
  live(spec("text", "forward = \"to_char(b, 'DD.MM. HH24:MI')\"\n"), "'2024-03-10 22:30:00+00'", kAccepted,
       "10.03. 22:30");
}

// Two of these outputs PostgreSQL calls immutable.
TEST_F(StableTest, OtherSettingsAreTheSameToo) {
  const auto fill = [&](const std::string& type, const std::string& literal) {
    sql(
        fmt::format("CREATE TABLE t (id int PRIMARY KEY, b {}); INSERT INTO t SELECT g, {} FROM "
                    "generate_series(0, 20) g",
                    type, literal));
  };
  fill("float8", "0.1::float8 + 0.2");
  live(spec("text"), "0.1::float8 + 0.2", {}, "0.30000000000000004");
  fill("interval", "interval '1 day 2 hours'");
  live(spec("text"), "interval '1 day 2 hours'", kAccepted, "1 day 02:00:00");
  fill("bytea", "'\\x00ff'::bytea");
  live(spec("text", "forward = \"b::text\"\nbackward = \"b::bytea\"\n"), "'\\x00ff'::bytea", {}, "\\x00ff");
}

TEST_F(StableTest, ATimeBecomesTextThereAndBackUnderLiveLoad) {
  auto s = integer_scenario();
  s.spec = spec("text", "[tuning]\nchunk_target = \"10ms\"\n");
  s.setup =
      "CREATE TABLE t (id int PRIMARY KEY, b timestamptz DEFAULT '2024-01-01 00:00:00+00', n int NOT NULL "
      "DEFAULT 0);"
      "INSERT INTO t SELECT g, timestamptz '2024-01-01 00:00:00+00' + g * interval '1 hour'"
      " FROM generate_series(0, 1999) g";
  s.twin_setup.clear();
  s.live.rows = 2000;
  s.live.value = [](Random& random, Values) {
    return fmt::format("'2024-{:02}-{:02} {:02}:15:00+00'", 1 + random() % 12, 1 + random() % 28,
                       random() % 24);
  };
  s.forward = "({old} AT TIME ZONE 'UTC')::text || '+00'";
  s.backward = "{new}::timestamptz";
  s.misfit = "";
  s.accept = kAccepted;
  s.writers.settings =
      "SELECT set_config('TimeZone', (ARRAY['Asia/Tokyo', 'America/New_York', 'UTC'])[1 + pg_backend_pid() % "
      "3],"
      " false), set_config('DateStyle', 'SQL, DMY', false)";
  Lifecycle life(dsn(), s);
  life.walk_there_and_back();
  life.finish();
}

}  // namespace
}  // namespace crossfade::test

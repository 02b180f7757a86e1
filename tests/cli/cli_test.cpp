// The command line as far as no migration is needed: usage, secrets, help, completion, unreachable servers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/state_schema.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/cutover/machine.hpp"
#include "support/database_test.hpp"
#include "support/program.hpp"

namespace crossfade::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

const Words kVerbs{"init",    "adopt",   "plan",      "start",    "next",    "rollback",  "status", "list",
                   "history", "pause",   "resume",    "tune",     "work",    "compare",   "diffs",  "rejects",
                   "misfits", "redrive", "recapture", "findings", "machine", "completion"};

ProgramResult crossfade(const Words& words, const Program::Environment& environment = {}) {
  return Program::run(crossfade_binary(), words, environment);
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Runs it in both forms; returns the error object after checking that both agree with the table and each
// other.
json error_of(const Words& words, ErrorCode code, const Program::Environment& environment = {}) {
  const ProgramResult text = crossfade(words, environment);
  const ErrorInfo& info = error_info(code);
  EXPECT_EQ(text.exit_status, info.exit_status) << text.err;
  EXPECT_EQ(text.out, "");
  EXPECT_TRUE(contains(text.err, "crossfade: ")) << text.err;

  Words with_json = words;
  with_json.emplace_back("--json");
  const ProgramResult answer = crossfade(with_json, environment);
  EXPECT_EQ(answer.exit_status, info.exit_status) << answer.out;
  EXPECT_EQ(answer.err, "");
  EXPECT_EQ(std::ranges::count(answer.out, '\n'), 1) << answer.out;
  const json object = json::parse(answer.out, nullptr, false);
  if (!object.is_object() || !object.contains("error")) {
    ADD_FAILURE() << "no error object: " << answer.out;
    return {{"message", ""}, {"hint", ""}};
  }
  const json& error = object["error"];
  Words keys;
  for (const auto& [key, value] : error.items()) keys.push_back(key);
  EXPECT_EQ(keys, (Words{"code", "exit", "hint", "message", "name", "object", "sqlstate"}));
  EXPECT_EQ(error["code"], static_cast<int>(code));
  EXPECT_EQ(error["name"], info.name);
  EXPECT_EQ(error["exit"], info.exit_status);
  EXPECT_TRUE(contains(text.err, error["message"].get<std::string>())) << text.err;
  return error;
}

void expect_hint(const json& error, std::string_view part) {
  ASSERT_TRUE(error["hint"].is_string()) << error;
  EXPECT_TRUE(contains(error["hint"].get<std::string>(), part)) << error;
}

TEST(CliTest, UsageErrorsHaveStatusTwoInTextAndJson) {
  error_of({}, ErrorCode::usage_error);
  error_of({"next"}, ErrorCode::usage_error);
  error_of({"status", "a", "b"}, ErrorCode::usage_error);
  EXPECT_EQ(crossfade({"list", "--json", "--dsn"}).exit_status, 2);
  error_of({"compare"}, ErrorCode::usage_error);
  error_of({"compare", "a", "--all"}, ErrorCode::usage_error);
  error_of({"machine", "--dot", "--mermaid"}, ErrorCode::usage_error);
  error_of({"redrive", "a"}, ErrorCode::usage_error);
  error_of({"redrive", "a", "--all", "--unit", "3"}, ErrorCode::usage_error);
  error_of({"redrive", "a", "--all", "--to", "3"}, ErrorCode::usage_error);
  error_of({"work", "a", "--workers", "65"}, ErrorCode::usage_error);
  error_of({"completion", "tcsh"}, ErrorCode::usage_error);
  error_of({"status", "No Name"}, ErrorCode::usage_error);
  error_of({"status", "a", "--id", "7"}, ErrorCode::usage_error);
  error_of({"tune", "a", "workers"}, ErrorCode::usage_error);
  error_of({"findings", "--log-file", "/dev/null/log"}, ErrorCode::usage_error);
}

TEST(CliTest, AMisspelledWordIsAnsweredWithTheNearest) {
  expect_hint(error_of({"stauts"}, ErrorCode::usage_error), "\"status\"");
  expect_hint(error_of({"next", "a", "--untl", "compare"}, ErrorCode::usage_error), "\"--until\"");
  expect_hint(error_of({"next", "a", "--until", "bckfill"}, ErrorCode::unknown_phase), "\"backfill\"");
  expect_hint(error_of({"rollback", "a", "--to", "planed"}, ErrorCode::unknown_phase), "\"planned\"");
  expect_hint(error_of({"tune", "a", "workes=1"}, ErrorCode::unknown_tuning_key), "\"workers\"");
  expect_hint(error_of({"next", "a", "--accept", "reject_open", "--reason", "x"}, ErrorCode::unknown_finding),
              "\"rejects_open\"");
}

TEST(CliTest, APhaseThatLiesTheOtherWayIsAUsageError) {
  error_of({"next", "a", "--until", "rolled_back"}, ErrorCode::usage_error);
  error_of({"rollback", "a", "--to", "dropped"}, ErrorCode::usage_error);
}

TEST(CliTest, TuningIsCheckedBeforeAnybodyConnects) {
  error_of({"tune", "a", "workers=1000"}, ErrorCode::tuning_out_of_bounds);
}

TEST(CliTest, AnAcceptanceNeedsAnIdThatMayBeAcceptedAndAReason) {
  error_of({"next", "a", "--accept", "rejects_open"}, ErrorCode::usage_error);
  error_of({"next", "a", "--reason", "x"}, ErrorCode::usage_error);
  error_of({"next", "a", "--accept", "rejects_open", "--reason", " "}, ErrorCode::usage_error);
  for (const FindingInfo& finding : finding_table()) {
    if (finding.acceptable) continue;
    const json error =
        error_of({"next", "a", "--accept", std::string(finding.id), "--reason", "x"}, ErrorCode::usage_error);
    EXPECT_TRUE(contains(error["message"].get<std::string>(), "can never be accepted")) << error;
    break;
  }
}

// A password may stand anywhere that a hurried hand puts it. It is never repeated, whatever else is wrong.
TEST(CliTest, APasswordIsRefusedAndNeverRepeated) {
  const std::string secret = "hunter2xyz";
  const Words dsns{"postgresql://app:" + secret + "@db/app",
                   "postgres://app:" + secret + "@db/app",
                   "host=db password=" + secret,
                   "host=db password='" + secret + "'",
                   "postgresql://db/app?password=" + secret,
                   "host=db sslpassword=" + secret};
  std::vector<Words> lines;
  for (const std::string& dsn : dsns) {
    for (const Words& level : {Words{}, Words{"-v"}, Words{"-vv"}, Words{"-q"}}) {
      Words words{"list", "--dsn", dsn};
      words.insert(words.end(), level.begin(), level.end());
      lines.push_back(words);
    }
    lines.push_back({"list", "--dsn=" + dsn});
    lines.push_back({"list", "--read-dsn", dsn});
    lines.push_back({"stauts", "--dsn", dsn});
    lines.push_back({"status", "--bogus", "--dsn", dsn});
  }
  for (const Words& words : lines) {
    const json error = error_of(words, ErrorCode::password_in_dsn);
    EXPECT_FALSE(contains(error.dump(), secret));
    EXPECT_FALSE(contains(crossfade(words).err, secret));
  }
  for (const std::string& dsn : dsns) {
    const json error = error_of({"list"}, ErrorCode::password_in_dsn, {{"CROSSFADE_DSN", dsn}});
    EXPECT_FALSE(contains(error.dump(), secret));
  }
  for (const std::string& dsn : dsns) {
    for (const Words& words : {Words{"list", dsn}, Words{"list", "--dns", dsn}, Words{"list", "--dns=" + dsn},
                               Words{"status", dsn}, Words{dsn}, Words{"status", "a", dsn},
                               Words{"next", "a", "--dsn", "host=db", dsn}}) {
      const ProgramResult result = crossfade(words);
      EXPECT_EQ(result.exit_status, 2);
      EXPECT_FALSE(contains(result.out + result.err, secret)) << result.err;
    }
  }
}

TEST(CliTest, APasswordOfTheEnvironmentIsNotShownWhenTheServerIsAway) {
  const std::string secret = "hunter2xyz";
  for (const char* level : {"-q", "-v", "-vv"}) {
    const ProgramResult result =
        crossfade({"list", level, "--dsn", "host=/nonexistent"}, {{"PGPASSWORD", secret}});
    EXPECT_EQ(result.exit_status, 5);
    EXPECT_FALSE(contains(result.out + result.err, secret));
  }
}

TEST(CliTest, AnUnreachableServerHasStatusFive) {
  for (const Words& words : {Words{"list"}, Words{"init"}, Words{"status", "a"}, Words{"next", "a"},
                             Words{"rollback", "a"}, Words{"pause", "a"}, Words{"adopt"}}) {
    Words full = words;
    full.insert(full.end(), {"--dsn", "host=/nonexistent", "--redis", "unix:///nonexistent/redis"});
    error_of(full, ErrorCode::server_unreachable);
  }
}

TEST(CliTest, ASpecThatCannotBeReadIsTold) {
  error_of({"plan", "/nonexistent/spec.toml", "--dsn", "host=/nonexistent"}, ErrorCode::spec_unreadable);
}

TEST(CliTest, HelpOfEveryVerbHasAnExample) {
  const ProgramResult main = crossfade({"--help"});
  EXPECT_EQ(main.exit_status, 0);
  EXPECT_EQ(crossfade({"help"}).out, main.out);
  EXPECT_EQ(crossfade({"help", "next"}).out, crossfade({"next", "--help"}).out);
  for (const std::string& verb : kVerbs) {
    EXPECT_TRUE(contains(main.out, "\n  " + verb + " ")) << verb;
    const ProgramResult help = crossfade({verb, "--help"});
    EXPECT_EQ(help.exit_status, 0) << verb;
    EXPECT_EQ(help.err, "");
    EXPECT_TRUE(contains(help.out, "Examples:\n  ")) << verb;
    EXPECT_TRUE(contains(help.out, "crossfade " + verb)) << verb;
  }
}

TEST(CliTest, HelpOfNextShowsTheTransitionTable) {
  const std::string help = crossfade({"next", "--help"}).out;
  for (const TransitionRow& row : transition_table()) {
    if (row.event != Event::advance) continue;
    const std::size_t at = help.find("\n  " + std::string(to_text(row.from)) + " ");
    ASSERT_NE(at, std::string::npos) << to_text(row.from);
    const std::string line = help.substr(at + 1, help.find('\n', at + 1) - at);
    EXPECT_TRUE(contains(line, "-> " + std::string(to_text(*row.to)))) << line;
  }
  EXPECT_TRUE(contains(help, "The gate is what has to be true for that change")) << help;
}

TEST(CliTest, TellsItsVersion) {
  EXPECT_EQ(crossfade({"--version"}).out, "crossfade " + crossfade_version() + "\n");
  EXPECT_EQ(json::parse(crossfade({"--version", "--json"}).out), json({{"version", crossfade_version()}}));
}

TEST(CliTest, ListsFailpointsAndHidesTheOption) {
  std::string all;
  for (const std::string& name : failpoint::all()) all += name + "\n";
  EXPECT_EQ(crossfade({"--list-failpoints"}).out, all);
  EXPECT_FALSE(contains(crossfade({"--help"}).out, "failpoint"));
}

TEST(CliTest, AFailpointThatCannotBeUnderstoodIsTold) {
  error_of({"list", "--dsn", "host=/nonexistent"}, ErrorCode::failpoint_syntax,
           {{"CROSSFADE_FAILPOINTS", "no.such=abort"}});
}

TEST(CliTest, FindingsAndMachineAreTheTables) {
  const json findings = json::parse(crossfade({"findings", "--json"}).out)["findings"];
  ASSERT_EQ(findings.size(), finding_table().size());
  for (std::size_t i = 0; i < findings.size(); ++i) {
    EXPECT_EQ(findings[i]["id"], finding_table()[i].id);
    EXPECT_EQ(findings[i]["acceptable"], finding_table()[i].acceptable);
  }
  EXPECT_EQ(crossfade({"machine"}).out, machine_text());
  EXPECT_EQ(crossfade({"machine", "--dot"}).out, machine_dot());
  EXPECT_EQ(crossfade({"machine", "--mermaid"}).out, machine_mermaid());
  EXPECT_EQ(crossfade({"machine", "--markdown"}).out, machine_markdown());
  EXPECT_EQ(json::parse(crossfade({"machine", "--json"}).out)["transitions"].size(),
            transition_table().size());
}

// What bash offers for the last word of a line.
std::string bash_offers(const std::string& words) {
  const std::string script = "source <(\"$0\" completion bash); COMP_WORDS=(" + words +
                             "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _crossfade; echo \"${COMPREPLY[*]}\"";
  const ProgramResult result = Program::run("/bin/bash", {"-c", script, crossfade_binary()});
  EXPECT_EQ(result.err, "");
  return result.out;
}

TEST(CliTest, BashCompletesVerbsOptionsAndValues) {
  EXPECT_EQ(bash_offers("crossfade rol"), "rollback\n");
  EXPECT_EQ(bash_offers("crossfade next a --unt"), "--until\n");
  EXPECT_EQ(bash_offers("crossfade next a --until du"), "dual_write\n");
  EXPECT_EQ(bash_offers("crossfade --dsn x next a --accept rejects"), "rejects_open\n");
  EXPECT_EQ(bash_offers("crossfade tune a work"), "workers=\n");
  EXPECT_EQ(bash_offers("crossfade status --js"), "--json\n");
  EXPECT_EQ(bash_offers("crossfade --list-f"), "\n");
}

TEST(CliTest, ZshAndFishScriptsNameEveryVerb) {
  for (const char* shell : {"zsh", "fish"}) {
    const ProgramResult result = crossfade({"completion", shell});
    EXPECT_EQ(result.exit_status, 0);
    for (const std::string& verb : kVerbs) EXPECT_TRUE(contains(result.out, verb)) << shell << " " << verb;
  }
}

TEST(CliTest, AReaderWhoLeavesIsNoFailureAndAFullDiskIs) {
  const auto run = [](const std::string& redirection) {
    return Program::run("/bin/bash", {"-c", "\"$0\" findings " + redirection, crossfade_binary()});
  };
  EXPECT_EQ(run("| head -n 1 >/dev/null; exit ${PIPESTATUS[0]}").exit_status, 0);
  EXPECT_EQ(run(">/dev/full").exit_status, 4);
}

TEST(CliTest, TextIsPlainWhenItGoesToNoTerminal) {
  EXPECT_FALSE(contains(crossfade({"findings"}, {{"TERM", "xterm"}}).out, "\033"));
}

TEST(CliTest, OnATerminalItIsColouredUnlessNoColorIsSet) {
  const auto run = [](const Program::Environment& environment) {
    return Program::run("/usr/bin/script", {"-qec", crossfade_binary() + " findings", "/dev/null"},
                        environment);
  };
  const ProgramResult coloured = run({{"TERM", "xterm"}, {"NO_COLOR", std::nullopt}});
  EXPECT_EQ(coloured.exit_status, 0);
  EXPECT_TRUE(contains(coloured.out, "\033[1mid"));
  EXPECT_FALSE(contains(run({{"TERM", "xterm"}, {"NO_COLOR", "1"}}).out, "\033"));
  EXPECT_FALSE(contains(run({{"TERM", "dumb"}, {"NO_COLOR", std::nullopt}}).out, "\033"));
}

using CliDatabaseTest = DatabaseTest;

TEST_F(CliDatabaseTest, WithoutASchemaEveryVerbSaysSo) {
  for (const Words& words :
       {Words{"list"}, Words{"status"}, Words{"status", "a"}, Words{"next", "a"}, Words{"history", "a"}}) {
    Words full = words;
    full.insert(full.end(), {"--dsn", dsn(), "-q"});
    expect_hint(error_of(full, ErrorCode::not_initialized), "crossfade init");
  }
}

TEST_F(CliDatabaseTest, OnATerminalInitAsksBeforeItRemoves) {
  ASSERT_EQ(crossfade({"init", "--dsn", dsn()}).exit_status, 0);
  const auto answered = [&](const std::string& answer) {
    const std::string command = "script -qec '" + crossfade_binary() + " init --remove' /dev/null";
    return Program::run("/bin/sh", {"-c", "echo " + answer + " | " + command}, {{"CROSSFADE_DSN", dsn()}});
  };
  const ProgramResult no = answered("n");
  EXPECT_EQ(no.exit_status, 3) << no.out;
  EXPECT_TRUE(contains(no.out, "with the history of every migration? [y/N]")) << no.out;
  EXPECT_EQ(value("SELECT to_regclass('crossfade.meta') IS NOT NULL"), "t");
  EXPECT_EQ(answered("y").exit_status, 0);
  EXPECT_EQ(value("SELECT to_regclass('crossfade.meta') IS NOT NULL"), "f");
  error_of({"init", "--yes"}, ErrorCode::usage_error);
}

TEST_F(CliDatabaseTest, TheMissingRedisIsNoticedOnStandardErrorOnly) {
  sql("CREATE TABLE untouched(a int)");
  ASSERT_EQ(crossfade({"init", "--dsn", dsn()}).exit_status, 0);
  const ProgramResult loud = crossfade({"status", "--dsn", dsn()});
  EXPECT_TRUE(contains(loud.err, "Redis"));
  EXPECT_FALSE(contains(loud.out, "Redis"));
  EXPECT_EQ(crossfade({"status", "--dsn", dsn(), "-q"}).err, "");
  EXPECT_EQ(crossfade({"status", "--dsn", dsn(), "--json"}).err, "");
}

}  // namespace
}  // namespace crossfade::test

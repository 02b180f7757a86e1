// The command line on a real migration: every phase, every answer, exit statuses.
#include <gtest/gtest.h>

#include <signal.h>
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/phase.hpp"
#include "crossfade/core/tuning.hpp"
#include "support/database_test.hpp"
#include "support/files.hpp"
#include "support/program.hpp"

namespace crossfade::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    lines.push_back(json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  EXPECT_EQ(begin, text.size()) << "the last line has no line feed";
  return lines;
}

bool is_text(const json& value) { return value.is_string() && !value.get<std::string>().empty(); }
bool is_count(const json& value) { return value.is_number_integer() && value.get<std::int64_t>() >= 0; }
template <bool (*Predicate)(const json&)>
bool or_null(const json& value) {
  return value.is_null() || Predicate(value);
}
bool is_phase(const json& value) {
  return value.is_string() && phase_from_text(value.get<std::string>()).has_value();
}
bool is_bool(const json& value) { return value.is_boolean(); }
bool is_object(const json& value) { return value.is_object(); }
bool is_number(const json& value) { return value.is_number(); }
bool is_string(const json& value) { return value.is_string(); }
bool is_pair(const json& value) {
  return value.is_array() && value.size() == 2 && is_count(value[0]) && is_count(value[1]);
}
bool is_comparison(const json& value) {
  return value.is_object() && is_text(value["ended_at"]) && value["age_seconds"].is_number();
}
bool is_list_of_texts(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), is_text);
}

// Every key that people and tests rely on, as a JSON pointer, with what it holds.
const std::map<std::string, bool (*)(const json&)> kStatusKeys{
    {"/migration", is_text},
    {"/id", is_text},
    {"/table", is_text},
    {"/mode", is_text},
    {"/phase", is_phase},
    {"/status", is_text},
    {"/epoch", is_count},
    {"/since", is_text},
    {"/operator", is_text},
    {"/version", is_text},
    {"/units/total", is_count},
    {"/units/done", is_count},
    {"/rows/done", is_count},
    {"/rows/written", is_count},
    {"/rows/estimated", is_count},
    {"/rate_rows_per_second", is_number},
    {"/eta_seconds", or_null<is_pair>},
    {"/pace/limit_rows_per_second", is_count},
    {"/pace/state", is_text},
    {"/pace/reason", or_null<is_text>},
    {"/rejects", is_count},
    {"/differences", or_null<is_count>},
    {"/excepted", is_count},
    {"/misfits", is_count},
    {"/next/phase", or_null<is_phase>},
    {"/next/ready", is_bool},
    {"/next/waiting_for", is_list_of_texts},
    {"/rollback/phase", or_null<is_phase>},
    {"/rollback/possible", is_bool},
    {"/rollback/loses", or_null<is_text>},
    {"/rollback/refused_for", is_list_of_texts},
    {"/rollback/does_first", is_list_of_texts},
    {"/archive", or_null<is_text>},
    {"/warnings", is_list_of_texts},
    {"/commands/recapture", is_string},
    {"/comparison", or_null<is_comparison>},
    {"/drop_from", or_null<is_text>},
    {"/commands/rejects", is_string},
    {"/commands/misfits", is_string},
    {"/commands/diffs", is_string},
    {"/commands/next", is_string},
    {"/commands/rollback", is_string},
    {"/switch/attempts", is_count},
    {"/switch/lock_held_ms", or_null<is_number>},
    {"/switch/longest_wait_ms", or_null<is_number>},
    {"/request", or_null<is_object>},
    {"/redis", is_text},
};

void expect_status_keys(const json& status) {
  for (const auto& [pointer, holds] : kStatusKeys) {
    const json::json_pointer at(pointer);
    ASSERT_TRUE(status.contains(at)) << pointer;
    EXPECT_TRUE(holds(status[at])) << pointer << " is " << status[at];
  }
  const std::string pace = status["pace"]["state"];
  EXPECT_TRUE(pace == "running" || pace == "throttled" || pace == "paused" || pace == "idle") << pace;
  EXPECT_EQ(status["redis"], "absent");
}

class CliRunTest : public DatabaseTest {
 protected:
  CliRunTest() {
    sql("CREATE TABLE accounts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, balance integer NOT "
        "NULL)");
    sql("INSERT INTO accounts (balance) SELECT g FROM generate_series(1, 1000) g");
    sql("ANALYZE accounts");
    write_spec("accounts_balance", "bigint");
  }

  void write_spec(const std::string& name, const std::string& type) {
    write_text(spec_, "[migration]\nname = \"" + name + "\"\ntable = \"public.accounts\"\n[[column]]\n" +
                          "name = \"balance\"\ntype = \"" + type + "\"\n[drop]\nsoak = \"0ms\"\n");
  }

  ProgramResult crossfade(const Words& words, const Program::Environment& more = {}) const {
    Program::Environment environment{{"CROSSFADE_DSN", dsn()}};
    environment.insert(more.begin(), more.end());
    return Program::run(crossfade_binary(), words, environment);
  }
  // Requires success.
  ProgramResult done(const Words& words) const {
    const ProgramResult result = crossfade(words);
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    return result;
  }
  json answer(Words words) const {
    words.emplace_back("--json");
    const ProgramResult result = done(words);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(std::ranges::count(result.out, '\n'), 1) << result.out;
    return json::parse(result.out);
  }
  json failure(Words words, ErrorCode code) const {
    words.emplace_back("--json");
    const ProgramResult result = crossfade(words);
    EXPECT_EQ(result.exit_status, error_info(code).exit_status) << result.out << result.err;
    const auto lines = lines_of(result.out);
    if (lines.empty() || !lines.back().contains("error")) {
      ADD_FAILURE() << "no error object: " << result.out;
      return {};
    }
    EXPECT_EQ(lines.back()["error"]["name"], error_info(code).name) << result.out;
    return lines.back()["error"];
  }
  json status() const { return answer({"status", kName}); }
  void start() const {
    done({"init"});
    done({"start", spec_});
  }

  static constexpr const char* kName = "accounts_balance";
  PrivateFolder folder_{"cli"};
  std::string spec_ = (folder_.path() / "spec.toml").string();
};

TEST_F(CliRunTest, InitCreatesOnceAndRemovesWhatIsClosed) {
  EXPECT_EQ(answer({"init"}), json({{"schema", "crossfade"}, {"created", true}}));
  EXPECT_EQ(answer({"init"}), json({{"schema", "crossfade"}, {"created", false}}));
  done({"start", spec_});
  failure({"init", "--remove", "--yes"}, ErrorCode::schema_in_use);
  done({"rollback", kName});
  const json asked = failure({"init", "--remove"}, ErrorCode::confirmation_missing);
  EXPECT_EQ(asked["hint"], "crossfade init --remove --yes");
  EXPECT_EQ(value("SELECT count(*) FROM pg_namespace WHERE nspname = 'crossfade'"), "1");
  EXPECT_EQ(answer({"init", "--remove", "--yes"}), json({{"schema", "crossfade"}, {"removed", true}}));
  EXPECT_EQ(value("SELECT count(*) FROM pg_namespace WHERE nspname = 'crossfade'"), "0");
}

TEST_F(CliRunTest, PlanChangesNothingAndShowsEveryStatement) {
  const json plan = answer({"plan", spec_});
  for (const char* key : {"migration", "table", "mode", "key", "forward", "backward", "one_way", "findings",
                          "refusals", "carried", "statements"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  EXPECT_EQ(plan["refusals"], json::array());
  for (const json& statement : plan["statements"]) {
    EXPECT_TRUE(is_phase(statement["phase"]) && is_text(statement["step"]) && is_text(statement["what"]) &&
                is_text(statement["sql"]) && is_text(statement["lock"]) && is_text(statement["blocks"]) &&
                is_bool(statement["may_wait"]))
        << statement;
  }
  EXPECT_EQ(value("SELECT count(*) FROM pg_namespace WHERE nspname = 'crossfade'"), "0");

  const std::string brief = done({"plan", spec_}).out;
  EXPECT_EQ(brief.find("ALTER TABLE"), std::string::npos);
  EXPECT_NE(brief.find("crossfade start " + spec_), std::string::npos);
  EXPECT_NE(done({"plan", spec_, "--sql"}).out.find("ALTER TABLE"), std::string::npos);
}

TEST_F(CliRunTest, APlanThatStartWouldRefuseHasStatusThree) {
  sql("CREATE TABLE keyless (balance integer)");
  write_text(spec_,
             "[migration]\nname = \"keyless\"\ntable = \"public.keyless\"\n[[column]]\n"
             "name = \"balance\"\ntype = \"bigint\"\n");
  const ProgramResult plan = crossfade({"plan", spec_, "--json"});
  EXPECT_EQ(plan.exit_status, 3) << plan.out;
  EXPECT_EQ(json::parse(plan.out)["refusals"][0]["id"], "no_usable_key");
  const ProgramResult text = crossfade({"plan", spec_});
  EXPECT_EQ(text.exit_status, 3);
  EXPECT_NE(text.out.find("refuse (1)\n  no_usable_key"), std::string::npos) << text.out;
  done({"init"});
  failure({"start", spec_}, ErrorCode::finding_refused);
}

TEST_F(CliRunTest, StartTwiceIsTheSameAndAnotherSpecIsAConflict) {
  done({"init"});
  const json first = answer({"start", spec_});
  EXPECT_EQ(first["already_started"], false);
  const json second = answer({"start", spec_});
  EXPECT_EQ(second["already_started"], true);
  EXPECT_EQ(first["id"], second["id"]);
  write_spec(kName, "numeric");
  failure({"start", spec_}, ErrorCode::spec_conflict);
  write_spec("another", "bigint");
  failure({"start", spec_}, ErrorCode::table_has_migration);
}

TEST_F(CliRunTest, StatusHoldsItsKeysInEveryPhase) {
  start();
  expect_status_keys(status());
  for (const char* phase : {"dry_run", "backfill", "dual_write", "compare", "switched"}) {
    done({"next", kName});
    const json now = status();
    expect_status_keys(now);
    EXPECT_EQ(now["phase"], phase);
    EXPECT_EQ(now["status"], "settled");
    EXPECT_EQ(now["rollback"]["possible"], true);
    const ProgramResult screen = done({"status", kName});
    EXPECT_NE(screen.out.find(now["commands"]["next"].get<std::string>()), std::string::npos) << screen.out;
    EXPECT_NE(screen.out.find(now["commands"]["rollback"].get<std::string>()), std::string::npos)
        << screen.out;
  }
  EXPECT_TRUE(is_number(status()["switch"]["lock_held_ms"]));
  EXPECT_TRUE(is_text(status()["drop_from"]));
  EXPECT_TRUE(is_comparison(status()["comparison"]));
  EXPECT_NE(done({"status", kName}).out.find("soak until 2"), std::string::npos);
  failure({"next", kName}, ErrorCode::confirmation_missing);
  const std::string wrong =
      failure({"next", kName, "--confirm", "wrong"}, ErrorCode::confirmation_missing)["message"];
  EXPECT_NE(wrong.find("--confirm names wrong, the migration is accounts_balance"), std::string::npos)
      << wrong;
  const std::string dropped = done({"next", kName, "--confirm", kName}).out;
  EXPECT_NE(dropped.find("left behind: the table takes "), std::string::npos) << dropped;
  const json closed = status();
  expect_status_keys(closed);
  const std::string quiet = done({"status", kName}).out;
  EXPECT_NE(quiet.find("dropped, closed since "), std::string::npos) << quiet;
  for (const char* noise : {"redis", "strategy", "moving", "problems", "go on", "go back"}) {
    EXPECT_EQ(quiet.find(noise), std::string::npos) << quiet;
  }
  EXPECT_EQ(closed["phase"], "dropped");
  for (const char* way : {"next", "rollback"}) EXPECT_EQ(closed[way]["phase"], json()) << way;
  EXPECT_EQ(closed["rollback"]["possible"], false);
  EXPECT_EQ(failure({"rollback", kName}, ErrorCode::rollback_refused)["exit"], 3);
}

TEST_F(CliRunTest, NextTellsEventsAndEndsWithTheResult) {
  start();
  const auto lines = lines_of(done({"next", kName, "--until", "backfill", "--json"}).out);
  std::vector<std::string> changes;
  std::map<std::string, int> counts;
  for (const json& line : lines) {
    ++counts[line["event"]];
    if (line["event"] == "phase") changes.push_back(line["to"]);
    if (line["event"] == "progress") {
      EXPECT_TRUE(is_phase(line["phase"]) && or_null<is_count>(line["rows_done"])) << line;
    }
  }
  EXPECT_EQ(changes, (Words{"dry_run", "backfill"}));
  EXPECT_EQ(counts["dry_run"], 1);
  EXPECT_EQ(counts["settled"], 2);
  EXPECT_EQ(counts["result"], 1);
  const json& result = lines.back();
  EXPECT_EQ(result["event"], "result");
  EXPECT_EQ(result["phase"], "backfill");
  EXPECT_EQ(result["status"], "settled");
  EXPECT_EQ(result["commands"]["next"], std::string("crossfade next ") + kName);
  EXPECT_EQ(result["commands"]["rollback"], std::string("crossfade rollback ") + kName);
}

TEST_F(CliRunTest, NextEndsWithTheCommandsAndShowsTheDryRun) {
  start();
  const std::string text = done({"next", kName}).out;
  EXPECT_NE(text.find("dry run\n  rows         1,000"), std::string::npos) << text;
  EXPECT_TRUE(
      text.ends_with("next: crossfade next accounts_balance\nback: crossfade rollback accounts_balance\n"))
      << text;
}

TEST_F(CliRunTest, AMissedExpectationShowsTheDryRunAndHasStatusThree) {
  write_text(spec_,
             "[migration]\nname = \"accounts_balance\"\ntable = \"public.accounts\"\n[[column]]\n"
             "name = \"balance\"\ntype = \"bigint\"\nforward = \"balance::bigint + 1\"\n"
             "backward = \"(balance - 1)::integer\"\n[expect]\nchanged = 0\n");
  start();
  Words words{"next", kName, "--until", "backfill"};
  const ProgramResult result = crossfade(words);
  EXPECT_EQ(result.exit_status, 3) << result.out << result.err;
  EXPECT_NE(result.out.find("changed      1,000"), std::string::npos) << result.out;
  words.insert(words.end(), {"--accept", "dry_run_changed", "--reason", "meant so"});
  done(words);
}

TEST_F(CliRunTest, RollbackGoesBackOnePhaseOrToAnyEarlierOne) {
  start();
  done({"next", kName, "--until", "switched"});
  const auto one = lines_of(done({"rollback", kName, "--json"}).out);
  EXPECT_EQ(one.back()["phase"], "compare");
  const auto all = lines_of(done({"rollback", kName, "--to", "rolled_back", "--json"}).out);
  EXPECT_EQ(all.back()["phase"], "rolled_back");
  EXPECT_EQ(all.back()["commands"], json({{"next", nullptr}, {"rollback", nullptr}}));
  std::vector<std::string> changes;
  for (const json& line : all) {
    if (line["event"] == "phase") changes.push_back(line["to"]);
  }
  EXPECT_EQ(changes, (Words{"dual_write", "backfill", "dry_run", "planned", "rolled_back"}));
}

TEST_F(CliRunTest, GoingWhereItIsChangesNothingAndSaysSo) {
  start();
  done({"next", kName});
  const std::string text = done({"rollback", kName, "--to", "dry_run"}).out;
  EXPECT_EQ(text.find("accounts_balance is in dry_run already, nothing done.\n"), 0U) << text;
  EXPECT_EQ(lines_of(done({"rollback", kName, "--to", "dry_run", "--json"}).out).back()["changed"], false);
  EXPECT_EQ(lines_of(done({"rollback", kName, "--json"}).out).back()["changed"], true);
}

TEST_F(CliRunTest, UntilDroppedAsksForTheNameBeforeAnyWork) {
  start();
  const json error = failure({"next", kName, "--until", "dropped"}, ErrorCode::confirmation_missing);
  EXPECT_EQ(error["hint"],
            "confirm it by name: crossfade next accounts_balance --until dropped --confirm accounts_balance");
  failure({"next", kName, "--until", "dropped", "--confirm", "other"}, ErrorCode::confirmation_missing);
  EXPECT_EQ(status()["phase"], "planned");
  done({"next", kName, "--until", "dropped", "--confirm", kName});
  const json closed = failure({"next", kName}, ErrorCode::illegal_transition);
  EXPECT_EQ(closed["hint"], "to migrate again: crossfade start SPEC");
}

TEST_F(CliRunTest, AHintToGoBackNamesThePhase) {
  start();
  done({"next", kName, "--until", "backfill"});
  EXPECT_EQ(failure({"next", kName, "--until", "dry_run"}, ErrorCode::illegal_transition)["hint"],
            "to go back: crossfade rollback accounts_balance --to dry_run");
}

TEST_F(CliRunTest, ListAndStatusWithoutNameAreArrays) {
  done({"init"});
  EXPECT_EQ(answer({"list"}), json::array());
  EXPECT_EQ(answer({"status"}), json::array());
  done({"start", spec_});
  done({"rollback", kName});
  done({"start", spec_});
  const json list = answer({"list"});
  ASSERT_EQ(list.size(), 2U);
  for (const json& entry : list) {
    Words keys;
    for (const auto& [key, unused] : entry.items()) keys.push_back(key);
    EXPECT_EQ(keys, (Words{"epoch", "id", "migration", "mode", "operator", "phase", "reason",
                           "registered_table", "runner", "since", "status", "table", "version"}));
  }
  const json open = answer({"status"});
  ASSERT_EQ(open.size(), 1U);
  expect_status_keys(open[0]);
  EXPECT_EQ(open[0]["phase"], "planned");

  // NAME means the open one; --id picks the other.
  for (const json& entry : list) {
    EXPECT_EQ(answer({"status", kName, "--id", entry["id"]})["phase"], entry["phase"]);
    EXPECT_EQ(answer({"status", "--id", entry["id"]})["id"], entry["id"]);
  }
  failure({"status", "nobody"}, ErrorCode::unknown_migration);
}

TEST_F(CliRunTest, HistoryTellsWhoAndWhat) {
  done({"init"});
  done({"start", spec_});
  done({"next", kName, "--operator", "ada"});
  done({"rollback", kName, "--operator", "grace"});
  const json history = answer({"history", kName});
  EXPECT_EQ(history["migration"], kName);
  const json& rows = history["transitions"];
  ASSERT_GE(rows.size(), 2U);
  const json& last = rows.back();
  EXPECT_EQ(last["event"], "rollback");
  EXPECT_EQ(last["from"], "dry_run");
  EXPECT_EQ(last["to"], "planned");
  EXPECT_EQ(last["operator"], "grace");
  EXPECT_EQ(rows[rows.size() - 2]["operator"], "ada");
  for (const json& row : rows) {
    EXPECT_TRUE(is_count(row["number"]) && is_text(row["at"]) && is_text(row["host"]) &&
                is_text(row["version"]) && row["evidence"].is_object())
        << row;
  }
  EXPECT_NE(done({"history", kName}).out.find("grace on "), std::string::npos);
}

TEST_F(CliRunTest, HistoryTellsWhatOperatorsDidBesidePhaseChanges) {
  done({"init"});
  done({"start", spec_, "--operator", "ada"});
  done({"next", kName, "--until", "backfill"});
  done({"pause", kName, "--reason", "month end", "--operator", "grace"});
  done({"resume", kName});
  done({"tune", kName, "workers=3", "rows_per_second=2000"});
  done({"adopt"});
  done({"recapture", kName});
  const json history = answer({"history", kName});
  Words actions;
  for (const json& entry : history["actions"]) {
    actions.push_back(entry["action"]);
    EXPECT_TRUE(is_text(entry["at"]) && is_text(entry["operator"]) && is_text(entry["host"]) &&
                is_text(entry["version"]) && is_phase(entry["phase"]))
        << entry;
  }
  EXPECT_EQ(actions, (Words{"start", "pause", "resume", "tune", "adopt", "recapture"}));
  EXPECT_EQ(history["actions"][0]["operator"], "ada");
  EXPECT_EQ(history["actions"][0]["phase"], "planned");
  EXPECT_EQ(history["actions"][1]["operator"], "grace");
  EXPECT_EQ(history["actions"][1]["detail"], json({{"reason", "month end"}}));
  EXPECT_EQ(history["actions"][3]["detail"], json({{"workers", "3"}, {"rows_per_second", "2000"}}));
  const std::string text = done({"history", kName}).out;
  EXPECT_LT(text.find(" start "), text.find(" advance ")) << text;
  EXPECT_LT(text.find(" advance "), text.find(" pause ")) << text;
  EXPECT_NE(text.find("reason=month end"), std::string::npos) << text;
}

TEST_F(CliRunTest, AnErrorIsToldOnceAndNotInTheWordsOfTheLog) {
  sql("CREATE TABLE notes (id integer PRIMARY KEY, amount text)");
  sql("INSERT INTO notes SELECT g, 'x' FROM generate_series(1, 9) g");
  write_text(spec_,
             "[migration]\nname = \"notes_amount\"\ntable = \"public.notes\"\n[[column]]\nname = \"amount\"\n"
             "type = \"numeric\"\nforward = \"amount::numeric\"\nbackward = \"amount::text\"\n");
  start();
  EXPECT_EQ(crossfade({"next", "notes_amount"}).exit_status, 3);
  const ProgramResult accepted =
      done({"next", "notes_amount", "--accept", "dry_run_errors", "--reason", "known"});
  EXPECT_NE(accepted.err.find("crossfade tune notes_amount max_rejects=9"), std::string::npos)
      << accepted.err;
  const std::string log = (folder_.path() / "crossfade.log").string();
  const ProgramResult failed = crossfade({"next", "notes_amount", "--log-file", log});
  EXPECT_EQ(failed.exit_status, 4);
  EXPECT_EQ(failed.err.find("event="), std::string::npos) << failed.err;
  EXPECT_NE(read_text(log).find("event=phase_failed"), std::string::npos);
}

TEST_F(CliRunTest, CompareFindsListsAndRepairsDifferences) {
  start();
  const std::string never = "No comparison has been made that counts now; there is nothing to show.\n";
  EXPECT_EQ(done({"diffs", kName}).out, never);
  EXPECT_EQ(answer({"diffs", kName})["comparison"], json());
  done({"next", kName, "--until", "dual_write"});
  EXPECT_EQ(done({"diffs", kName}).out, never);
  done({"next", kName});
  EXPECT_EQ(answer({"diffs", kName})["comparison"]["state"], "ended");
  EXPECT_NE(done({"diffs", kName}).out.find(" ago, found no difference in 1,000 rows.\n"), std::string::npos);
  const auto clean = lines_of(done({"compare", kName, "--json"}).out).back();
  EXPECT_EQ(clean["event"], "result");
  EXPECT_EQ(clean["differences"], 0);
  EXPECT_EQ(clean["passes"][0]["rows_read"], 1000);

  const std::string shadow = value(
      "SELECT attname FROM pg_attribute WHERE attrelid = 'accounts'::regclass AND attnum > 2 AND NOT "
      "attisdropped");
  super_sql("SET session_replication_role = replica");
  super_sql("ALTER TABLE accounts DISABLE TRIGGER USER");
  super_sql("UPDATE accounts SET \"" + shadow + "\" = -7 WHERE id = 42");
  super_sql("ALTER TABLE accounts ENABLE TRIGGER USER");
  for (const Words& words : {Words{"compare", kName, "--json"}, Words{"compare", "--all", "--json"}}) {
    const ProgramResult result = crossfade(words);
    EXPECT_EQ(result.exit_status, 4) << result.out << result.err;
    EXPECT_EQ(lines_of(result.out).back()["differences"], 1);
  }
  const json hashed = answer({"diffs", kName});
  ASSERT_EQ(hashed["differences"].size(), 1U);
  EXPECT_EQ(hashed["differences"][0]["key"], json({"42"}));
  EXPECT_FALSE(hashed["differences"][0].contains("old"));
  const json shown = answer({"diffs", kName, "--show-values"});
  EXPECT_EQ(shown["differences"][0]["old"], "42");
  EXPECT_EQ(shown["differences"][0]["new"], "-7");
  EXPECT_EQ(done({"diffs", kName}).out.find("-7"), std::string::npos);
  const json repaired = answer({"diffs", kName, "--repair"});
  EXPECT_EQ(repaired["repaired"], 1);
  EXPECT_TRUE(is_text(repaired["differences"][0]["repaired_at"])) << repaired;
  EXPECT_EQ(lines_of(done({"compare", kName, "--json"}).out).back()["differences"], 0);
  sql("UPDATE crossfade.pass SET state = 'running', ended_at = NULL WHERE kind = 'compare'");
  EXPECT_EQ(done({"diffs", kName}).out, "The newest comparison has not ended; 0 differences so far.\n");
}

TEST_F(CliRunTest, RejectsAreShownWithoutValuesAndRetried) {
  sql("CREATE TABLE notes (id integer PRIMARY KEY, amount text)");
  sql("INSERT INTO notes SELECT g, CASE g WHEN 3 THEN 'secret-ish' ELSE g::text END FROM generate_series(1, "
      "9) g");
  write_text(spec_,
             "[migration]\nname = \"notes_amount\"\ntable = \"public.notes\"\n[[column]]\nname = \"amount\"\n"
             "type = \"numeric\"\nforward = \"amount::numeric\"\nbackward = \"amount::text\"\n"
             "[expect]\nerrors = \"0..1\"\n[tuning]\nmax_rejects = 5\n");
  done({"init"});
  done({"start", spec_});
  done({"next", "notes_amount"});
  const ProgramResult stopped = crossfade({"next", "notes_amount"});
  EXPECT_EQ(stopped.exit_status, 3) << stopped.out << stopped.err;
  const json hidden = answer({"rejects", "notes_amount"});
  ASSERT_EQ(hidden["rejects"].size(), 1U);
  EXPECT_EQ(hidden["rejects"][0]["key"], json({"3"}));
  EXPECT_EQ(hidden["rejects"][0]["sqlstate"], "22P02");
  EXPECT_EQ(hidden.dump().find("secret-ish"), std::string::npos);
  EXPECT_NE(answer({"rejects", "notes_amount", "--show-values"}).dump().find("secret-ish"),
            std::string::npos);
  EXPECT_EQ(done({"rejects", "notes_amount"}).out.find("secret-ish"), std::string::npos);
  EXPECT_EQ(answer({"rejects", "notes_amount", "--retry"})["retried"]["open"], 1);
  sql("UPDATE notes SET amount = '3' WHERE id = 3");
  const json retried = answer({"rejects", "notes_amount", "--retry"});
  EXPECT_EQ(retried["retried"]["open"], 0);
  EXPECT_EQ(retried["rejects"], json::array());
}

TEST_F(CliRunTest, PauseHoldsResumeLetsGoAndTuneIsKept) {
  start();
  done({"next", kName});
  EXPECT_EQ(answer({"resume", kName})["changed"], false);
  EXPECT_EQ(answer({"tune", kName, "rows_per_second=2000", "workers=3"})["tuned"],
            json({{"rows_per_second", "2000"}, {"workers", "3"}}));
  const auto shown = answer({"tune", kName})["tuning"];
  ASSERT_EQ(shown.size(), tuning_keys().size());
  for (const auto& entry : shown) {
    if (entry["key"] == "rows_per_second") {
      EXPECT_EQ(entry["value"], "2000");
    }
    if (entry["key"] == "workers") {
      EXPECT_EQ(entry["value"], "3");
    }
    if (entry["key"] == "chunk_target") {
      EXPECT_EQ(entry["value"], entry["default"]);
    }
  }
  EXPECT_EQ(status()["pace"]["limit_rows_per_second"], 2000);
  failure({"tune", kName, "rows_per_second=3000", "workers=0"}, ErrorCode::tuning_out_of_bounds);
  EXPECT_EQ(status()["pace"]["limit_rows_per_second"], 2000);
}

TEST_F(CliRunTest, APausedMigrationSaysSoAndNextIsRefused) {
  start();
  done({"next", kName});
  const ProgramResult died = crossfade({"next", kName}, {{"CROSSFADE_FAILPOINTS", "chunk.before=abort"}});
  EXPECT_EQ(died.signal, SIGKILL);
  EXPECT_EQ(status()["status"], "running");
  EXPECT_EQ(
      answer({"pause", kName, "--reason", "month end"}),
      json({{"migration", kName}, {"status", "paused"}, {"changed", true}, {"request_cancelled", false}}));
  EXPECT_EQ(answer({"pause", kName})["changed"], false);
  const json paused = status();
  EXPECT_EQ(paused["status"], "paused");
  EXPECT_EQ(paused["pace"]["state"], "paused");
  EXPECT_NE(done({"status", kName}).out.find("paused: month end"), std::string::npos);
  failure({"next", kName}, ErrorCode::paused);
  EXPECT_EQ(answer({"resume", kName})["changed"], true);
  done({"next", kName});
}

TEST_F(CliRunTest, APausedSettledPhaseKeepsNextFromEnteringTheNextOne) {
  start();
  for (const char* phase : {"planned", "dry_run", "backfill", "dual_write", "compare", "switched"}) {
    SCOPED_TRACE(phase);
    if (std::string(phase) != "planned") done({"next", kName});
    EXPECT_EQ(status()["phase"], phase);
    EXPECT_EQ(status()["status"], "settled");
    EXPECT_EQ(answer({"pause", kName})["changed"], true);
    failure({"next", kName}, ErrorCode::paused);
    EXPECT_EQ(status()["phase"], phase);
    EXPECT_EQ(status()["next"]["ready"], false);
    EXPECT_EQ(answer({"resume", kName})["changed"], true);
    const std::string idle = done({"status", kName}).out;
    EXPECT_NE(idle.find("running, but nobody is working on it"), std::string::npos) << idle;
    EXPECT_NE(idle.find("run crossfade next accounts_balance"), std::string::npos) << idle;
    // The work is looked at again, and there is none.
    done({"next", kName});
    EXPECT_EQ(status()["phase"], phase);
    EXPECT_EQ(status()["status"], "settled");
  }
  done({"next", kName, "--confirm", kName});
  failure({"pause", kName}, ErrorCode::illegal_transition);
}

TEST_F(CliRunTest, AFailedPhaseIsNotPaused) {
  start();
  done({"next", kName, "--until", "dry_run"});
  sql("UPDATE crossfade.migration SET status = 'failed', reason = 'a test says so'");
  const json error = failure({"pause", kName}, ErrorCode::illegal_transition);
  EXPECT_NE(error["message"].get<std::string>().find("is failed in dry_run"), std::string::npos) << error;
}

TEST_F(CliRunTest, ASignalEndsTheWorkCleanlyWithStatus130) {
  sql("INSERT INTO accounts (balance) SELECT g FROM generate_series(1, 30000) g");
  sql("ANALYZE accounts");
  start();
  done({"next", kName});
  done({"tune", kName, "rows_per_second=1000"});  // so that the work outlasts the signal
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string gate = (folder_.path() / ("gate" + std::to_string(number))).string();
    Program program(crossfade_binary(), {"next", kName, "--json"},
                    {{"CROSSFADE_DSN", dsn()}, {"CROSSFADE_FAILPOINTS", "chunk.before=wait:" + gate}});
    wait_until([&] { return std::filesystem::exists(gate + ".reached"); }, "a chunk to begin");
    program.signal(number);
    program.signal(number);  // impatience changes nothing
    write_text(gate, "");
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.exit_status, 130) << result.out << result.err;
    EXPECT_EQ(lines_of(result.out).back()["error"]["name"], "interrupted");
    EXPECT_EQ(status()["status"], "running");
  }
  done({"tune", kName, "rows_per_second=0"});
  done({"next", kName});
}

TEST_F(CliRunTest, WatchEndsWithASignal) {
  start();
  Program program(crossfade_binary(), {"status", kName, "--watch", "--json"}, {{"CROSSFADE_DSN", dsn()}});
  wait_until([&] { return program.out().find('\n') != std::string::npos; }, "the first status");
  program.signal(SIGINT);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.exit_status, 130);
  for (const json& line : lines_of(result.out)) expect_status_keys(line);
}

TEST_F(CliRunTest, QuietSaysNothingOnStandardError) {
  done({"init"});
  EXPECT_EQ(done({"start", spec_, "-q"}).err, "");
  const ProgramResult next = done({"next", kName, "-q"});
  EXPECT_EQ(next.err, "");
  EXPECT_EQ(next.out, "accounts_balance is in dry_run, settled.\n");
}

}  // namespace
}  // namespace crossfade::test

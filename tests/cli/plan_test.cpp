// What plan says before and after start, and that nothing else is sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "support/database_test.hpp"
#include "support/files.hpp"
#include "support/program.hpp"

namespace crossfade::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Two migrations have equal texts but for their ids.
std::string without_ids(std::string text) {
  static const std::regex uuid("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");
  static const std::regex suffix("_[0-9a-f]{12}(?![0-9a-z])");
  text = std::regex_replace(text, uuid, "UUID");
  return std::regex_replace(text, suffix, "_ID");
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == ';' || text.back() == ' ' || text.back() == '\n')) text.pop_back();
  return text;
}

bool is_ddl(const std::string& text) {
  static const std::regex verb(
      "(^|;\\s*|\\n\\s*)(CREATE|ALTER|DROP|TRUNCATE|COMMENT|GRANT|REVOKE|ANALYZE|REINDEX|VACUUM|CLUSTER)\\b");
  return std::regex_search(text, verb);
}

class PlanTest : public DatabaseTest {
 protected:
  ProgramResult crossfade(const Words& words) const {
    return Program::run(crossfade_binary(), words, {{"CROSSFADE_DSN", dsn()}});
  }
  ProgramResult done(const Words& words) const {
    const ProgramResult result = crossfade(words);
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    return result;
  }
  json plan() const { return json::parse(done({"plan", spec_, "--json"}).out); }
  void write_spec(const std::string& column, const std::string& more = "") const {
    write_text(spec_, "[migration]\nname = \"accounts_balance\"\ntable = \"public.accounts\"\n[[column]]\n" +
                          column + "[drop]\nsoak = \"0ms\"\n" + more);
  }

  void add_rows(const std::string& type, const std::string& fallback) {
    sql("CREATE TABLE accounts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, balance " + type +
        " NOT NULL DEFAULT " + fallback + ", note text)");
    sql("INSERT INTO accounts (balance) SELECT g FROM generate_series(1, 50) g");
    sql("CREATE INDEX accounts_by_balance ON accounts (balance)");
    sql("COMMENT ON COLUMN accounts.balance IS 'in cents'");
    sql("CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.note := ''seen''; RETURN NEW; END'");
    sql("CREATE TRIGGER noted BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION noted()");
    sql("CREATE TRIGGER probed BEFORE UPDATE ON accounts FOR EACH ROW WHEN (coalesce(current_setting("
        "'crossfade.sweep', true), '') = '') EXECUTE FUNCTION noted()");
    sql("ANALYZE accounts");
  }

  // Every statement that the server was sent from here on.
  void log_everything() {
    const auto name = value("SELECT quote_ident(current_database())");
    super_sql("ALTER DATABASE " + name + " SET log_statement = 'all'");
    logged_to_ = server().log().size();
  }
  std::vector<std::string> logged() {
    static const std::regex head("^[0-9]{4}-[0-9-]+ [0-9:.]+ [^\\[]*\\[[0-9]+\\] ");
    static const std::regex statement("^LOG:  (statement|execute [^:]*): ");
    std::string text = server().log().substr(logged_to_);
    logged_to_ += text.size();
    std::vector<std::string> entries;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
      const std::string line = text.substr(begin, end - begin);
      begin = end + 1;
      std::smatch match;
      if (std::regex_search(line, match, head)) {
        entries.push_back(match.suffix());
      } else if (!entries.empty()) {
        entries.back() += "\n" + (line.starts_with('\t') ? line.substr(1) : line);
      }
    }
    std::vector<std::string> statements;
    for (const std::string& entry : entries) {
      std::smatch match;
      if (std::regex_search(entry, match, statement)) statements.push_back(without_ids(match.suffix()));
    }
    return statements;
  }

  // One life with the way back, one to the end.
  void run_twice(const json& before) {
    done({"init"});
    log_everything();
    done({"start", spec_});
    const json first = plan();
    EXPECT_EQ(first["phase"], "planned");
    done({"next", "accounts_balance", "--until", "switched"});
    EXPECT_EQ(plan()["phase"], "switched");
    done({"rollback", "accounts_balance", "--to", "rolled_back"});
    done({"start", spec_});
    done({"next", "accounts_balance", "--until", "switched"});
    done({"recapture", "accounts_balance"});
    done({"next", "accounts_balance", "--until", "dropped", "--confirm", "accounts_balance"});
    check(before, first, logged());
  }

  static void check(const json& before, const json& after, const std::vector<std::string>& sent) {
    std::vector<std::string> planned;
    for (const json* plan : {&before, &after}) {
      for (const json& statement : (*plan)["statements"]) {
        planned.push_back(trimmed(without_ids(statement["sql"].get<std::string>())));
      }
    }
    std::ranges::sort(planned, {}, [](const std::string& text) { return -static_cast<long>(text.size()); });
    EXPECT_GT(std::ranges::count_if(sent, is_ddl), 20) << "the server did not log";
    for (std::string rest : sent) {
      const std::string whole = rest;
      for (const std::string& known : planned) {
        for (std::size_t at = rest.find(known); at != std::string::npos; at = rest.find(known)) {
          rest.replace(at, known.size(), " ");
        }
      }
      EXPECT_FALSE(is_ddl(rest)) << "not in the plan:\n" << rest << "\nof\n" << whole;
    }
    for (const json& statement : before["statements"]) {
      const std::string text = trimmed(without_ids(statement["sql"].get<std::string>()));
      if (!is_ddl(text) || contains(statement["what"].get<std::string>(), "only if")) continue;
      EXPECT_TRUE(std::ranges::any_of(sent, [&](const std::string& one) { return contains(one, text); }))
          << "never sent:\n"
          << text;
    }
  }

  PrivateFolder folder_{"plan"};
  std::string spec_ = (folder_.path() / "spec.toml").string();
  std::size_t logged_to_ = 0;
};

TEST_F(PlanTest, ARealRunSendsNoDdlThatThePlanDoesNotList) {
  add_rows("integer", "7");
  write_spec("name = \"balance\"\ntype = \"bigint\"\n");
  const json before = plan();
  EXPECT_EQ(before["initialized"], false);
  EXPECT_EQ(before["phase"], json());
  run_twice(before);
}

// A forward expression that may fail: try functions, and a NOT NULL that is proved only after the switch.
TEST_F(PlanTest, NorWhenTheExpressionMayFail) {
  add_rows("text", "'7'");
  write_spec(
      "name = \"balance\"\ntype = \"numeric\"\nforward = \"balance::numeric\"\n"
      "backward = \"balance::text\"\n");
  run_twice(plan());
}

// Unique indexes that the switch drops, and the way back builds again.
TEST_F(PlanTest, NorWhenTheWayBackOwesIndexes) {
  add_rows("integer", "7");
  sql("ALTER TABLE accounts ADD CONSTRAINT one UNIQUE (balance)");
  sql("CREATE UNIQUE INDEX two ON accounts (balance, (id % 3)) WHERE id > 0");
  write_spec("name = \"balance\"\ntype = \"numeric\"\n");
  run_twice(plan());
}

TEST_F(PlanTest, EveryPhaseWithWorkHasItsStatementsAndLocks) {
  add_rows("integer", "7");
  write_spec("name = \"balance\"\ntype = \"bigint\"\n");
  const json statements = plan()["statements"];
  const auto find = [&](const std::string& phase, const std::string& step, const std::string& part) {
    const auto found = std::ranges::find_if(statements, [&](const json& s) {
      return s["phase"] == phase && s["step"] == step && contains(s["sql"].get<std::string>(), part);
    });
    if (found == statements.end()) {
      ADD_FAILURE() << phase << " " << step << " has no " << part;
      return json{{"lock", ""}, {"blocks", ""}};
    }
    return *found;
  };
  find("planned", "start", "CREATE FUNCTION crossfade.");
  find("planned", "rollback", "DROP FUNCTION IF EXISTS crossfade.");
  EXPECT_EQ(find("dry_run", "work", "FROM ONLY")["lock"], "ACCESS SHARE on public.accounts");
  EXPECT_EQ(find("backfill", "enter", "LOCK TABLE")["blocks"], "table");
  find("backfill", "enter", "CREATE TRIGGER");
  EXPECT_EQ(find("backfill", "work", "UPDATE ONLY")["blocks"], "rows");
  find("backfill", "rollback", "DROP COLUMN");
  EXPECT_EQ(find("dual_write", "work", "CREATE INDEX CONCURRENTLY")["blocks"], "nothing");
  EXPECT_EQ(find("dual_write", "work", "NOT VALID")["blocks"], "table");
  EXPECT_EQ(find("dual_write", "work", "VALIDATE CONSTRAINT")["lock"],
            "SHARE UPDATE EXCLUSIVE on public.accounts");
  find("dual_write", "work", "ANALYZE");
  find("dual_write", "rollback", "DROP INDEX");
  find("compare", "work", "SET NOT NULL");
  find("compare", "work", "UPDATE ONLY");
  find("switched", "enter", "RENAME COLUMN");
  find("switched", "enter", "SET NOT NULL");
  find("switched", "enter", "crossfade.probe_failed");
  find("switched", "recapture", "CREATE TRIGGER");
  find("switched", "rollback", "RENAME COLUMN");
  find("switched", "rollback", "crossfade.probe_failed");
  find("dropped", "enter", "DROP COLUMN");
  const std::string text = done({"plan", spec_, "--sql"}).out;
  EXPECT_TRUE(contains(text, "holds up readers and writers of the table")) << text;
  EXPECT_TRUE(contains(text, "statements of switched: rollback")) << text;
}

TEST_F(PlanTest, AfterStartItShowsTheRealNames) {
  add_rows("integer", "7");
  write_spec("name = \"balance\"\ntype = \"bigint\"\n");
  done({"init"});
  const std::string id = json::parse(done({"start", spec_, "--json"}).out)["id"];
  std::string suffix = id;
  std::erase(suffix, '-');
  suffix = "_" + suffix.substr(0, 12);
  EXPECT_TRUE(contains(plan()["statements"].dump(), suffix));
  done({"next", "accounts_balance", "--until", "backfill"});
  const json now = plan();
  EXPECT_EQ(now["phase"], "backfill");
  EXPECT_TRUE(contains(now["statements"].dump(), suffix));
  const std::string text = done({"plan", spec_}).out;
  EXPECT_TRUE(contains(text, "already; it is in backfill")) << text;
  EXPECT_TRUE(contains(text, "next: crossfade status accounts_balance\n")) << text;
  write_spec("name = \"balance\"\ntype = \"numeric\"\n");
  EXPECT_TRUE(contains(crossfade({"plan", spec_}).err, "a different migration named"));
}

TEST_F(PlanTest, TheHintIsWhatToTypeNext) {
  add_rows("integer", "7");
  write_spec("name = \"balance\"\ntype = \"bigint\"\n");
  const std::string start = "crossfade start " + spec_;
  EXPECT_TRUE(contains(done({"plan", spec_}).out, "next: crossfade init && " + start + "\n"));
  done({"init"});
  const Words accepting{"plan", spec_, "--accept", "column_order", "--reason", "it's by name"};
  EXPECT_TRUE(contains(done(accepting).out,
                       "next: " + start + " --accept column_order --reason 'it'\\''s by name'\n"));
}

TEST_F(PlanTest, AMisspelledNameIsAnsweredWithTheNearestAndItsPlace) {
  add_rows("integer", "7");
  const auto with_table = [&](const std::string& table) {
    write_text(spec_, "[migration]\nname = \"accounts_balance\"\ntable = \"" + table +
                          "\"\n[[column]]\nname = \"balance\"\ntype = \"bigint\"\n");
    return crossfade({"plan", spec_}).err;
  };
  for (const char* wrong : {"public.acounts", "other.accounts"}) {
    const std::string text = with_table(wrong);
    EXPECT_TRUE(contains(text, spec_ + ":3:9: there is no table " + wrong)) << text;
    EXPECT_TRUE(contains(text, "did you mean public.accounts?")) << text;
  }
  write_spec("name = \"balanse\"\ntype = \"bigint\"\n");
  const ProgramResult column = crossfade({"plan", spec_});
  EXPECT_EQ(column.exit_status, 3);
  EXPECT_TRUE(contains(column.out, "did you mean balance?")) << column.out;
  write_spec("name = \"balance\"\ntype = \"bigintt\"\n");
  const ProgramResult type = crossfade({"plan", spec_});
  EXPECT_EQ(type.exit_status, 2);
  EXPECT_TRUE(contains(type.err, spec_ + ":6:8: key column.type: 'bigintt' is not a type")) << type.err;
}

TEST_F(PlanTest, TheSameTypeWithoutAnExpressionIsWarnedOf) {
  add_rows("integer", "7");
  const auto ids = [&] {
    Words list;
    const json findings = plan()["findings"];
    for (const json& finding : findings) list.push_back(finding["id"]);
    return list;
  };
  write_spec("name = \"balance\"\ntype = \"integer\"\n");
  EXPECT_EQ(std::ranges::count(ids(), "nothing_changes"), 1);
  write_spec(
      "name = \"balance\"\ntype = \"integer\"\nforward = \"balance * 2\"\nbackward = \"balance / 2\"\n");
  EXPECT_EQ(std::ranges::count(ids(), "nothing_changes"), 0);
}

TEST_F(PlanTest, TheHintForAUniqueConstraintCanBeFollowed) {
  add_rows("integer", "7");
  sql("ALTER TABLE accounts ADD CONSTRAINT one_balance UNIQUE (balance) DEFERRABLE");
  write_spec("name = \"balance\"\ntype = \"bigint\"\n");
  const std::string text = crossfade({"plan", spec_}).out;
  EXPECT_TRUE(contains(text, "ADD CONSTRAINT … USING INDEX")) << text;
}

}  // namespace
}  // namespace crossfade::test

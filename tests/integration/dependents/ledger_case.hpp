// A case of the ledger: a table with something hung on one of its columns, and what the whole life must leave
// as it was.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {

inline const std::string kLedgerTable =
    "CREATE TABLE t (id int PRIMARY KEY, b int NOT NULL, d text NOT NULL, e int NOT NULL, n int);"
    "INSERT INTO t SELECT g, g, 'd' || g, g, g FROM generate_series(1, 200) g;";

struct LedgerCase {
  std::string name;
  std::string ddl;  // as the owner of the table, after `table`
  std::string type = "bigint";
  std::string column = "b";
  std::string check = "";  // a query that answers t before, and after every step
  bool makes_publication = false;
  std::string expressions = "";  // of the spec, as TOML
  std::string table = kLedgerTable;
  // Of what is refused: what the plan says of it, and what is done then, as its hint says.
  std::string told = "", undo = "";
};
inline void PrintTo(const LedgerCase& c, std::ostream* out) { *out << c.name; }

class LedgerLifecycleTest : public DatabaseTest, public ::testing::WithParamInterface<LedgerCase> {
 protected:
  void make() {
    const auto& c = GetParam();
    super_sql(
        "DO $$BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cf friend') THEN"
        " CREATE ROLE \"cf friend\"; CREATE ROLE cf_guest; GRANT \"cf friend\" TO app_owner; END IF; END$$");
    if (c.makes_publication) {
      super_sql(
          "DO $$BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO PUBLIC', current_database()); END$$");
    }
    sql(c.table + c.ddl);
    owner_.emplace(dsn());
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
  }

  void prepare() {
    make();
    before_ = lines();
    start();
  }

  static std::string spec() {
    const auto& c = GetParam();
    return fmt::format(
        "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"{}\"\n"
        "type = \"{}\"\n{}[drop]\nsoak = \"0s\"\n",
        c.column, c.type, c.expressions);
  }

  void start() {
    std::vector<Acceptance> accept;
    if (!GetParam().expressions.empty()) accept = {{"twin_unique_may_reject", "every row is another number"}};
    migrator_->start({spec()}, accept);
  }

  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    if (phase == Phase::dropped) options.confirm = "m";
    migrator_->next("m", options);
  }

  std::vector<std::string> lines() { return describe_catalog(*owner_, "public.t"); }

  // Of the column's own line: without its type, and without what comes with that (its name is in front).
  std::string without_type(const std::string& line) const {
    const auto& c = GetParam();
    const auto cut = [](std::string text, std::string_view from, std::string_view to) {
      const auto begin = text.find(from);
      const auto end = begin == std::string::npos ? begin : text.find(to, begin + from.size());
      return end == std::string::npos ? text : text.erase(begin, end - begin);
    };
    auto text = cut(line, fmt::format("column {} ", c.column), " not null ");
    // A default is written in other words, and what it gives is `check`.
    if (text.find(" default none ") == std::string::npos) text = cut(text, " default ", " collation ");
    if (c.type != "numeric") return text;
    return cut(cut(text, " collation ", " identity "), " storage ", " compression ");
  }

  // What differs from before and is neither the column's type, nor where it is shown, nor ours.
  std::vector<std::string> unintended() {
    auto now = lines();
    auto before = before_;
    for (auto* both : {&now, &before}) {
      for (auto& line : *both) {
        if (line.starts_with(fmt::format("column {} ", GetParam().column))) line = without_type(line);
      }
    }
    // A sequence becomes as wide as the column, and a view shows it, and what it computes with it, in its
    // type.
    for (auto& line : now) {
      if (!line.starts_with("sequence ") && !line.starts_with("view column ")) continue;
      for (const auto& [wide, narrow] : {std::pair(" bigint ", " integer "),
                                         {"9223372036854775807", "2147483647"},
                                         {" numeric ", " bigint "}}) {
        if (std::ranges::find(before, line) != before.end()) break;
        if (const auto at = line.find(wide); at != std::string::npos)
          line.replace(at, std::string_view(wide).size(), narrow);
      }
    }
    std::ranges::sort(before);
    std::ranges::sort(now);
    std::vector<std::string> differing;
    std::ranges::set_symmetric_difference(before, now, std::back_inserter(differing));
    std::erase_if(differing, [](const std::string& line) {
      return line.find("_cf") != std::string::npos || line.find("crossfade.") != std::string::npos;
    });
    return differing;
  }

  void expect_check(const std::string& where) {
    const auto& c = GetParam();
    if (!c.check.empty()) {
      EXPECT_EQ(value(c.check), "t") << where;
    }
  }

  void expect_kept(const std::string& where) {
    EXPECT_EQ(unintended(), std::vector<std::string>{}) << where;
    expect_check(where);
    EXPECT_EQ(value("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't'::regclass"
                    " AND attname = " +
                    quote_literal(GetParam().column)),
              GetParam().type)
        << where;
  }

  // There, back, there again, all the way back, and to the end; after prepare().
  void live() {
    expect_check("before");
    advance(Phase::switched);
    expect_kept("switched");
    migrator_->rollback("m");
    advance(Phase::compare);
    EXPECT_EQ(unintended(), std::vector<std::string>{}) << "back in compare";
    expect_check("back in compare");
    advance(Phase::switched);
    expect_kept("switched again");
    migrator_->rollback("m", {.to = Phase::rolled_back, .accept = {}});
    EXPECT_EQ(lines(), before_) << "rolled back";
    expect_check("rolled back");
    start();
    advance(Phase::switched);
    advance(Phase::dropped);
    expect_kept("dropped");
    for (const auto& line : lines()) EXPECT_EQ(line.find("_cf"), std::string::npos) << line;
  }

  std::optional<ApplicationSession> owner_;
  std::optional<Migrator> migrator_;
  std::vector<std::string> before_;
};

}  // namespace crossfade::test

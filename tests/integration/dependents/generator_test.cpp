// What hangs on the column by chance, through the whole life. Two oracles: the catalog of another database in
// which the column had its new type from the beginning, and a twin table that gets the same writes.
//
// CROSSFADE_TEST_SEED=n runs one seed, CROSSFADE_GENERATOR_SEEDS=n runs so many, divided among the shards.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "crossfade/core/error.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "random_schema.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {
namespace {

using Lines = std::vector<std::string>;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// As a word of its own: the name may be a keyword that is part of others.
bool names(const std::string& text, const std::string& name) {
  const auto is_part = [&](std::size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_' || text[at] == '"');
  };
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++at) {
    if (!(at > 0 && is_part(at - 1)) && !is_part(at + name.size())) return true;
  }
  return false;
}

using Tally = std::map<std::string, std::pair<int, int>>;

class Life {
 public:
  Life(PostgresServer& server, std::uint64_t seed)
      : schema_(seed),
        chance_(seed + 1),
        database_(server.create_database()),
        reference_database_(server.create_database()),
        owner_(database_->dsn()),
        reference_(reference_database_->dsn()),
        migrator_({.dsn = database_->dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"}) {}

  void run() {
    prepare();
    start();
    advance(Phase::switched);
    expect_new("switched");
    migrator_.rollback("m");
    advance(Phase::compare);
    expect_old("back in compare");
    advance(Phase::switched);
    expect_new("switched again");
    RollbackOptions all_the_way;
    all_the_way.to = Phase::rolled_back;
    migrator_.rollback("m", all_the_way);
    expect_old("rolled back");
    start();
    advance(Phase::switched);
    expect_new("switched at last");
    advance(Phase::dropped);
    expect_new("dropped");
    for (const auto& line : describe_catalog(owner_, schema_.table()))
      EXPECT_EQ(line.find("_cf"), std::string::npos) << line;
  }

  std::string text() const {
    auto text = schema_.spec() + schema_.make_table(schema_.kind().old_type) + "\n";
    for (const auto& object : schema_.objects()) text += object.create + ";\n";
    return text;
  }
  const Lines& refused() const { return refused_; }
  // Of each kind, how many hung on the column to the end, and how many were refused.
  void count(Tally& tally) const {
    for (const auto& object : alive_) ++tally[object.what].first;
    for (const auto& what : refused_kinds_) ++tally[what].second;
  }

 private:
  void prepare() {
    owner_.run(schema_.make_table(schema_.kind().old_type));
    for (const auto& object : schema_.objects()) {
      if (make(owner_, object, schema_.kind().old_type)) alive_.push_back(object);
    }
    migrator_.init();
    drop_what_is_refused();
    owner_.run(schema_.make_twin());
    before_ = describe_catalog(owner_, schema_.table());
    reference_.run(schema_.make_table(schema_.kind().new_type) +
                   "CREATE SCHEMA twin; CREATE TABLE twin.t ()");
    for (const auto& object : alive_) {
      EXPECT_TRUE(make(reference_, object, schema_.kind().new_type)) << object.create << "\n" << reason_;
    }
    expected_ = normal(describe_catalog(reference_, schema_.table()));
    write("before");
  }

  // What PostgreSQL refuses was never legal.
  bool make(ApplicationSession& session, const RandomObject& object, const std::string& type) {
    try {
      session.run("BEGIN;" + RandomSchema::typed(object.create, type) + ";COMMIT");
      return true;
    } catch (const ApplicationError& error) {
      reason_ = error.what();
      session.run("ROLLBACK");
      return false;
    }
  }

  std::vector<RandomObject>::iterator named_by(const Finding& finding) {
    auto found = alive_.end();
    std::size_t longest = 0;
    for (auto object = alive_.begin(); object != alive_.end(); ++object) {
      if (object->of_column || (!object->finding.empty() && object->finding != finding.id)) continue;
      for (const auto* name : {&object->name, &object->other_name}) {
        if (name->size() <= longest || !names(finding.object, *name)) continue;
        found = object;
        longest = name->size();
      }
    }
    if (found != alive_.end()) return found;
    const bool of_default = finding.message.starts_with("The default of ");
    return std::ranges::find_if(alive_, [&](const auto& o) {
      return o.of_column && finding.object.ends_with(o.name) && of_default == (o.what == "default_value");
    });
  }

  void drop_what_is_refused() {
    for (int round = 0; round < 50; ++round) {
      std::vector<Finding> refusals;
      for (const auto& finding : migrator_.plan({schema_.spec()}).refusals) {
        if (!find_finding(finding.id)->acceptable) refusals.push_back(finding);
      }
      if (refusals.empty()) return;
      // One may be of the table (foreign keys that cannot follow), beside those of each object.
      auto found = alive_.end();
      auto finding = refusals.front();
      for (auto next = refusals.begin(); next != refusals.end() && found == alive_.end(); ++next) {
        found = named_by(*next);
        if (found != alive_.end()) finding = *next;
      }
      ASSERT_NE(found, alive_.end()) << finding.id << " [" << finding.object << "] " << finding.message;
      refused_.push_back(finding.message);
      refused_kinds_.push_back(found->what);
      owner_.run(found->drop);
      alive_.erase(found);
    }
    FAIL() << "there is no end of refusals";
  }

  void start() {
    std::vector<Acceptance> accept;
    for (const auto& info : finding_table()) {
      if (info.acceptable && info.id != std::string_view("dependent_added"))
        accept.push_back({std::string(info.id), "chance"});
    }
    migrator_.start({schema_.spec()}, accept);
  }

  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    options.wait = std::chrono::seconds(60);
    if (phase == Phase::dropped) options.confirm = "m";
    migrator_.next("m", options);
  }

  // The default of the column may be written in other words; what it gives is seen in the rows.
  Lines normal(Lines lines) const {
    for (auto& line : lines) {
      // Statistics show plain columns in the order of the table, where the new one is the last.
      if (line.starts_with("statistics ")) {
        const auto plain = fmt::format(" ON {}, e FROM ", schema_.column());
        if (const auto at = line.find(plain); at != std::string::npos)
          line.replace(at, plain.size(), fmt::format(" ON e, {} FROM ", schema_.column()));
      }
      // The default of a view's column keeps the type in which it was first read.
      if (const auto at = line.find("'7'::character varying");
          at != std::string::npos && line.starts_with("view column "))
        line.replace(at, 22, "'7'::text");
      if (!line.starts_with("column " + schema_.column() + " ")) continue;
      const auto from = line.find(" default "), to = line.find(" collation ");
      if (line.compare(from, 14, " default none ") == 0) continue;
      // Of a sequence which one it is, whatever the cast around it.
      const auto drawn = line.find("nextval('", from), end = line.find("'::regclass)", from);
      const auto sequence =
          drawn < to && end < to ? " default from " + line.substr(drawn, end - drawn) : " default something";
      line.replace(from, to - from, sequence);
    }
    std::erase_if(lines, [](const std::string& line) {
      return line.find("_cf") != std::string::npos || line.find("crossfade.") != std::string::npos;
    });
    std::ranges::sort(lines);
    return lines;
  }

  static std::string difference(const Lines& expected, const Lines& found) {
    std::string text;
    Lines lines;
    std::ranges::set_difference(expected, found, std::back_inserter(lines));
    for (const auto& line : lines) text += "- " + line + "\n";
    lines.clear();
    std::ranges::set_difference(found, expected, std::back_inserter(lines));
    for (const auto& line : lines) text += "+ " + line + "\n";
    return text;
  }

  static void expect_same(const std::string& where, const Lines& expected, const Lines& found) {
    const auto text = difference(expected, found);
    if (!text.empty()) ADD_FAILURE() << where << "\n" << text;
  }

  void expect_new(const std::string& where) {
    expect_same(where, expected_, normal(describe_catalog(owner_, schema_.table())));
    expect_rows(where, schema_.kind().shown);
    write(where);
  }

  void expect_old(const std::string& where) {
    auto before = before_, now = describe_catalog(owner_, schema_.table());
    if (where != "rolled back") before = normal(before), now = normal(now);
    expect_same(where, before, now);
    expect_rows(where, "b");
    write(where);
  }

  void expect_rows(const std::string& where, const std::string& b) {
    const auto differing = owner_.value(
        fmt::format("SELECT coalesce(string_agg(x::text, ' '), '') FROM (SELECT coalesce(t.id, w.id) || ':' "
                    "|| coalesce(t.b, 'NULL') || '/' || coalesce(w.b, 'NULL') AS x FROM"
                    " (SELECT id, {}::text AS b, d, e FROM {}) t FULL JOIN (SELECT id, {} AS b, d, e FROM "
                    "twin.t) w USING (id)"
                    " WHERE ROW(t.*) IS DISTINCT FROM ROW(w.*) LIMIT 5) s",
                    schema_.column(), schema_.table(), b));
    EXPECT_EQ(differing, "") << where;
    for (const auto& object : alive_) {
      if (!object.writable_view.empty()) owner_.run("SELECT * FROM " + object.writable_view);
    }
  }

  // A few writes to the table, or through a view, and the same to the twin.
  void write(const std::string& where) {
    for (int i = 0; i < 8; ++i) {
      std::string target = schema_.table();
      const auto& any = alive_.empty() ? schema_.objects().front() : chance_.of(alive_);
      if (!alive_.empty() && !any.writable_view.empty()) target = any.writable_view;
      const auto c = schema_.column(), value = schema_.value(chance_);
      const auto id = std::to_string(1 + chance_.below(60));
      const bool key = schema_.kind().key;
      std::string change, same, unchanged;
      switch (chance_.below(5)) {
        case 0: {
          const auto fresh = std::to_string(++last_id_);
          const auto given = key ? "" : ", " + value;
          change = fmt::format("INSERT INTO {} (id{}, d, e) OVERRIDING SYSTEM VALUE VALUES ({}{}, 'new', 7)",
                               target, key ? "" : ", " + c, fresh, given);
          same = fmt::format("INSERT INTO twin.t (id, b, d, e) VALUES ({}, {}::{}::text, 'new', 7)", fresh,
                             key ? fresh : value, schema_.kind().old_type);
          break;
        }
        case 1:
          change = fmt::format("UPDATE {} SET d = d || '!' WHERE id = {}", target, id);
          same = fmt::format("UPDATE twin.t SET d = d || '!' WHERE id = {}", id);
          break;
        case 2:
          change = fmt::format("DELETE FROM {} WHERE id = {}", target, id);
          same = fmt::format("DELETE FROM twin.t WHERE id = {}", id);
          break;
        default:
          if (key) continue;
          // Whoever writes what the new column shows already changes nothing, and the old value stays.
          if (where.starts_with("switched"))
            unchanged = fmt::format(" AND ({}) IS DISTINCT FROM {}::{}::text", schema_.kind().shown, value,
                                    schema_.kind().old_type);
          change = fmt::format("UPDATE {} SET {} = {} WHERE id = {}", target, c, value, id);
          same = fmt::format("UPDATE twin.t SET b = {}::{}::text WHERE id = {}{}", value,
                             schema_.kind().old_type, id, unchanged);
      }
      try {
        owner_.run("BEGIN;" + change + ";" + same + ";COMMIT");
      } catch (const ApplicationError& error) {
        EXPECT_TRUE(error.sqlstate().starts_with("23")) << where << ": " << change << ": " << error.what();
        owner_.run("ROLLBACK");
      }
    }
  }

  RandomSchema schema_;
  Chance chance_;
  std::unique_ptr<Database> database_, reference_database_;
  ApplicationSession owner_, reference_;
  Migrator migrator_;
  std::vector<RandomObject> alive_;
  Lines before_, expected_, refused_, refused_kinds_;
  std::string reason_;
  int last_id_ = 1000;
};

constexpr int kShards = 6;
constexpr std::uint64_t kUsually = 12;

class GeneratorTest : public DatabaseTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    server().admin().script(
        "DO $$BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'cf_friend') THEN CREATE ROLE "
        "cf_friend; "
        "CREATE ROLE cf_guest; GRANT cf_friend TO app_owner; END IF; END$$");
  }
};

TEST_P(GeneratorTest, WhateverHangsOnTheColumnIsCarriedOrRefusedByName) {
  const auto count = number_from("CROSSFADE_GENERATOR_SEEDS", kUsually);
  const auto one = number_from("CROSSFADE_TEST_SEED", 0);
  Tally tally;
  Lines failing;
  for (std::uint64_t seed = 1; seed <= std::max(count, one); ++seed) {
    if (one != 0 ? seed != one : seed % kShards != static_cast<std::uint64_t>(GetParam())) continue;
    if (one != 0 && GetParam() != 0) continue;
    SCOPED_TRACE("CROSSFADE_TEST_SEED=" + std::to_string(seed));
    const auto failures =
        ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    try {
      Life life(server(), seed);
      if (one != 0) std::cout << life.text() << std::endl;
      life.run();
      life.count(tally);
      if (one != 0 || count > kUsually)
        std::cout << fmt::format("seed {} refused:\n{}\n", seed, fmt::join(life.refused(), "\n"));
    } catch (const Error& error) {
      // PostgreSQL quotes the whole statement of a switch.
      ADD_FAILURE() << error.message().substr(0, 3000) << "\n" << error.hint();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    const auto* result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
    if (result->total_part_count() > failures) {
      failing.push_back(std::to_string(seed));
      std::cout << "CROSSFADE_TEST_SEED=" << seed << " fails" << std::endl;
    }
  }
  std::cout << fmt::format("seeds 1 to {}, those that are {} modulo {}; failing: {}\n", std::max(count, one),
                           GetParam(), kShards,
                           failing.empty() ? "none" : fmt::format("{}", fmt::join(failing, " ")));
  for (const auto& [what, numbers] : tally)
    std::cout << fmt::format("{:<20} carried {}, refused {}\n", what, numbers.first, numbers.second);
  std::cout << std::flush;
}

// What no seed hangs on a column is not tested by any number of them.
TEST(RandomSchemaTest, HangsEveryKindOfTheLedgerOnSomeColumn) {
  std::set<std::string> hung;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const RandomSchema schema(seed);
    if (schema.not_null()) hung.insert("not_null");
    for (const auto& object : schema.objects()) hung.insert(object.what);
  }
  for (int kind = 0; kind <= static_cast<int>(DependentKind::view); ++kind) {
    const auto word = std::string(to_text(static_cast<DependentKind>(kind)));
    EXPECT_TRUE(hung.contains(word)) << word;
    hung.erase(word);
  }
  EXPECT_EQ(hung, (std::set<std::string>{"beside", "refused"})) << "and every word is one of the ledger";
}

INSTANTIATE_TEST_SUITE_P(dependents_generator, GeneratorTest, ::testing::Range(0, kShards));

}  // namespace
}  // namespace crossfade::test

// What hangs on the column by chance, through the whole life. Two oracles: the catalog of another database in
// which the column had its new type from the beginning, and a twin table that gets the same writes.
//
// CROSSFADE_TEST_SEED=n runs one seed, CROSSFADE_GENERATOR_SEEDS=n runs so many, divided among the shards.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "crossfade/core/error.hpp"
#include "crossfade/cutover/migrator.hpp"
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
  std::size_t carried() const { return alive_.size(); }

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

  void drop_what_is_refused() {
    for (int round = 0; round < 50; ++round) {
      std::vector<Finding> refusals;
      for (const auto& finding : migrator_.plan({schema_.spec()}).refusals) {
        if (!find_finding(finding.id)->acceptable) refusals.push_back(finding);
      }
      if (refusals.empty()) return;
      const auto& finding = refusals.front();
      auto found = alive_.end();
      for (auto object = alive_.begin(); object != alive_.end(); ++object) {
        const bool it_is = !object->of_column ? names(finding.object, object->name) : false;
        if (it_is && (found == alive_.end() || object->name.size() > found->name.size())) found = object;
      }
      if (found == alive_.end())
        found = std::ranges::find_if(
            alive_, [&](const auto& o) { return o.of_column && finding.object.ends_with(o.name); });
      ASSERT_NE(found, alive_.end()) << finding.id << " [" << finding.object << "] " << finding.message;
      refused_.push_back(finding.message);
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
      if (line.compare(from, 17, " default nextval(") != 0 && line.compare(from, 14, " default none ") != 0)
        line.replace(from, to - from, " default something");
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
    expect_rows(where,
                schema_.kind().old_type == "text" ? "CASE WHEN b ~ '^[0-9]+$' THEN b::int::text END" : "b");
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
      std::string change, same;
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
          change = fmt::format("UPDATE {} SET {} = {} WHERE id = {}", target, c, value, id);
          same = fmt::format("UPDATE twin.t SET b = {}::{}::text WHERE id = {}", value,
                             schema_.kind().old_type, id);
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
  Lines before_, expected_, refused_;
  std::string reason_;
  int last_id_ = 1000;
};

constexpr int kShards = 5;

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
  const auto count = number_from("CROSSFADE_GENERATOR_SEEDS", 10);
  const auto one = number_from("CROSSFADE_TEST_SEED", 0);
  std::size_t refused = 0, carried = 0;
  for (std::uint64_t seed = 1; seed <= std::max(count, one); ++seed) {
    if (one != 0 ? seed != one : seed % kShards != static_cast<std::uint64_t>(GetParam())) continue;
    if (one != 0 && GetParam() != 0) continue;
    SCOPED_TRACE("CROSSFADE_TEST_SEED=" + std::to_string(seed));
    const bool good_before = !HasFailure();
    try {
      Life life(server(), seed);
      if (one != 0) std::cout << life.text() << std::endl;
      life.run();
      refused += life.refused().size();
      carried += life.carried();
      if (one != 0 || count > 10) std::cout << fmt::format("refused:\n{}\n", fmt::join(life.refused(), "\n"));
    } catch (const Error& error) {
      ADD_FAILURE() << error.message() << "\n" << error.hint();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (good_before && HasFailure()) std::cout << "first failing seed " << seed << std::endl;
  }
  std::cout << "carried " << carried << " objects, refused " << refused << std::endl;
}

INSTANTIATE_TEST_SUITE_P(dependents_generator, GeneratorTest, ::testing::Range(0, kShards));

}  // namespace
}  // namespace crossfade::test

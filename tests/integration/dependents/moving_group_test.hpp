// The fixture of tests in which several columns move together, because foreign keys follow.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "support/database_test.hpp"
#include "support/lifecycle.hpp"

namespace crossfade::test {

class MovingGroupTest : public DatabaseTest {
 protected:
  void SetUp() override {
    migrator_.emplace(MigratorOptions{.dsn = dsn(), .redis = "", .operator_name = "ada", .host = "lovelace"});
    migrator_->init();
  }

  static std::string spec(const std::string& table, const std::string& column = "id",
                          const std::string& drop = {}) {
    return fmt::format(
        "[migration]\nname = \"m\"\ntable = \"{}\"\n[[column]]\nname = \"{}\"\ntype = \"bigint\"\n"
        "[switch]\nfollow_foreign_keys = true\nattempts = 10000\n[drop]\nsoak = \"0s\"\n{}",
        table, column, drop);
  }

  // What time alone brings is waited for: a snapshot that is a little older than our last write.
  template <typename Work>
  static void patiently(const Work& work) {
    constexpr int kTries = 30;
    for (int i = 1;; ++i) {
      try {
        return work();
      } catch (const Error& error) {
        const bool passes = error.code() == ErrorCode::old_snapshot || error.code() == ErrorCode::not_ready;
        if (!passes || i == kTries) throw;
      }
    }
  }
  void advance(Phase phase) {
    NextOptions options;
    options.until = phase;
    if (phase == Phase::dropped) options.confirm = "m";
    patiently([&] { migrator_->next("m", options); });
  }
  void roll_back(Phase phase) {
    patiently([&] { migrator_->rollback("m", {.to = phase, .accept = {}}); });
  }

  std::vector<std::string> lines(const std::vector<std::string>& tables) {
    ApplicationSession owner(dsn());
    std::vector<std::string> all;
    for (const auto& table : tables) {
      for (auto& line : describe_catalog(owner, "public." + table)) all.push_back(table + ": " + line);
    }
    std::ranges::sort(all);
    return all;
  }

  // What differs but for the type of a column, and of what shows it.
  std::vector<std::string> beside_types(const std::vector<std::string>& before,
                                        const std::vector<std::string>& after) {
    const auto untyped = [](std::vector<std::string> lines) {
      for (auto& line : lines) {
        if (line.find(": column ") == std::string::npos && line.find(": view column ") == std::string::npos)
          continue;
        for (const std::string_view narrow : {" integer ", " smallint "}) {
          const auto at = line.find(narrow);
          if (at != std::string::npos) line.replace(at, narrow.size(), " bigint ");
        }
      }
      std::ranges::sort(lines);
      return lines;
    };
    std::vector<std::string> differing;
    std::ranges::set_symmetric_difference(untyped(before), untyped(after), std::back_inserter(differing));
    return differing;
  }

  // And is not ours.
  std::vector<std::string> beside_ours(const std::vector<std::string>& before,
                                       const std::vector<std::string>& after) {
    auto differing = beside_types(before, after);
    std::erase_if(differing, [](const std::string& line) {
      return line.find("_cf") != std::string::npos || line.find("crossfade") != std::string::npos;
    });
    return differing;
  }

  std::string indexes(const std::string& table) {
    return value(
        "SELECT string_agg(regexp_replace(c.relname, '_[0-9a-f]{12}$', '_ID'), ' ' ORDER BY c.relname)"
        " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid AND i.indrelid ="
        " $1::regclass",
        {"public." + table});
  }
  // Of table t.
  std::string types(const std::string& columns) {
    return value(
        fmt::format("SELECT string_agg(DISTINCT format_type(atttypid, -1), ' ') FROM pg_attribute"
                    " WHERE attrelid = 't'::regclass AND attname IN ({})",
                    columns));
  }
  std::string violation(const std::string& statement) {
    try {
      ApplicationSession(dsn()).run(statement);
      return "none";
    } catch (const ApplicationError& error) {
      return error.sqlstate();
    }
  }

  std::optional<Migrator> migrator_;
};

}  // namespace crossfade::test

// docs/state.md names every table and column of schema crossfade, in their order, and nothing else.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "crossfade/core/state_schema.hpp"
#include "support/database_test.hpp"
#include "support/files.hpp"

namespace crossfade::test {
namespace {

using Tables = std::map<std::string, std::vector<std::string>>;

std::string between_markers(const std::string& text) {
  const std::string begin = "<!-- state:begin -->", end = "<!-- state:end -->";
  const auto from = text.find(begin), to = text.find(end);
  if (from == std::string::npos || to == std::string::npos) throw std::runtime_error("a marker is missing");
  return text.substr(from + begin.size(), to - from - begin.size());
}

// "### table", then rows "| `column` | meaning |".
Tables documented() {
  std::istringstream lines(between_markers(read_text(CROSSFADE_SOURCE_FOLDER "/docs/state.md")));
  const std::string heading = "### ", row = "| `";
  Tables tables;
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(heading)) {
      table = line.substr(heading.size());
      tables[table];
    } else if (line.starts_with(row)) {
      tables[table].push_back(line.substr(row.size(), line.find('`', row.size()) - row.size()));
    }
  }
  return tables;
}

class StateDocsTest : public DatabaseTest {
 protected:
  Tables installed() {
    auto door = session();
    install_schema(door);
    Tables tables;
    for (const auto& row : sql("SELECT table_name, column_name FROM information_schema.columns"
                               " WHERE table_schema = 'crossfade' ORDER BY table_name, ordinal_position")
                               .rows) {
      tables[text_of(row[0])].push_back(text_of(row[1]));
    }
    return tables;
  }
};

TEST_F(StateDocsTest, EveryTableAndColumnIsDocumented) {
  const auto there = installed(), told = documented();
  ASSERT_FALSE(there.empty());
  for (const auto& [table, columns] : there) {
    const auto found = told.find(table);
    ASSERT_NE(found, told.end()) << "docs/state.md does not tell of table " << table;
    EXPECT_EQ(found->second, columns) << "of table " << table;
  }
  EXPECT_EQ(told.size(), there.size()) << "docs/state.md tells of a table that is not there";
}

}  // namespace
}  // namespace crossfade::test

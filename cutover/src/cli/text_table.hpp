// Aligned columns for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "terminal.hpp"

namespace crossfade::cli {

class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string_view heading;
    Align align = Align::left;
  };
  explicit TextTable(std::vector<Column> columns);

  // Requires: as many cells as columns. Cells are shown in one line each, without control characters.
  void add(const std::vector<std::string>& cells);
  bool empty() const { return rows_.empty(); }
  // Heading and rows, each with a line feed; no blanks at the ends of lines.
  std::string text(const Style& style) const;

 private:
  std::string line(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace crossfade::cli

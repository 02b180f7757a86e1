#include "text_table.hpp"

#include <algorithm>
#include <cassert>

namespace crossfade::cli {

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add(const std::vector<std::string>& cells) {
  assert(cells.size() == columns_.size());
  std::vector<std::string>& row = rows_.emplace_back();
  for (const std::string& cell : cells) row.push_back(one_line(cell));
}

std::string TextTable::line(const std::vector<std::string>& cells,
                            const std::vector<std::size_t>& widths) const {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - display_width(cells[i]), ' ');
    if (i > 0) out += "  ";
    out += columns_[i].align == Align::right ? padding + cells[i] : cells[i] + padding;
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string TextTable::text(const Style& style) const {
  std::vector<std::string> headings;
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) {
    headings.emplace_back(column.heading);
    widths.push_back(display_width(column.heading));
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string out = style.bold(line(headings, widths)) + "\n";
  for (const auto& row : rows_) out += line(row, widths) + "\n";
  return out;
}

}  // namespace crossfade::cli

// rejects and misfits: rows that cannot be carried to the other side, before and after the switch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "events.hpp"
#include "text_table.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

using ShowValues = Migrator::ShowValues;

// A message of PostgreSQL quotes the value that it is about: it is shown only when asked for.
Json reject_object(const RejectRow& row, ShowValues show) {
  Json object{{"key", row.key.parts}, {"sqlstate", row.sqlstate}, {"at", row.at}};
  if (!row.table.empty()) object["table"] = row.table;
  if (show == ShowValues::yes) object["message"] = row.message;
  return object;
}

Json reject_array(const std::vector<RejectRow>& rows, ShowValues show) {
  Json array = Json::array();
  for (const RejectRow& row : rows) array.push_back(reject_object(row, show));
  return array;
}

std::string reject_table(const std::vector<RejectRow>& rows, ShowValues show, const Style& style) {
  std::vector<TextTable::Column> columns{{"key"}, {"sqlstate"}, {"since"}};
  if (show == ShowValues::yes) columns.push_back({"message"});
  TextTable table(columns);
  for (const RejectRow& row : rows) {
    std::vector<std::string> cells{
        fmt::format("{}{}{}", row.table, row.table.empty() ? "" : ": ", fmt::join(row.key.parts, ", ")),
        row.sqlstate, short_time(row.at)};
    if (show == ShowValues::yes) cells.push_back(row.message);
    table.add(cells);
  }
  return table.text(style);
}

}  // namespace

int run_rejects(const Command& command, const RejectsArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Events events(command.output, Events::Stream::answer);
  Door migrator(command, arguments.retry ? Door::Redis::used : Door::Redis::unused, &events);
  std::optional<Resolution> resolution;
  if (arguments.retry) resolution = migrator->retry_rejects(ref);
  events.end();
  const auto rows = migrator->rejects(ref);
  const auto show = arguments.show_values ? ShowValues::yes : ShowValues::no;
  if (command.output.json()) {
    Json answer{{"migration", ref.name}};
    if (resolution) {
      answer["retried"] = {{"open", resolution->open},
                           {"closed", resolution->closed},
                           {"written", resolution->written},
                           {"complete", resolution->complete}};
    }
    answer["rejects"] = reject_array(rows, show);
    command.output.object(answer);
    return 0;
  }
  if (resolution) {
    command.output.print(fmt::format("{} closed, {} of them written; {} still open{}.\n",
                                     grouped(resolution->closed), grouped(resolution->written),
                                     grouped(resolution->open),
                                     resolution->complete ? "" : ", and more are left to look at"));
  }
  if (rows.empty()) {
    command.output.print("No row is rejected.\n");
    return 0;
  }
  command.output.print(reject_table(rows, show, command.output.style()));
  if (!arguments.retry) {
    print_commands(command, {.next = fmt::format("crossfade rejects {} --retry", ref.name), .rollback = ""});
  }
  return 0;
}

int run_misfits(const Command& command, const NameArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Door migrator(command, Door::Redis::unused);
  const auto rows = migrator->misfits(ref);
  if (command.output.json()) {
    command.output.object({{"migration", ref.name}, {"misfits", reject_array(rows, ShowValues::no)}});
  } else if (rows.empty()) {
    command.output.print("Every value can be carried to the other side.\n");
  } else {
    command.output.print(reject_table(rows, ShowValues::no, command.output.style()));
  }
  return 0;
}

}  // namespace crossfade::cli

// diffs: the rows in which the newest comparison found the two sides to differ.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "events.hpp"
#include "text_table.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

std::string key_text(const Key& key) { return fmt::format("{}", fmt::join(key.parts, ", ")); }

Json value_or_null(const SqlValue& value) { return value ? Json(*value) : Json(); }

Json difference_object(const DifferenceValues& found) {
  Json object{{"key", found.difference.key.parts},
              {"old_hash", found.difference.old_hash},
              {"new_hash", found.difference.new_hash},
              {"sqlstate", text_or_null(found.difference.sqlstate)},
              {"at", found.difference.at},
              {"repaired_at", text_or_null(found.difference.repaired_at)}};
  if (!found.table.empty()) object["table"] = found.table;
  if (found.values) {
    object["old"] = value_or_null(found.values->first);
    object["new"] = value_or_null(found.values->second);
  }
  return object;
}

void print_differences(const Command& command, const std::optional<PassRow>& newest,
                       const std::vector<DifferenceValues>& differences, Migrator::ShowValues show) {
  if (!newest) {
    command.output.print("No comparison has been made that counts now; there is nothing to show.\n");
    return;
  }
  if (newest->state == "running") {
    command.output.print(
        fmt::format("The newest comparison has not ended; {} differences so far.\n", differences.size()));
  } else if (differences.empty()) {
    command.output.print(fmt::format("The newest comparison, {} ago, found no difference in {} rows.\n",
                                     clock_time(newest->age_seconds), grouped(newest->rows_read)));
  }
  if (differences.empty()) return;
  const bool with_values = show == Migrator::ShowValues::yes;
  TextTable table({{"key"},
                   {with_values ? "old value" : "old hash"},
                   {with_values ? "new value" : "new hash"},
                   {"sqlstate"},
                   {"found"},
                   {"repaired"}});
  for (const DifferenceValues& found : differences) {
    const DifferenceRow& row = found.difference;
    const auto key = (found.table.empty() ? "" : found.table + ": ") + key_text(row.key);
    std::vector<std::string> cells{key,          row.old_hash,       row.new_hash,
                                   row.sqlstate, short_time(row.at), short_time(row.repaired_at)};
    if (with_values) {
      cells[1] = found.values ? found.values->first.value_or("NULL") : "(row is gone)";
      cells[2] = found.values ? found.values->second.value_or("NULL") : "";
    }
    table.add(cells);
  }
  command.output.print(table.text(command.output.style()));
}

}  // namespace

int run_diffs(const Command& command, const DiffsArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Events events(command.output, Events::Stream::answer);
  Door migrator(command, arguments.repair ? Door::Redis::used : Door::Redis::unused, &events);
  std::optional<std::int64_t> repaired;
  if (arguments.repair) repaired = migrator->repair(ref);
  events.end();
  const auto show = arguments.show_values ? Migrator::ShowValues::yes : Migrator::ShowValues::no;
  const auto newest = migrator->newest_comparison(ref);
  const auto differences = migrator->differences(ref, show);
  if (command.output.json()) {
    Json answer{{"migration", ref.name}};
    if (repaired) answer["repaired"] = *repaired;
    answer["comparison"] = newest ? Json{{"id", newest->id},
                                         {"direction", newest->direction},
                                         {"state", newest->state},
                                         {"ended_at", text_or_null(newest->ended_at)},
                                         {"rows_read", newest->rows_read}}
                                  : Json();
    answer["differences"] = Json::array();
    for (const DifferenceValues& found : differences)
      answer["differences"].push_back(difference_object(found));
    command.output.object(answer);
    return 0;
  }
  print_differences(command, newest, differences, show);
  if (repaired) {
    command.output.print(
        fmt::format("{} rows repaired. A repaired row counts as verified only after another full "
                    "comparison.\n",
                    grouped(*repaired)));
    print_commands(command, {.next = fmt::format("crossfade compare {}", ref.name), .rollback = ""});
  }
  return 0;
}

}  // namespace crossfade::cli

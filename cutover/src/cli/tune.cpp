#include <fmt/format.h>

#include "crossfade/core/tuning.hpp"
#include "text_table.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

std::vector<std::pair<std::string, std::string>> pairs_of(const std::vector<std::string>& settings) {
  std::vector<std::pair<std::string, std::string>> pairs;
  Tuning trial;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(ErrorCode::usage_error, "A setting is written KEY=VALUE.",
                  "For example: rows_per_second=2000. crossfade tune NAME shows all keys.");
    }
    pairs.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    set_tuning(trial, pairs.back().first,
               pairs.back().second);  // what is wrong is said before anybody connects
  }
  return pairs;
}

int show_keys(const Command& command, const MigrationRef& ref) {
  Door migrator(command, Door::Redis::unused);
  const Tuning now = migrator->tuning(ref);
  if (command.output.json()) {
    Json array = Json::array();
    for (const TuningKey& key : tuning_keys()) {
      array.push_back({{"key", key.name},
                       {"value", tuning_value(now, key.name)},
                       {"default", key.default_text},
                       {"bounds", key.bounds},
                       {"meaning", key.sentence}});
    }
    command.output.object({{"tuning", array}});
    return 0;
  }
  TextTable table({{"key"}, {"value"}, {"default"}, {"bounds"}, {"meaning"}});
  for (const TuningKey& key : tuning_keys()) {
    table.add({std::string(key.name), tuning_value(now, key.name), std::string(key.default_text),
               std::string(key.bounds), std::string(key.sentence)});
  }
  command.output.print(table.text(command.output.style()));
  return 0;
}

}  // namespace

int run_tune(const Command& command, const TuneArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  if (arguments.settings.empty()) return show_keys(command, ref);
  const auto settings = pairs_of(arguments.settings);
  Door migrator(command, Door::Redis::used);
  migrator->tune(ref, settings);
  if (command.output.json()) {
    Json values = Json::object();
    for (const auto& [key, value] : settings) values[key] = value;
    command.output.object({{"migration", ref.name}, {"tuned", values}});
    return 0;
  }
  for (const auto& [key, value] : settings)
    command.output.print(visible(fmt::format("{} = {}\n", key, value)));
  return 0;
}

}  // namespace crossfade::cli

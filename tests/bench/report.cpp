// Turns samples into the table and the JSON of a run.
//
//   crossfade_bench_report SAMPLES [--facts FILE] [--json FILE] [--markdown] [--exact]
//
// SAMPLES: one JSON object a line, {"case":"P1","side":"tool","pair":1,"value":12.5}, or, where a case cannot
// be measured, {"case":"P5","missing":"why"}. Sides are tool and rival; a case that is no ratio has only
// tool. A ratio is the median of the ratios of pairs: the two halves of a pair ran one after the other, so
// that what else the machine did meanwhile weighs on both.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::ordered_json;

enum class Result { ratio, median, greatest };
enum class Wanted { at_most, at_least, reported };

struct Case {
  std::string_view id, measure;
  Result result;
  std::string_view unit;  // empty for a ratio
  Wanted wanted;
  double target;
};

using enum Result;
using enum Wanted;

constexpr std::string_view kExact[] = {"P3.table",
                                       "P3.indexes",
                                       "P3.reader.table",
                                       "P3.reader.indexes",
                                       "P3.rival.table",
                                       "P3.rival.indexes",
                                       "P4.none",
                                       "P4.three",
                                       "P5",
                                       "P7.failed",
                                       "P9.rows",
                                       "P10.memory",
                                       "P12",
                                       "A.interleave.wal",
                                       "A.order.wal"};

// In the order of the page; docs/performance.md says what each is.
constexpr Case kCases[] = {
    {"P1", "backfill time / one UPDATE, no secondary index", ratio, "", at_most, 0.70},
    {"P1.b1000", "backfill time / batches of 1,000 by hand, no index", ratio, "", reported, 0},
    {"P1.b5000", "backfill time / batches of 5,000 by hand, no index", ratio, "", reported, 0},
    {"P1.peer", "backfill time / the peer given by CROSSFADE_BENCH_PEER", ratio, "", reported, 0},
    {"P2", "backfill time / one UPDATE, 3 indexes", ratio, "", at_most, 0.50},
    {"P2.b1000", "backfill time / batches of 1,000 by hand, 3 indexes", ratio, "", reported, 0},
    {"P2.b5000", "backfill time / batches of 5,000 by hand, 3 indexes", ratio, "", reported, 0},
    {"P3.table", "growth of the table, 3 indexes", median, "%", at_most, 20},
    {"P3.indexes", "growth of all indexes, 3 indexes", median, "%", at_most, 15},
    {"P3.reader.table", "growth of the table while a reader holds a snapshot", median, "%", reported, 0},
    {"P3.reader.indexes", "growth of all indexes while a reader holds a snapshot", median, "%", reported, 0},
    {"P3.rival.table", "growth of the table by one UPDATE, 3 indexes", median, "%", reported, 0},
    {"P3.rival.indexes", "growth of all indexes by one UPDATE, 3 indexes", median, "%", reported, 0},
    {"P4.none", "WAL / one UPDATE, no secondary index", ratio, "", at_most, 0.65},
    {"P4.three", "WAL / one UPDATE, 3 indexes", ratio, "", at_most, 0.50},
    {"P5", "uuid key, checkpoint every 3 s: WAL / key order without interleaving", ratio, "", at_most, 0.50},
    {"P6.p99", "p99 of TPC-B at half its maximum, with backfill / without", ratio, "", at_most, 1.25},
    {"P6.tps", "transactions per second kept", ratio, "", at_least, 0.97},
    {"P7.held_p50", "switch and way back under load: lock held, median", median, "ms", at_most, 5},
    {"P7.held_max", "the same, longest", greatest, "ms", at_most, 50},
    {"P7.failed", "failed client transactions", greatest, "", at_most, 0},
    {"P8.integer", "comparison / one count(*) FILTER, integer key, 1 worker", ratio, "", at_most, 1.15},
    {"P8.uuid", "the same, uuid key", ratio, "", at_most, 1.15},
    {"P8.two", "the same, integer key, 2 workers", ratio, "", at_most, 0.65},
    {"P9.rows", "after kill -9: rows written twice, in chunks per worker", greatest, "chunks", at_most, 1},
    {"P9.seconds", "after kill -9: time to the first new chunk", median, "s", at_most, 1},
    {"P10.cost", "cost per row, large table / small table", ratio, "", at_most, 1.15},
    {"P10.memory", "resident memory of the process", greatest, "MiB", at_most, 64},
    {"P11.cast", "TPC-B tps with capture / without, cast that cannot fail", ratio, "", at_least, 0.97},
    {"P11.expression", "the same, expression that can fail", ratio, "", at_least, 0.93},
    {"P11b.copy", "COPY with capture / without, cast", ratio, "", at_most, 2.0},
    {"P11b.update", "bulk UPDATE with capture / without, cast", ratio, "", at_most, 1.4},
    {"P11b.copy.expression", "COPY with capture / without, expression", ratio, "", reported, 0},
    {"P11b.update.expression", "bulk UPDATE with capture / without, expression", ratio, "", reported, 0},
    {"P12", "HOT share of the backfill's updates while pgbench runs", median, "%", at_least, 70},
    {"P13", "status with 10,000 units, beyond psql -c 'select 1'", median, "ms", at_most, 50},
    {"P14", "an empty chunk / a committed UPDATE of one row", ratio, "", at_most, 1.5},
    {"P15", "external transform, rows/s / the same in SQL", ratio, "", at_least, 0.5},
    {"A.interleave.time", "ablation: time, interleave = 1 / auto, 3 indexes", ratio, "", reported, 0},
    {"A.interleave.wal", "ablation: WAL, interleave = 1 / auto, 3 indexes", ratio, "", reported, 0},
    {"A.order.time", "ablation: time, order = physical / key", ratio, "", reported, 0},
    {"A.order.wal", "ablation: WAL, order = physical / key", ratio, "", reported, 0},
    {"A.workers.time", "ablation: time, workers = 1 / 2", ratio, "", reported, 0},
};

struct Samples {
  std::map<int, double> tool, rival;  // by pair
  std::string missing;
};

struct Outcome {
  std::optional<double> value;
  double low = 0, high = 0;  // of single samples or pairs
  std::size_t count = 0;
};

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> figures(const Case& one, const Samples& samples) {
  std::vector<double> found;
  for (const auto& [pair, value] : samples.tool) {
    if (one.result != ratio) {
      found.push_back(value);
    } else if (const auto rival = samples.rival.find(pair);
               rival != samples.rival.end() && rival->second > 0) {
      found.push_back(value / rival->second);
    }
  }
  return found;
}

Outcome outcome_of(const Case& one, const Samples& samples) {
  const auto found = figures(one, samples);
  if (found.empty()) return {};
  const auto [low, high] = std::ranges::minmax(found);
  return {one.result == greatest ? high : median_of(found), low, high, found.size()};
}

bool fulfilled(const Case& one, double value) {
  return one.wanted == at_most ? value <= one.target : value >= one.target;
}

std::string verdict(const Case& one, const Samples& samples, const Outcome& outcome) {
  if (!samples.missing.empty()) return samples.missing;
  if (!outcome.value) return "not measured";
  if (one.wanted == reported) return "reported";
  return fulfilled(one, *outcome.value) ? "ok" : "missed";
}

std::string target_text(const Case& one) {
  if (one.wanted == reported) return "";
  return fmt::format("{} {:g}{}{}", one.wanted == at_most ? "<=" : ">=", one.target,
                     one.unit.empty() ? "" : " ", one.unit);
}

std::string number(double value, std::string_view unit) {
  return unit.empty() ? fmt::format("{:.2f}", value) : fmt::format("{:.1f} {}", value, unit);
}

std::map<std::string, Samples> read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::map<std::string, Samples> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    const auto sample = Json::parse(line);
    const auto id = sample.at("case").get<std::string>();
    if (std::ranges::find(kCases, id, &Case::id) == std::end(kCases))
      throw std::runtime_error("a sample of unknown case " + id);
    auto& samples = cases[id];
    if (sample.contains("missing")) {
      samples.missing = sample.at("missing");
      continue;
    }
    auto& side = sample.at("side") == "rival" ? samples.rival : samples.tool;
    side[sample.at("pair").get<int>()] = sample.at("value").get<double>();
  }
  return cases;
}

using Line = std::vector<std::string>;  // id, measure, result, spread, target, verdict

enum class Which { all, exact };

std::vector<Line> table_of(const std::map<std::string, Samples>& cases, Which which) {
  std::vector<Line> lines;
  for (const auto& one : kCases) {
    const auto found = cases.find(std::string(one.id));
    if (found == cases.end()) continue;
    if (which == Which::exact && std::ranges::find(kExact, one.id) == std::end(kExact)) continue;
    const auto outcome = outcome_of(one, found->second);
    Line line{std::string(one.id),
              std::string(one.measure),
              "",
              "",
              target_text(one),
              verdict(one, found->second, outcome)};
    if (outcome.value) {
      line[2] = number(*outcome.value, one.unit);
      if (outcome.count > 1)
        line[3] = fmt::format("{} .. {}", number(outcome.low, one.unit), number(outcome.high, one.unit));
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void print(const std::vector<Line>& lines, bool markdown) {
  const Line head{"id", "measure", "result", "lowest .. highest", "target", ""};
  std::vector<std::size_t> widths(head.size());
  const auto widen = [&](const Line& line) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  };
  widen(head);
  std::ranges::for_each(lines, widen);
  const auto put = [&](const Line& line) {
    std::string text = markdown ? "|" : "";
    for (std::size_t i = 0; i < line.size(); ++i)
      text += markdown ? fmt::format(" {} |", line[i]) : fmt::format("{:<{}}  ", line[i], widths[i]);
    while (text.ends_with(' ')) text.pop_back();
    std::cout << text << '\n';
  };
  put(head);
  if (markdown) std::cout << "| --- | --- | --- | --- | --- | --- |\n";
  std::ranges::for_each(lines, put);
}

Json json_of(const std::map<std::string, Samples>& cases, Json facts) {
  auto& list = facts["cases"] = Json::array();
  for (const auto& one : kCases) {
    const auto found = cases.find(std::string(one.id));
    if (found == cases.end()) continue;
    const auto& samples = found->second;
    const auto outcome = outcome_of(one, samples);
    Json entry{{"id", one.id}, {"measure", one.measure}, {"unit", one.unit}, {"target", target_text(one)}};
    entry["result"] = outcome.value ? Json(*outcome.value) : Json(nullptr);
    entry["verdict"] = verdict(one, samples, outcome);
    entry["samples"] = Json::array();
    for (const auto* side : {&samples.tool, &samples.rival}) {
      for (const auto& [pair, value] : *side) {
        entry["samples"].push_back(
            {{"side", side == &samples.tool ? "tool" : "rival"}, {"pair", pair}, {"value", value}});
      }
    }
    list.push_back(std::move(entry));
  }
  return facts;
}

int run(const std::vector<std::string>& arguments) {
  std::string samples, facts, json;
  bool markdown = false;
  auto which = Which::all;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--markdown") {
      markdown = true;
    } else if (arguments[i] == "--exact") {
      which = Which::exact;
    } else if (arguments[i] == "--json" && i + 1 < arguments.size()) {
      json = arguments[++i];
    } else if (arguments[i] == "--facts" && i + 1 < arguments.size()) {
      facts = arguments[++i];
    } else {
      samples = arguments[i];
    }
  }
  if (samples.empty())
    throw std::runtime_error("usage: report SAMPLES [--facts FILE] [--json FILE] [--markdown] [--exact]");
  const auto cases = read(samples);
  print(table_of(cases, which), markdown);
  if (json.empty()) return 0;
  Json about = Json::object();
  if (!facts.empty()) {
    std::ifstream file(facts);
    about = Json::parse(file);
  }
  std::ofstream out(json);
  out << json_of(cases, std::move(about)).dump(2) << '\n';
  return out ? 0 : throw std::runtime_error("cannot write " + json);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& failure) {
    std::cerr << "crossfade_bench_report: " << failure.what() << '\n';
    return 2;
  }
}

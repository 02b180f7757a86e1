// How a backfill of a very large table would go: a discrete simulation of workers that take units, on a
// primary whose resources are shared. docs/scale.md says what it is for and what it leaves out.
//
//   crossfade_bench_simulate [--costs JSON_OF_RUN_SH] [--rows N] [--hosts N,N,...] [--workers N]
//                            [--cores N] [--wal-mb N] [--replay-mb N] [--units N] [--no-split] [--check]
//
// All workers that have a unit progress at the same rate, which the scarcest resource sets. Between two
// events the rate is constant, so events are ends of units, ends of claims and the death of a host, whatever
// the number of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using Json = nlohmann::json;

constexpr double kMostUnits = 10'000;  // the state's own bound, whatever the table
constexpr double kLeastRowsPerUnit = 5'000;
constexpr double kLeaseSeconds = 15;

// Of one row of the table, as run.sh measures them. The defaults are what its targets allow for
// pgbench_accounts without a secondary index: 0.65 of the 479 bytes that one UPDATE writes (P4), four of five
// updates HOT (P12); the time of a core is an assumption.
struct Costs {
  double cpu_seconds = 8e-6;     // of the server, per row written
  double wal_bytes = 311;        // per row written
  double chunk_seconds = 0.002;  // fixed, per chunk
  double rows_per_page = 61;
  double hot_share = 0.8;       // of the updates: those leave nothing to vacuum
  double target_seconds = 0.1;  // chunk_target
  std::string source = "built in";
};

// What the servers can do. A server of the size that holds such a table; every one can be given.
struct Limits {
  double cores = 16;            // of the primary, that the migration may use
  double wal_bytes = 200e6;     // per second, what the WAL's disk and the archiver take
  double replay_bytes = 100e6;  // per second, one process on the standby
  double vacuum_pages =
      100'000.0 / 22;  // per second: vacuum_cost_limit 200, delay 2 ms, a miss and a dirtied page
};

struct Resource {
  std::string name;
  double rows_per_second;  // at which it is used up
};

std::vector<Resource> resources(const Costs& costs, const Limits& limits) {
  return {{"cores", limits.cores / costs.cpu_seconds},
          {"WAL", limits.wal_bytes / costs.wal_bytes},
          {"replication", limits.replay_bytes / costs.wal_bytes},
          {"autovacuum", limits.vacuum_pages * costs.rows_per_page / (1 - costs.hot_share)}};
}

Resource scarcest(const Costs& costs, const Limits& limits) {
  const auto all = resources(costs, limits);
  return *std::ranges::min_element(all, {}, &Resource::rows_per_second);
}

// One worker alone: a core of the server, and the fixed part of each chunk.
double rate_alone(const Costs& costs) {
  const auto busy = 1 / costs.cpu_seconds;
  return busy * costs.target_seconds / (costs.target_seconds + costs.chunk_seconds);
}

struct Plan {
  double rows = 1e12;
  int hosts = 1, workers = 2;
  double units = 64;     // planned at most, as shadow/src/units.cpp does
  bool split = true;     // who finds no unit left takes half of the largest that is at work
  double dies_at = 0.5;  // when this share is done the first host dies; above 1: none does
};

struct Result {
  double seconds = 0, rows = 0, redone = 0, chunk_rows = 0, units = 0, claims = 0, largest_unit = 0;
  double tail_seconds = 0;   // from when the workers were last all at work
  double greatest_rate = 0;  // rows per second, of all
  std::string bottleneck;
};

// Units are quantiles of a sample, so they are not equal: up to a fifth more or less, from a fixed sequence.
std::vector<double> plan_units(double rows, double most) {
  const auto count = std::clamp(std::floor(rows / kLeastRowsPerUnit), 1.0, most);
  std::vector<double> units;
  double sum = 0;
  std::uint64_t state = 88172645463325252U;
  for (double n = 0; n < count; ++n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    units.push_back(0.8 + 0.4 * static_cast<double>(state % 1000) / 1000);
    sum += units.back();
  }
  for (auto& unit : units) unit *= rows / sum;
  return units;
}

class Simulation {
 public:
  Simulation(const Plan& plan, const Costs& costs, const Limits& limits)
      : plan_(plan), costs_(costs), cap_(scarcest(costs, limits)), units_(plan_units(plan.rows, plan.units)) {
    result_.units = static_cast<double>(units_.size());
    result_.largest_unit = *std::ranges::max_element(units_);
    left_ = plan.rows;
    for (int worker = 0; worker < plan.hosts * plan.workers; ++worker) idle_.push_back(worker);
  }

  Result run() {
    claim();
    while (!busy_.empty() || !claiming_.empty() || !freed_.empty()) step();
    result_.seconds = now_;
    if (first_without_work_) result_.tail_seconds = now_ - *first_without_work_;
    return result_;
  }

 private:
  struct Timed {
    double at;  // of the virtual work for a busy worker, of the clock otherwise
    int worker;
    double rows;
    bool operator<(const Timed& other) const { return at < other.at; }
    bool operator>(const Timed& other) const { return at > other.at; }
  };
  using Heap = std::priority_queue<Timed, std::vector<Timed>, std::greater<>>;

  // Rows that one worker does in a second while `count` are at work.
  double rate(std::size_t count) const {
    return std::min(rate_alone(costs_), cap_.rows_per_second / static_cast<double>(count));
  }

  void claim() {
    while (!idle_.empty() && !units_.empty()) {
      ++result_.claims;
      // One look at the unit rows; they fit into a few hundred pages.
      claiming_.push({now_ + 0.001 + 1e-6 * result_.units, idle_.back(), units_.back()});
      idle_.pop_back();
      units_.pop_back();
    }
    while (!idle_.empty() && take_half()) {
    }
    if (idle_.empty()) {
      first_without_work_.reset();
    } else if (!first_without_work_) {
      first_without_work_ = now_;
    }
  }

  // Of the unit that would end last; not of one that ends within ten chunks anyway.
  bool take_half() {
    if (!plan_.split || busy_.empty() || result_.units >= kMostUnits) return false;
    auto largest = *busy_.rbegin();
    const auto half = (largest.at - work_) / 2;
    if (half < 5 * rate_alone(costs_) * costs_.target_seconds) return false;
    busy_.erase(std::prev(busy_.end()));
    largest.at -= half;
    largest.rows -= half;
    busy_.insert(largest);
    ++result_.units;
    ++result_.claims;
    claiming_.push({now_ + 0.001 + 1e-6 * result_.units, idle_.back(), half});
    idle_.pop_back();
    return true;
  }

  void step() {
    const auto rate_now = busy_.empty() ? 0 : rate(busy_.size());
    const auto never = std::numeric_limits<double>::infinity();
    const auto ends = busy_.empty() ? never : now_ + (busy_.begin()->at - work_) / rate_now;
    const auto claimed = claiming_.empty() ? never : claiming_.top().at;
    const auto freed = freed_.empty() ? never : freed_.top().at;
    const auto done = plan_.rows - left_;
    const auto all = rate_now * static_cast<double>(busy_.size());
    const auto dies = plan_.dies_at > 1 || died_ || all <= 0
                          ? never
                          : now_ + std::max(0.0, plan_.dies_at * plan_.rows - done) / all;
    const auto next = std::min({ends, claimed, freed, dies});
    move_to(next, rate_now);
    if (next == dies) return die();
    if (next == freed) {
      units_.push_back(freed_.top().rows);
      freed_.pop();
    } else if (next == claimed) {
      busy_.insert({work_ + claiming_.top().rows, claiming_.top().worker, claiming_.top().rows});
      claiming_.pop();
    } else {
      idle_.push_back(busy_.begin()->worker);
      busy_.erase(busy_.begin());
    }
    claim();
  }

  void move_to(double moment, double rate_now) {
    const auto work = (moment - now_) * rate_now;
    const auto all = rate_now * static_cast<double>(busy_.size());
    if (all > result_.greatest_rate) {
      result_.greatest_rate = all;
      result_.chunk_rows = rate_now * costs_.target_seconds;
      result_.bottleneck = rate_now < rate_alone(costs_) ? cap_.name : "workers";
    }
    work_ += work;
    left_ -= work * static_cast<double>(busy_.size());
    result_.rows += work * static_cast<double>(busy_.size());
    now_ = moment;
  }

  bool on_first_host(int worker) const { return worker < plan_.workers; }

  // The chunk at hand is undone with its watermark; the rest of the unit is free when the lease is over.
  void die() {
    died_ = true;
    std::erase_if(busy_, [&](const Timed& one) {
      if (!on_first_host(one.worker)) return false;
      const auto undone = std::min(result_.chunk_rows, one.rows - (one.at - work_));
      result_.redone += undone;
      freed_.push({now_ + kLeaseSeconds, one.worker, one.at - work_ + undone});
      return true;
    });
    Heap claiming;
    for (; !claiming_.empty(); claiming_.pop()) {
      const auto& one = claiming_.top();
      if (on_first_host(one.worker)) {
        freed_.push({now_ + kLeaseSeconds, one.worker, one.rows});
      } else {
        claiming.push(one);
      }
    }
    claiming_ = std::move(claiming);
    std::erase_if(idle_, [&](int worker) { return on_first_host(worker); });
    // A host alone is started again.
    if (plan_.hosts == 1)
      for (int worker = 0; worker < plan_.workers; ++worker) idle_.push_back(worker);
    claim();
  }

  Plan plan_;
  Costs costs_;
  Resource cap_;
  std::vector<double> units_;  // not taken
  std::vector<int> idle_;
  std::multiset<Timed> busy_;
  Heap claiming_, freed_;
  double now_ = 0, work_ = 0, left_ = 0;
  bool died_ = false;
  std::optional<double> first_without_work_;
  Result result_;
};

double median_tool(const Json& run, const std::string& id) {
  std::vector<double> values;
  for (const auto& one : run.at("cases")) {
    if (one.at("id") != id) continue;
    for (const auto& sample : one.at("samples"))
      if (sample.at("side") == "tool") values.push_back(sample.at("value"));
  }
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Costs costs_of(const std::string& path) {
  Costs costs;
  if (path.empty()) return costs;
  std::ifstream file(path);
  const auto run = Json::parse(file);
  const double rows = run.at("rows"), cores = run.at("cores");
  costs.source = fmt::format("{} rows, PostgreSQL {}, {}", rows, run.at("postgresql").get<std::string>(),
                             run.at("date").get<std::string>());
  // Two workers keep the cores of the machine busy, so this is the most that a row can have cost.
  if (const auto seconds = median_tool(run, "P1"); seconds > 0) costs.cpu_seconds = seconds * cores / rows;
  if (const auto wal = median_tool(run, "P4.none"); wal > 0) costs.wal_bytes = wal / rows;
  if (const auto chunk = median_tool(run, "P14"); chunk > 0) costs.chunk_seconds = chunk / 1000;
  if (const auto hot = median_tool(run, "P12"); hot > 0) costs.hot_share = std::clamp(hot / 100, 0.0, 0.99);
  return costs;
}

std::string span(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} d", seconds / 86400);
}

void print(const Plan& asked, const std::vector<int>& hosts, const Costs& costs, const Limits& limits) {
  std::cout << fmt::format(
      "costs: {}: {:.2f} us of the server, {:.0f} bytes of WAL per row, {:.2f} ms per chunk\n", costs.source,
      costs.cpu_seconds * 1e6, costs.wal_bytes, costs.chunk_seconds * 1000);
  for (const auto& one : resources(costs, limits))
    std::cout << fmt::format("{} is used up at {:.0f} rows/s\n", one.name, one.rows_per_second);
  std::cout << "\n| rows | hosts | workers | rows/s | time | set by | units | rows per unit | claims | unit "
               "updates/s |"
               " heartbeats/s | tail | done twice |\n"
               "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const double rows : {1e9, 1e10, 1e11, 1e12}) {
    if (rows > asked.rows) break;
    for (const int count : hosts) {
      Plan plan = asked;
      plan.rows = rows, plan.hosts = count;
      const auto r = Simulation(plan, costs, limits).run();
      std::cout << fmt::format(
          "| {:.0e} | {} | {} | {:.0f} | {} | {} | {:.0f} | {:.1e} | {:.0f} | {:.0f} | {} | {} | {:.0f} |\n",
          rows, count, count * plan.workers, rows / r.seconds, span(r.seconds), r.bottleneck, r.units,
          rows / r.units, r.claims, count * plan.workers / costs.target_seconds, count, span(r.tail_seconds),
          r.redone);
    }
  }
}

// What must hold of every run; prints what does not.
int check(const Costs& costs, const Limits& limits) {
  int broken = 0;
  const auto require = [&](bool holds, const std::string& what) {
    if (holds) return;
    std::cout << what << '\n';
    ++broken;
  };
  const auto cap = scarcest(costs, limits).rows_per_second;
  for (const double rows : {1e4, 1e6, 1e9, 1e12}) {
    double before = std::numeric_limits<double>::infinity();
    for (const int hosts : {1, 10, 100}) {
      for (const double dies_at : {0.5, 2.0}) {
        const Plan plan{.rows = rows, .hosts = hosts, .dies_at = dies_at};
        const auto r = Simulation(plan, costs, limits).run();
        const auto which = fmt::format("{:.0e} rows on {} hosts, death at {}: ", rows, hosts, dies_at);
        const auto near = [&](double a, double b) { return std::abs(a - b) <= 1e-6 * rows; };
        require(r.units >= 1 && r.units <= kMostUnits, which + "more than 10,000 units");
        require(near(r.rows, rows + r.redone), which + "rows were left out or done twice");
        require(r.redone <= rate_alone(costs) * costs.target_seconds * plan.workers * (1 + 1e-9),
                which + "a death cost more than a chunk per worker");
        require(dies_at > 1 ? r.redone == 0 : true, which + "something was done twice and nobody died");
        require(r.greatest_rate <= cap * (1 + 1e-9), which + "faster than the scarcest resource");
        require(r.seconds * cap >= rows * (1 - 1e-9), which + "done before the scarcest resource allows it");
        require(r.claims <= r.units + plan.workers, which + "more claims than units");
        const auto longest = r.largest_unit / std::min(rate_alone(costs), cap / (plan.hosts * plan.workers));
        require(r.tail_seconds <= longest + kLeaseSeconds + 1, which + "a tail longer than one unit");
        if (dies_at > 1) {
          require(r.seconds <= before * (1 + 1e-3) + 1, which + "slower than with fewer hosts");
          before = r.seconds;
        }
      }
    }
  }
  return broken == 0 ? 0 : 1;
}

int run(const std::vector<std::string>& arguments) {
  Plan plan;
  Limits limits;
  std::vector<int> hosts{1, 10, 100};
  std::string costs_file;
  bool checking = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& name = arguments[i];
    if (name == "--check") {
      checking = true;
      continue;
    }
    if (name == "--no-split") {
      plan.split = false;
      continue;
    }
    if (i + 1 == arguments.size()) throw std::runtime_error(name + " needs a value");
    const auto& value = arguments[++i];
    if (name == "--costs")
      costs_file = value;
    else if (name == "--rows")
      plan.rows = std::stod(value);
    else if (name == "--units")
      plan.units = std::clamp(std::stod(value), 1.0, kMostUnits);
    else if (name == "--workers")
      plan.workers = std::stoi(value);
    else if (name == "--cores")
      limits.cores = std::stod(value);
    else if (name == "--wal-mb")
      limits.wal_bytes = std::stod(value) * 1e6;
    else if (name == "--replay-mb")
      limits.replay_bytes = std::stod(value) * 1e6;
    else if (name == "--hosts") {
      hosts.clear();
      for (std::size_t at = 0; at < value.size(); at = std::min(value.find(',', at), value.size() - 1) + 1)
        hosts.push_back(std::stoi(value.substr(at)));
    } else {
      throw std::runtime_error("there is no " + name);
    }
  }
  const auto costs = costs_of(costs_file);
  if (checking) return check(costs, limits);
  print(plan, hosts, costs, limits);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const std::exception& failure) {
    std::cerr << "crossfade_bench_simulate: " << failure.what() << '\n';
    return 2;
  }
}

#include "support/lifecycle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"
#include "support/wait_until.hpp"

namespace crossfade::test {
namespace {

// "Not yet", answered because of what the application happens to do; the next call may succeed.
bool says_not_yet(const Error& error) {
  return error.code() == ErrorCode::not_ready || error.code() == ErrorCode::lock_attempts_exhausted ||
         error.code() == ErrorCode::old_snapshot;
}

template <typename Call>
void until_done(Call call) {
  constexpr int kTries = 20;
  for (int i = 1;; ++i) {
    try {
      return call();
    } catch (const Error& error) {
      if (!says_not_yet(error) || i == kTries) throw;
    }
  }
}

std::string filled(const std::string& pattern, const std::string& place, const std::string& with) {
  std::string text = pattern;
  for (auto at = text.find(place); at != std::string::npos; at = text.find(place, at + with.size())) {
    text.replace(at, place.size(), with);
  }
  return text;
}

std::string lines_of(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) text += fmt::format("\n  {}", fmt::join(row, " | "));
  return text;
}

std::vector<std::string> missing_from(const std::vector<std::string>& all,
                                      const std::vector<std::string>& from) {
  std::vector<std::string> missing;
  std::ranges::set_difference(from, all, std::back_inserter(missing));
  return missing;
}

}  // namespace

LifecycleScenario integer_scenario(const std::string& from, const std::string& to) {
  LifecycleScenario s;
  s.spec = fmt::format(
      "[migration]\nname = \"m\"\ntable = \"public.t\"\n[[column]]\nname = \"b\"\ntype = \"{}\"\n"
      "[tuning]\nchunk_target = \"10ms\"\n[drop]\nsoak = \"0s\"\n",
      to);
  s.twin_setup = fmt::format("ALTER TABLE t_twin ALTER b TYPE {}", to);
  s.live.name = "public.t";
  s.live.twin = "public.t_twin";
  s.live.key = {"id"};
  s.live.column = "b";
  s.live.other = "n";
  s.live.key_of = [](std::int64_t n) { return std::vector<std::string>{std::to_string(n)}; };
  const std::int64_t most = from == "smallint" ? 32767 : 2147483647;
  s.live.value = [most](Random& random, Values values) {
    const auto range = values == Values::wide ? 10 * most : most;
    return std::to_string(std::uniform_int_distribution<std::int64_t>(-range, range)(random));
  };
  s.forward = "{old}::" + to;
  s.backward = "{new}::" + from;
  s.misfit = fmt::format("({{new}} > {} OR {{new}} < -{})", most, most + 1);
  return s;
}

Lifecycle::Lifecycle(std::string dsn, LifecycleScenario scenario)
    : dsn_(std::move(dsn)), scenario_(std::move(scenario)), owner_(dsn_) {
  const auto& live = scenario_.live;
  name_ = parse_spec(scenario_.spec, "spec").name;
  owner_.run(scenario_.setup);
  owner_.run(
      fmt::format("CREATE TABLE {0} (LIKE {1} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES);"
                  "INSERT INTO {0} SELECT * FROM {1}",
                  live.twin, live.name));
  owner_.run(scenario_.twin_setup);
  migrator_ = std::make_unique<Migrator>(
      MigratorOptions{.dsn = dsn_, .redis = scenario_.redis, .operator_name = "ada", .host = "lovelace"});
  migrator_->init();
  before_ = describe_catalog(owner_, live.name);
  const auto writer_dsn = scenario_.writer_dsn.empty() ? dsn_ : scenario_.writer_dsn;
  writers_ = std::make_unique<LiveWriters>(writer_dsn, live, scenario_.operations, scenario_.writers);
}

Lifecycle::~Lifecycle() = default;

void Lifecycle::start() {
  if (const auto plan = migrator_->plan({scenario_.spec}); plan.statements.empty()) {
    throw std::runtime_error("the plan has no statements");
  }
  migrator_->start({scenario_.spec}, scenario_.accept);
  check();
}

void Lifecycle::advance_to(Phase phase) {
  NextOptions options;
  options.until = phase;
  if (phase == Phase::dropped) options.confirm = name_;
  until_done([&] { migrator_->next(name_, options); });
  const auto now = status();
  if (now.phase != phase || now.status != Status::settled) {
    throw std::runtime_error(
        fmt::format("in {} ({}) instead of {}", to_text(now.phase), to_text(now.status), to_text(phase)));
  }
  if (phase == Phase::switched) ever_switched_ = true;
  check();
}

void Lifecycle::roll_back() {
  const auto from = status().phase;
  if (from == Phase::switched) return roll_back_from_switched();
  until_done([&] { migrator_->rollback(name_); });
  if (status().phase != *rollback_phase(from)) throw std::runtime_error("the rollback led elsewhere");
  check();
}

void Lifecycle::roll_back_to(Phase phase) {
  if (status().phase == Phase::switched) roll_back();
  until_done([&] {
    if (status().phase != phase) migrator_->rollback(name_, {.to = phase, .accept = {}});
  });
  check();
}

void Lifecycle::make_misfits() {
  if (scenario_.misfit.empty()) return;
  const auto& live = scenario_.live;
  const auto misfits = fmt::format("SELECT count(*) >= 3 FROM {} WHERE {}", live.name,
                                   filled(scenario_.misfit, "{new}", live.column));
  writers_->set_values(Values::wide);
  wait_until([&] { return owner_.value(misfits) == "t"; }, "values that the old column cannot hold");
  check();
  writers_->set_values(Values::narrow);
}

// Refused while something would be lost; then either that is accepted, or the application takes it back.
void Lifecycle::roll_back_from_switched() {
  const auto& live = scenario_.live;
  make_misfits();
  if (!scenario_.misfit.empty() || !scenario_.accept_rollback.empty()) {
    try {
      until_done([&] { migrator_->rollback(name_); });
      throw std::runtime_error("a rollback that loses something was not refused");
    } catch (const Error& error) {
      if (error.code() != ErrorCode::rollback_refused) throw;
    }
  }
  const auto misfit = filled(scenario_.misfit, "{new}", live.column);
  const bool accepted = !scenario_.accept_rollback.empty();
  const auto take_back = [&](const std::string& table, const std::string& value) {
    if (misfit.empty()) return;
    owner_.run(fmt::format("UPDATE {} SET {} = {} WHERE {}", table, live.column, value, misfit));
  };
  if (!accepted) {
    writers_->pause();
    take_back(live.name, "DEFAULT");
    take_back(live.twin, "DEFAULT");
    writers_->resume();
  }
  until_done([&] { migrator_->rollback(name_, {.to = {}, .accept = scenario_.accept_rollback}); });
  if (accepted) {
    writers_->pause();
    take_back(live.twin, "NULL");
    writers_->resume();
  }
  if (status().phase != Phase::compare) throw std::runtime_error("the rollback led elsewhere");
  check();
}

void Lifecycle::roll_back_in_the_middle_of_the_sweep() {
  Migrator other({.dsn = dsn_, .redis = scenario_.redis, .operator_name = "grace", .host = "hopper"});
  // At this rate the sweep would outlast the patience of the rollback.
  const auto rate = std::to_string(std::max<std::int64_t>(scenario_.live.rows / 30, 1));
  migrator_->tune(name_, {{"rows_per_second", rate}});
  std::string ended;
  {
    const std::jthread sweep([&] {
      try {
        migrator_->next(name_, {.until = Phase::backfill, .confirm = {}, .accept = {}});
        ended = "as if nothing had happened";
      } catch (const Error& error) {
        ended = std::string(error.name());
      }
    });
    wait_until(
        [&] {
          return owner_.value("SELECT count(*) > 0 FROM crossfade.unit WHERE chunks > 0 AND NOT done") == "t";
        },
        "a chunk of a sweep that goes on");
    other.rollback(name_);
  }
  migrator_->tune(name_, {{"rows_per_second", "0"}});
  if (ended != "superseded" && ended != "interrupted") throw std::runtime_error("the sweep ended: " + ended);
  if (status().phase != Phase::dry_run) throw std::runtime_error("the rollback led elsewhere");
  check();
}

std::string Lifecycle::shadow_column() {
  const auto found = owner_.rows(fmt::format(
      "SELECT quote_ident(a.attname) FROM pg_attribute a WHERE a.attrelid = {0}::regclass AND"
      " a.attnum > 0 AND NOT a.attisdropped AND a.attname NOT IN (SELECT b.attname FROM pg_attribute b"
      " WHERE b.attrelid = {1}::regclass AND b.attnum > 0)",
      quote_literal(scenario_.live.name), quote_literal(scenario_.live.twin)));
  return found.empty() ? "" : found.at(0).at(0);
}

// A condition on a row of the table, true when its two sides are in step; empty when there is one side only.
std::string Lifecycle::step_check_sql(Phase phase) {
  const auto other = shadow_column();
  if (has_capture(phase) == other.empty())
    throw std::runtime_error("the table has not the columns of its phase");
  if (other.empty()) return "";
  const auto& column = scenario_.live.column;
  const auto same = [](const std::string& a, const std::string& b) {
    return fmt::format("(({})::text IS NOT DISTINCT FROM ({})::text)", a, b);
  };
  if (phase != Phase::switched) return same(filled(scenario_.forward, "{old}", column), other);
  if (scenario_.backward.empty()) return "";
  const auto in_step = fmt::format("({} OR {})", same(filled(scenario_.forward, "{old}", other), column),
                                   same(filled(scenario_.backward, "{new}", column), other));
  if (scenario_.misfit.empty()) return in_step;
  return fmt::format("CASE WHEN {} THEN {} IS NULL ELSE {} END", filled(scenario_.misfit, "{new}", column),
                     other, in_step);
}

std::string Lifecycle::twin_check_sql(Phase phase) {
  const auto& live = scenario_.live;
  std::string others;
  for (const auto& row : owner_.rows(fmt::format(
           "SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = {}::regclass AND attnum > 0"
           " AND NOT attisdropped ORDER BY attnum",
           quote_literal(live.twin)))) {
    if (row[0] != live.column) others += row[0] + "::text, ";
  }
  const auto raw = live.column + "::text";
  const auto converted = fmt::format("({})::text", filled(scenario_.forward, "{old}", live.column));
  std::string of_table = raw, of_twin = raw;
  if (phase == Phase::switched || phase == Phase::dropped) {
    of_twin = converted;
  } else if (ever_switched_ && !scenario_.backward.empty()) {
    // A value that was written while the new column ruled has come back through it.
    of_table = of_twin = fmt::format("coalesce({}, {})", converted, raw);
  }
  return fmt::format(
      "WITH a AS (SELECT {0}{1} FROM {2}), b AS (SELECT {0}{3} FROM {4})"
      " SELECT * FROM (SELECT 'only in the table', * FROM (TABLE a EXCEPT ALL TABLE b) x"
      " UNION ALL SELECT 'only in the twin', * FROM (TABLE b EXCEPT ALL TABLE a) y) z LIMIT 10",
      others, of_table, live.name, of_twin, live.twin);
}

void Lifecycle::check() {
  writers_->check();
  const auto now = status();
  const auto phase = now.phase;
  if (const auto differing = owner_.rows(twin_check_sql(phase)); !differing.empty()) {
    throw std::runtime_error(fmt::format("in {} the table is not what the application wrote:{}",
                                         to_text(phase), lines_of(differing)));
  }
  const auto in_step = step_check_sql(phase);
  // After a switch back the replay has yet to come.
  if (in_step.empty() || (phase == Phase::compare && now.status != Status::settled)) return;
  const auto apart = owner_.rows(
      fmt::format("SELECT * FROM {} WHERE ({}) IS NOT TRUE LIMIT 10", scenario_.live.name, in_step));
  if (!apart.empty()) {
    throw std::runtime_error(fmt::format("in {} the two sides differ:{}", to_text(phase), lines_of(apart)));
  }
}

void Lifecycle::check_restored() {
  const auto now = describe_catalog(owner_, scenario_.live.name);
  const auto added = missing_from(before_, now), lost = missing_from(now, before_);
  if (!added.empty() || !lost.empty()) {
    throw std::runtime_error(fmt::format("the catalog is not what it was\n  lost: {}\n  added: {}",
                                         fmt::join(lost, "\n  lost: "), fmt::join(added, "\n  added: ")));
  }
  const auto left = owner_.rows("SELECT proname FROM pg_proc WHERE pronamespace = 'crossfade'::regnamespace");
  if (!left.empty()) throw std::runtime_error("functions are left:" + lines_of(left));
}

void Lifecycle::walk_there_and_back() {
  start();
  roll_back();
  check_restored();
  start();
  advance_to(Phase::dry_run);
  roll_back_in_the_middle_of_the_sweep();
  roll_back();
  for (const auto phase :
       {Phase::dry_run, Phase::backfill, Phase::dual_write, Phase::compare, Phase::switched}) {
    advance_to(phase);
    roll_back();
    advance_to(phase);
  }
  roll_back_to(Phase::rolled_back);
  check_restored();
}

void Lifecycle::finish() {
  if (is_closed(status().phase)) start();
  advance_to(Phase::switched);
  advance_to(Phase::dropped);
  writers_->stop();
  check();
  const auto now = describe_catalog(owner_, scenario_.live.name);
  auto changed = missing_from(before_, now);
  const auto lost = missing_from(now, before_);
  changed.insert(changed.end(), lost.begin(), lost.end());
  const auto own = fmt::format("column {} ", scenario_.live.column);
  for (const auto& line : changed) {
    if (!line.starts_with(own)) throw std::runtime_error("the catalog changed: " + line);
  }
}

}  // namespace crossfade::test

// A group of migrations switches as one: what each of them does is cut into stages, and these are put
// together here.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "crossfade/core/identifier.hpp"
#include "crossfade/phases/phase_handler.hpp"

namespace crossfade {

namespace {

constexpr Stage kUnderLock[] = {
    Stage::probe_before, Stage::triggers_off, Stage::foreign_keys_off, Stage::let_go,     Stage::keys_off,
    Stage::rename,       Stage::carry,        Stage::carry_twins,      Stage::release,    Stage::follow,
    Stage::foreign_keys, Stage::capture,      Stage::user_triggers,    Stage::probe_after};

bool has(const Crossing& crossing, const SwitchPart& effect) {
  return std::ranges::any_of(crossing.parts, [&](const SwitchPart& other) {
    return other.stage == effect.stage && other.sql == effect.sql;
  });
}

// What several of them have belongs to the first. Of each, all that stands on a shared object is shared too
// (views on a view, for example): so the first takes away whole stacks, the next what is left, and what is
// made again is made in the opposite order.
std::string stage_sql(const std::vector<Crossing>& crossings, Stage stage) {
  std::vector<std::string> of_each;
  for (std::size_t i = 0; i < crossings.size(); ++i) {
    std::string part;
    for (const auto& effect : crossings[i].parts) {
      if (effect.stage != stage) continue;
      const auto first = std::ranges::find_if(crossings, [&](const auto& c) { return has(c, effect); });
      if (static_cast<std::size_t>(first - crossings.begin()) == i) part += effect.sql;
    }
    of_each.push_back(std::move(part));
  }
  if (stage == Stage::follow) std::ranges::reverse(of_each);
  std::string sql;
  for (const auto& part : of_each) sql += part;
  return sql;
}

}  // namespace

std::string before_lock_sql(const std::vector<Crossing>& crossings) {
  std::string recheck;
  for (const auto& crossing : crossings) recheck += crossing.views_recheck;
  const auto sql = stage_sql(crossings, Stage::views_off) + stage_sql(crossings, Stage::sequences);
  if (recheck.empty()) return sql;
  return fmt::format("DO {};\n{}", quote_literal("BEGIN\n" + recheck + "END"), sql);
}

std::string under_lock_sql(const std::vector<Crossing>& crossings) {
  std::string sql;
  for (const auto stage : kUnderLock) sql += stage_sql(crossings, stage);
  std::vector<const Crossing*> in_order;
  for (const auto& crossing : crossings) in_order.push_back(&crossing);
  std::ranges::stable_sort(in_order, {}, &Crossing::position);
  for (const auto* crossing : in_order) sql += crossing->statements;
  return sql;
}

}  // namespace crossfade

#include "hooks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "crossfade/core/error.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/printable.hpp"
#include "crossfade/core/tuning.hpp"
#include "hook_command.hpp"

namespace crossfade {

namespace {

std::optional<std::string> command_of(const Spec& spec, const std::string& hook) {
  const auto found = std::ranges::find(spec.hooks, hook, [](const auto& h) { return h.first; });
  return found == spec.hooks.end() ? std::nullopt : std::optional(found->second);
}

HookResult run(const Spec& spec, const std::string& hook, const std::string& command,
               const HookChange& change, const HookContext& context) {
  if (context.listener != nullptr)
    context.listener->on_notice(fmt::format("hook {}: {}", hook, printable(command, 200)));
  const HookFacts facts{{"CROSSFADE_HOOK", hook},
                        {"CROSSFADE_MIGRATION", spec.name},
                        {"CROSSFADE_ID", change.id},
                        {"CROSSFADE_TABLE", spec.table.display()},
                        {"CROSSFADE_COLUMN", display_identifier(spec.columns.front().name)},
                        {"CROSSFADE_FROM", change.from},
                        {"CROSSFADE_TO", std::string(to_text(change.to))},
                        {"CROSSFADE_EVENT", change.event},
                        {"CROSSFADE_OPERATOR", context.options.operator_name}};
  auto result = run_hook_command(command, facts, spec.hook_timeout, context.check);
  log::write(result.succeeded() ? log::Level::info : log::Level::warn, "hook",
             {{"hook", hook}, {"result", result.text()}});
  return result;
}

std::string sentence(const Spec& spec, const std::string& hook, const std::string& command,
                     const HookResult& result) {
  const auto how = result.end == HookResult::End::timed_out
                       ? fmt::format("ran longer than {} and was ended", format_duration(spec.hook_timeout))
                       : "ended with " + result.text();
  const auto said = result.last_lines.empty() ? std::string() : "; it said: " + result.last_lines;
  return fmt::format("hook {} ({}) {}{}", hook, printable(command, 200), how, said);
}

void record(SqlSession& session, const MigrationId& id, const std::string& hook, const HookResult& result,
            const std::optional<std::int64_t>& transition, const HookContext& context) {
  nlohmann::json detail{{"hook", hook}, {"result", result.text()}};
  if (transition) detail["transition"] = *transition;
  StateStore(session).record_action(id, "hook", context.options.operator_name, context.options.host,
                                    detail.dump());
}

std::optional<HookResult> before(const Spec& spec, const HookChange& change, const HookContext& context,
                                 std::string& told) {
  const auto hook = "before_" + std::string(to_text(change.to));
  const auto command = command_of(spec, hook);
  if (!command) return std::nullopt;
  auto result = run(spec, hook, *command, change, context);
  told = sentence(spec, hook, *command, result);
  return result;
}

Error veto(const Spec& spec, const std::string& told) {
  return {ErrorCode::hook_failed, told + "; the phase was not changed",
          "correct what the command says, and run crossfade again", spec.name};
}

}  // namespace

void run_before_hook(const Spec& spec, const HookChange& change, const HookContext& context) {
  std::string told;
  const auto result = before(spec, change, context, told);
  if (result && !result->succeeded()) throw veto(spec, told);
}

void run_before_hook(SqlSession& session, const MigrationRow& row, const Spec& spec, const HookChange& change,
                     const HookContext& context) {
  std::string told;
  const auto result = before(spec, change, context, told);
  if (!result) return;
  record(session, row.id, "before_" + std::string(to_text(change.to)), *result, std::nullopt, context);
  if (!result->succeeded()) throw veto(spec, told);
}

void run_owed_hook(SqlSession& session, const MigrationRow& row, const HookContext& context) {
  const auto spec = parse_spec(row.spec_text, row.name);
  if (spec.hooks.empty()) return;
  // A recapture stands there too, but enters no phase. Without a row the migration was only registered.
  const auto owed = session.exec(
      "WITH newest AS (SELECT t.number, t.from_phase, t.to_phase, t.event FROM crossfade.transition t"
      " WHERE t.migration_id = $1 AND t.from_phase <> t.to_phase ORDER BY t.number DESC LIMIT 1),"
      " change AS (SELECT * FROM newest UNION ALL SELECT 0, '', 'planned', 'start'"
      "  WHERE NOT EXISTS (SELECT FROM newest))"
      " SELECT c.number, c.from_phase, c.to_phase, c.event FROM change c WHERE NOT EXISTS (SELECT"
      " FROM crossfade.action a WHERE a.migration_id = $1 AND a.action = 'hook'"
      " AND a.detail ->> 'transition' = c.number::text)",
      {row.id.text});
  if (owed.empty()) return;
  const auto to = phase_from_text(text_of(owed[0][2]));
  if (!to) return;
  const auto hook = "after_" + std::string(to_text(*to));
  const auto command = command_of(spec, hook);
  if (!command) return;
  const HookChange change{text_of(owed[0][1]), text_of(owed[0][3]), *to, row.id.text};
  const auto result = run(spec, hook, *command, change, context);
  record(session, row.id, hook, result, int_of(owed[0][0]), context);
  if (!result.succeeded() && context.listener != nullptr) {
    context.listener->on_notice(sentence(spec, hook, *command, result) +
                                "; the phase was changed all the same");
  }
}

}  // namespace crossfade

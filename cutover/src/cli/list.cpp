// list and history: every migration of the database, and what happened to one.
#include <fmt/format.h>

#include <algorithm>

#include "status_text.hpp"
#include "text_table.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

Json brief_object(const StatusReport& report) {
  return {{"migration", report.migration},
          {"id", report.id},
          {"table", report.table},
          {"registered_table", report.registered_table},
          {"mode", report.mode},
          {"phase", to_text(report.phase)},
          {"status", to_text(report.status)},
          {"reason", text_or_null(report.reason)},
          {"epoch", report.epoch},
          {"since", report.since},
          {"operator", report.operator_name},
          {"version", report.version},
          {"runner", text_or_null(report.runner)}};
}

// "running" says that there is work left, not that it is done.
std::string shown_status(const StatusReport& report) {
  const bool idle = report.status == Status::running && report.runner.empty();
  return std::string(to_text(report.status)) + (idle ? ", nobody at it" : "");
}

Json transition_object(const TransitionRecord& record) {
  return {{"number", record.number},
          {"at", record.at},
          {"event", record.event},
          {"from", text_or_null(record.from)},
          {"to", text_or_null(record.to)},
          {"operator", record.operator_name},
          {"host", record.host},
          {"version", record.version},
          {"evidence", record.evidence.empty() ? Json::object() : parsed(record.evidence)}};
}

Json action_object(const ActionRecord& record) {
  return {{"at", record.at},
          {"action", record.action},
          {"phase", record.phase},
          {"operator", record.operator_name},
          {"host", record.host},
          {"version", record.version},
          {"detail", parsed(record.detail)}};
}

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json attempt_object(const LockAttempt& attempt) {
  return {{"at", attempt.at},
          {"to", attempt.to_phase},
          {"attempt", attempt.attempt},
          {"outcome", attempt.outcome},
          {"transition", attempt.transition == 0 ? Json() : Json(attempt.transition)},
          {"lock_wait_ms", number_or_null(attempt.lock_wait_ms)},
          {"lock_held_ms", number_or_null(attempt.lock_held_ms)},
          {"sessions_waited", attempt.sessions_waited},
          {"longest_wait_ms", number_or_null(attempt.longest_wait_ms)},
          {"blockers", parsed(attempt.blockers)}};
}

// What the change cost the application; empty when it locked nothing.
std::string pause_text(const std::vector<LockAttempt>& attempts, std::int64_t transition) {
  const auto found = std::ranges::find(attempts, transition, &LockAttempt::transition);
  if (found == attempts.end()) return "";
  std::string text;
  if (found->lock_held_ms) text += fmt::format("{:.1f} ms", *found->lock_held_ms);
  if (found->sessions_waited > 0) {
    text += fmt::format(", {} waited, at most {:.1f} ms", found->sessions_waited,
                        found->longest_wait_ms.value_or(0));
  }
  return text;
}

// {"attempts":2,"held":"1 ms"} as attempts=2 held=1 ms; what is nested stays JSON.
std::string evidence_text(const std::string& evidence) {
  if (evidence.empty()) return "";
  const Json object = parsed(evidence);
  if (!object.is_object()) return evidence;
  std::string text;
  for (const auto& [key, value] : object.items()) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace

int run_list(const Command& command) {
  Door migrator(command, Door::Redis::unused);
  const auto reports = migrator->list();
  if (command.output.json()) {
    Json array = Json::array();
    for (const StatusReport& report : reports) array.push_back(brief_object(report));
    command.output.object(array);
    return 0;
  }
  if (reports.empty()) {
    command.output.print("There is no migration yet.\n");
    print_commands(command, {.next = "crossfade plan SPEC", .rollback = ""});
    return 0;
  }
  TextTable table({{"name"}, {"table"}, {"phase"}, {"status"}, {"since"}, {"runner"}, {"id"}});
  for (const StatusReport& report : reports) {
    table.add({report.migration, table_text(report), std::string(to_text(report.phase)), shown_status(report),
               short_time(report.since), report.runner, report.id});
  }
  command.output.print(table.text(command.output.style()));
  return 0;
}

int run_history(const Command& command, const NameArguments& arguments) {
  const MigrationRef ref = reference(command, arguments.name);
  Door migrator(command, Door::Redis::unused);
  const auto records = migrator->history(ref);
  const auto actions = migrator->actions(ref);
  const auto attempts = migrator->lock_attempts(ref);
  if (command.output.json()) {
    Json changes = Json::array(), acts = Json::array(), locks = Json::array();
    for (const TransitionRecord& record : records) changes.push_back(transition_object(record));
    for (const ActionRecord& record : actions) acts.push_back(action_object(record));
    for (const LockAttempt& attempt : attempts) locks.push_back(attempt_object(attempt));
    command.output.object(
        {{"migration", ref.name}, {"transitions", changes}, {"actions", acts}, {"lock_attempts", locks}});
    return 0;
  }
  TextTable table({{"#", TextTable::Align::right},
                   {"at"},
                   {"event"},
                   {"from"},
                   {"to"},
                   {"by"},
                   {"locked"},
                   {"evidence"}});
  auto action = actions.begin();
  const auto add_actions_until = [&](const std::string* at) {
    // Both lists are in order, and both times are PostgreSQL's, in UTC.
    for (; action != actions.end() && (at == nullptr || action->at < *at); ++action) {
      table.add({"", short_time(action->at), action->action, action->phase, "",
                 fmt::format("{} on {}", action->operator_name, action->host), "",
                 evidence_text(action->detail)});
    }
  };
  for (const TransitionRecord& record : records) {
    add_actions_until(&record.at);
    table.add({std::to_string(record.number), short_time(record.at), record.event, record.from, record.to,
               fmt::format("{} on {}", record.operator_name, record.host),
               pause_text(attempts, record.number), evidence_text(record.evidence)});
  }
  add_actions_until(nullptr);
  command.output.print(table.text(command.output.style()));
  return 0;
}

}  // namespace crossfade::cli

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <ranges>

#include "crossfade/core/error.hpp"
#include "crossfade/shadow/units.hpp"
#include "group.hpp"
#include "migrator_impl.hpp"
#include "status_pace.hpp"
#include "status_signs.hpp"
#include "status_sweep.hpp"

namespace crossfade {

namespace {

template <class T>
nlohmann::json nullable(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json nullable_phase(const std::optional<Phase>& phase) {
  return phase ? nlohmann::json(to_text(*phase)) : nlohmann::json();
}

std::string_view pass_kind(Phase phase) {
  switch (phase) {
    case Phase::dry_run:
      return "profile";
    case Phase::backfill:
    case Phase::dual_write:
      return "backfill";
    case Phase::compare:
    case Phase::switched:
    case Phase::dropped:
      return "compare";
    case Phase::planned:
    case Phase::rolled_back:
      return "";
  }
  return "";
}

void add_work(SqlSession& session, const MigrationRow& row, StatusReport& report) {
  const auto kind = std::string(pass_kind(row.phase));
  if (kind.empty()) return;
  // In compare the replay comes first; whichever pass is newer is the work at hand.
  const auto pass = session.exec(
      "SELECT id, kind, state, rows_read, rows_written, extract(epoch FROM coalesce(ended_at, "
      "clock_timestamp()) - began_at)"
      " FROM crossfade.pass WHERE migration_id = $1 AND state <> 'void' AND (kind = $2 OR ($2 = 'compare' "
      "AND kind = 'replay')"
      " OR ($2 = 'backfill' AND kind = 'catch_up') OR (kind = 'redrive' AND state = 'running'))"
      " ORDER BY id DESC LIMIT 1",
      {row.id.text, kind});
  if (pass.empty()) return;
  const auto id = int_of(pass[0][0]);
  const auto found = text_of(pass[0][1]);
  const double seconds = double_of(pass[0][5]);
  report.pass = found;
  if (found == "backfill" || found == "catch_up" || found == "replay" || found == "redrive") {
    // A catch_up has no units: those of its backfill are shown, which are all done.
    const auto backfill = found == "catch_up" ? newest_pass(session, row.id, "backfill") : std::nullopt;
    const auto totals = unit_totals(session, backfill ? backfill->id : id);
    report.set_aside = unit_totals(session, id).leftovers;
    report.units = {totals.total, totals.done};
    report.rows.done = totals.rows_read;
    report.rows.written = totals.rows_written + (backfill ? int_of(pass[0][4]) : 0);
    report.sweep = sweep_of(session, backfill ? backfill->id : id, totals);
  } else {
    const auto read =
        session
            .exec("SELECT coalesce(sum(rows_read), 0) FROM crossfade.comparison WHERE pass_id = $1::bigint",
                  {std::to_string(id)})
            .one("rows");
    report.rows.done = std::max(int_of(read[0]), int_of(pass[0][3]));
  }
  const bool moving = text_of(pass[0][2]) == "running" && row.lease_live && row.status == Status::running;
  if (!moving || seconds <= 0) return;
  report.rate_rows_per_second = static_cast<double>(report.rows.done) / seconds;
  if (report.rate_rows_per_second > 0) {
    const auto left =
        static_cast<double>(std::max<std::int64_t>(report.rows.estimated - report.rows.done, 0)) /
        report.rate_rows_per_second;
    report.eta_seconds = {static_cast<std::int64_t>(left * 0.8), static_cast<std::int64_t>(left * 1.4) + 1};
  }
}

// Whom PostgreSQL knows to hold a unit, with what each of them told Redis.
void add_workers(SqlSession& session, CursorCache& cache, const MigrationRow& row, StatusReport& report) {
  const auto leader = row.leader.value_or(row.id);
  if (!row.leader) report.processes = live_workers(session, leader);
  const auto holders = session.exec(
      "SELECT u.lease_pid, u.number, (SELECT substring(a.application_name from '/work-([0-9]+)-')"
      " FROM pg_stat_activity a WHERE a.pid = u.lease_pid) FROM crossfade.unit u JOIN crossfade.pass p ON "
      "p.id = u.pass_id"
      " WHERE p.migration_id = $1 AND p.state = 'running' AND NOT u.done AND u.lease_runner = $2"
      " AND u.lease_until > clock_timestamp()"
      " AND EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = u.lease_pid) ORDER BY u.number",
      {row.id.text, row.token.text});
  for (const auto& holder : holders.rows) {
    StatusReport::Worker worker{
        static_cast<int>(int_of(holder[0])), static_cast<int>(int_of(holder[1])), {}, {}, {}};
    if (holder[2]) worker.process = int_of(holder[2]);
    if (const auto beat = cache.get_heartbeat(row.id, std::to_string(worker.pid), row.token)) {
      worker.rate_rows_per_second = beat->rows_per_second;
      worker.since = beat->since;
    }
    report.workers.push_back(std::move(worker));
  }
}

void add_counts(SqlSession& session, const MigrationRow& row, StatusReport& report) {
  report.rejects = open_rejects(session, row.id);
  // A note that nobody has looked at counts until somebody has: better one too many than "loses nothing".
  report.misfits =
      int_of(session
                 .exec("SELECT count(*) FROM (SELECT key FROM crossfade.misfit WHERE migration_id = $1"
                       " AND state = 'open' UNION SELECT key FROM crossfade.reject_note"
                       " WHERE migration_id = $1 AND $2 = 'switched') k",
                       {row.id.text, std::string(to_text(row.phase))})
                 .one("misfits")[0]);
  const auto ended = session.exec(
      "SELECT differences, excepted, ended_at, extract(epoch FROM clock_timestamp() - ended_at)"
      " FROM crossfade.pass WHERE migration_id = $1 AND kind = 'compare' AND state = 'ended'"
      " ORDER BY id DESC LIMIT 1",
      {row.id.text});
  if (!ended.empty()) {
    report.differences = int_of(ended[0][0]);
    report.excepted = int_of(ended[0][1]);
    report.comparison = {text_of(ended[0][2]), double_of(ended[0][3])};
  }
  const auto attempts = session
                            .exec(
                                "SELECT count(*), (SELECT lock_held_ms FROM crossfade.switch_attempt a WHERE "
                                "a.migration_id = $1 AND a.outcome = 'done'"
                                " AND a.to_phase = 'switched' ORDER BY a.id DESC LIMIT 1),"
                                " (SELECT lock_wait_ms FROM crossfade.switch_attempt a WHERE a.migration_id "
                                "= $1 AND a.outcome = 'done'"
                                " AND a.to_phase = 'switched' ORDER BY a.id DESC LIMIT 1),"
                                " (SELECT coalesce(max(waiting_sessions), 0) FROM crossfade.switch_attempt a "
                                "WHERE a.migration_id = $1"
                                " AND a.to_phase = 'switched'), (SELECT max(longest_wait_ms) FROM "
                                "crossfade.switch_attempt a WHERE a.migration_id = $1"
                                " AND a.to_phase = 'switched') FROM crossfade.switch_attempt WHERE "
                                "migration_id = $1 AND to_phase = 'switched'",
                                {row.id.text})
                            .one("attempts");
  report.switched.attempts = int_of(attempts[0]);
  if (attempts[1]) report.switched.lock_held_ms = double_of(attempts[1]);
  if (attempts[2]) report.switched.lock_wait_ms = double_of(attempts[2]);
  report.switched.sessions_waited = int_of(attempts[3]);
  if (attempts[4]) report.switched.longest_wait_ms = double_of(attempts[4]);
  report.request = PhaseRequests(session).find(row.id);
}

std::optional<std::string> what_rollback_loses(const Migration& m, const StatusReport& report) {
  switch (m.row.phase) {
    case Phase::backfill:
      return "the work of the sweep: the new column is dropped";
    case Phase::dual_write:
      return "the twins built so far";
    case Phase::switched:
      if (report.misfits > 0) {
        return report.misfits == 1 ? std::string("1 value that does not fit the old column")
                                   : fmt::format("{} values that do not fit the old column", report.misfits);
      }
      if (m.binding.column.one_way)
        return "values written since the switch, where the old column cannot hold them";
      return std::nullopt;
    case Phase::planned:
    case Phase::dry_run:
    case Phase::compare:
    case Phase::dropped:
    case Phase::rolled_back:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string in_words(const Blocker& blocker) {
  std::string text = blocker.text;
  auto hint = blocker.hint;
  const auto* info = blocker.finding.empty() ? nullptr : find_finding(blocker.finding);
  if (info != nullptr && info->acceptable) {
    hint += fmt::format("{}accept it with --accept {} --reason \"why\"", hint.empty() ? "" : ", or ",
                        blocker.finding);
  }
  return hint.empty() ? text : fmt::format("{} ({})", text, hint);
}

// Asks the gates as a phase change would, without changing anything.
void add_readiness(SqlSession& session, CursorCache& cache, const Migration& m, StatusReport& report) {
  const std::atomic<bool> stop{false};
  std::atomic<bool> interruptible{false};
  const auto accepted = standing(StateStore(session).acceptances(m.row.id));
  PhaseEnv env{session, cache, {}, m.row.token, "", accepted, stop, interruptible, {}};
  const auto handler = make_phase_handler(m.row.phase);
  report.next.phase = next_phase(m.row.phase);
  report.rollback.phase = rollback_phase(m.row.phase);
  if (is_closed(m.row.phase)) return;
  const bool failed = m.row.status == Status::failed;
  if (failed) report.next.waiting_for.push_back("failed: " + m.row.reason);
  if (m.row.status == Status::paused) report.next.waiting_for.push_back("paused: " + m.row.reason);
  for (const auto& blocker : unaccepted(handler->exit_blockers(env, m), env.accepted)) {
    // What it failed for is told once, with what to do about it.
    if (failed && m.row.reason.ends_with(blocker.text))
      report.next.waiting_for.front() = "failed: " + in_words(blocker);
    else
      report.next.waiting_for.push_back(in_words(blocker));
  }
  if (m.row.status == Status::running && report.next.waiting_for.empty()) {
    report.next.waiting_for.push_back(
        fmt::format("the work of phase {}; run '{}'", to_text(m.row.phase), "crossfade next " + m.row.name));
  }
  report.next.ready = report.next.waiting_for.empty() && m.row.status == Status::settled;
  for (const auto& blocker : unaccepted(handler->rollback_blockers(env, m), env.accepted)) {
    if (blocker.compares_first)
      report.rollback.does_first.push_back("a full comparison: " + blocker.text);
    else
      report.rollback.refused_for.push_back(in_words(blocker));
  }
  report.rollback.possible = report.rollback.refused_for.empty();
  report.rollback.loses = what_rollback_loses(m, report);
  report.commands.next = "crossfade next " + m.row.name;
  if (m.row.phase == Phase::switched) report.commands.next += " --confirm " + m.row.name;
  if (m.row.status == Status::paused) report.commands.next = "crossfade resume " + m.row.name;
  report.commands.rollback = "crossfade rollback " + m.row.name;
  if (report.rejects > 0) report.commands.rejects = "crossfade rejects " + m.row.name;
  if (report.misfits > 0) report.commands.misfits = "crossfade misfits " + m.row.name;
  if (report.differences.value_or(0) > 0) report.commands.diffs = "crossfade diffs " + m.row.name;
}

StatusReport brief(SqlSession& session, const MigrationRow& row) {
  StatusReport report;
  report.migration = row.name;
  report.id = row.id.text;
  report.table = row.table.display();
  report.registered_table = row.registered_table.display();
  report.mode = std::string(to_text(row.mode));
  report.phase = row.phase;
  report.status = row.status;
  report.reason = row.reason;
  report.epoch = row.epoch.value;
  report.since = row.phase_since;
  report.operator_name = row.operator_name;
  report.version = row.version;
  if (row.lease_live) {
    report.runner =
        fmt::format("{} on {}, backend pid {}", row.runner_operator, row.runner_host, row.runner_pid);
  }
  report.rows.estimated = estimated_rows(session, row.table_oid);
  report.next.phase = next_phase(row.phase);
  report.rollback.phase = rollback_phase(row.phase);
  report.strategy =
      "a trigger writes the other side with every live write: rows that change during the sweep need no"
      " second one";
  return report;
}

StatusReport status_of(SqlSession& session, CursorCache& cache, const Migration& m) {
  auto report = brief(session, m.row);
  add_work(session, m.row, report);
  add_workers(session, cache, m.row, report);
  add_counts(session, m.row, report);
  try {
    if (m.row.phase == Phase::switched) report.misfits = misfits_now(session, m);
    add_readiness(session, cache, m, report);
    if (const auto table = relation_name(session, m.row.table_oid)) add_signs(session, m, *table, report);
  } catch (const Error& error) {
    // A table that is gone, a catalog that cannot be read: status says so and still answers the rest.
    report.next.waiting_for.push_back(error.message());
    report.next.ready = false;
    report.rollback.possible = false;
  }
  return report;
}

// The group is as far as its slowest migration, and has what all of them have.
void join(StatusReport& report, const StatusReport& member) {
  report.units.total += member.units.total;
  report.units.done += member.units.done;
  report.rows.done += member.rows.done;
  report.rows.written += member.rows.written;
  report.rows.estimated += member.rows.estimated;
  report.rejects += member.rejects;
  report.excepted += member.excepted;
  report.misfits += member.misfits;
  if (report.differences && member.differences)
    report.differences = *report.differences + *member.differences;
  else
    report.differences.reset();
  if (!member.comparison ||
      (report.comparison && report.comparison->age_seconds < member.comparison->age_seconds))
    report.comparison = member.comparison;
  const auto add = [&](std::vector<std::string>& all, const std::vector<std::string>& its) {
    for (const auto& reason : its) {
      // What waits for all of them alike is said once.
      if (std::ranges::find(all, reason) == all.end()) all.push_back(member.table + ": " + reason);
    }
  };
  add(report.next.waiting_for, member.next.waiting_for);
  add(report.rollback.refused_for, member.rollback.refused_for);
  add(report.rollback.does_first, member.rollback.does_first);
  add(report.warnings, member.warnings);
  if (report.commands.recapture.empty()) report.commands.recapture = member.commands.recapture;
  report.next.ready = report.next.ready && member.next.ready;
  report.rollback.possible = report.rollback.possible && member.rollback.possible;
}

StatusReport status_of_group(SqlSession& session, CursorCache& cache, const std::vector<Migration>& group) {
  const auto& leader = group.front();
  auto report = status_of(session, cache, leader);
  for (const auto& m : group | std::views::drop(1)) {
    auto member = status_of(session, cache, m);
    member.column = m.binding.column.name;
    join(report, member);
    report.members.push_back(std::move(member));
  }
  if (is_closed(leader.row.phase)) return report;
  const std::atomic<bool> stop{false};
  std::atomic<bool> interruptible{false};
  PhaseEnv env{session, cache, {}, leader.row.token, "", {}, stop, interruptible, {}};
  // A member that is not settled says so itself.
  for (const auto& blocker : group_blockers(env, group, Event::advance)) {
    if (blocker.finding.empty()) continue;
    const auto reason = blocker.text + " (" + blocker.hint + ")";
    if (leader.row.phase == Phase::switched) {
      report.rollback.refused_for.push_back(reason);
      report.rollback.possible = false;
    } else {
      report.next.waiting_for.push_back(reason);
      report.next.ready = false;
    }
  }
  if (!report.members.empty()) {
    report.rollback.loses = what_rollback_loses(leader, report);
    if (report.misfits > 0) report.commands.misfits = "crossfade misfits " + leader.row.name;
    if (report.rejects > 0) report.commands.rejects = "crossfade rejects " + leader.row.name;
    if (report.differences.value_or(0) > 0) report.commands.diffs = "crossfade diffs " + leader.row.name;
  }
  return report;
}

}  // namespace

StatusReport Migrator::status(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "status");
  const auto group = load_group(session, impl_->resolve(session, ref).id);
  const auto& m = group.front();
  CursorCache cache(impl_->options.redis);
  auto report = status_of_group(session, cache, group);
  if (m.row.phase == Phase::switched) {
    report.drop_from =
        text_of(session
                    .exec("SELECT phase_since + $2::interval FROM crossfade.migration WHERE id = $1",
                          {m.row.id.text, fmt::format("{} ms", m.spec.soak.count())})
                    .one("soak")[0]);
  }
  const auto tuning = StateStore(session).tuning(m.row.id, m.spec.tuning);
  add_pace(session, m.row, tuning, report);
  report.redis = std::string(to_text(cache.state()));
  return report;
}

std::vector<StatusReport> Migrator::list() {
  auto session = impl_->open("", "list");
  std::vector<StatusReport> reports;
  for (const auto& row : StateStore(session).list()) {
    auto report = brief(session, row);
    add_work(session, row, report);
    add_counts(session, row, report);
    reports.push_back(std::move(report));
  }
  return reports;
}

namespace {

nlohmann::ordered_json pace_json(const StatusReport::Pace& pace) {
  auto signals = nlohmann::ordered_json::array();
  for (const auto& signal : pace.signals) {
    signals.push_back({{"signal", signal.name},
                       {"value", signal.value},
                       {"limit", nullable(signal.limit)},
                       {"pressure", nullable(signal.pressure)}});
  }
  return {{"limit_rows_per_second", pace.limit_rows_per_second},
          {"state", pace.state},
          {"reason", nullable(pace.reason)},
          {"since", nullable(pace.since)},
          {"starved_seconds", nullable(pace.starved_seconds)},
          {"signals", signals}};
}

}  // namespace

std::string to_json(const StatusReport& r) {
  nlohmann::ordered_json j, workers = nlohmann::ordered_json::array(),
                            processes = nlohmann::ordered_json::array();
  for (const auto& worker : r.workers) {
    workers.push_back({{"pid", worker.pid},
                       {"unit", worker.unit},
                       {"rate_rows_per_second", nullable(worker.rate_rows_per_second)},
                       {"since", nullable(worker.since)},
                       {"process", nullable(worker.process)}});
  }
  for (const auto& process : r.processes) {
    processes.push_back({{"id", process.id},
                         {"operator", process.operator_name},
                         {"host", process.host},
                         {"process_id", process.process_id},
                         {"pid", process.pid},
                         {"version", process.version},
                         {"threads", process.threads},
                         {"state", process.state},
                         {"since", process.since},
                         {"seen_seconds", process.seen_seconds}});
  }
  j["migration"] = r.migration;
  j["id"] = r.id;
  j["table"] = r.table;
  j["registered_table"] = r.registered_table;
  j["mode"] = r.mode;
  j["phase"] = to_text(r.phase);
  j["status"] = to_text(r.status);
  j["reason"] = r.reason.empty() ? nlohmann::json() : nlohmann::json(r.reason);
  j["epoch"] = r.epoch;
  j["since"] = r.since;
  j["operator"] = r.operator_name;
  j["runner"] = r.runner.empty() ? nlohmann::json() : nlohmann::json(r.runner);
  j["version"] = r.version;
  j["units"] = {{"total", r.units.total}, {"done", r.units.done}};
  j["rows"] = {{"done", r.rows.done}, {"written", r.rows.written}, {"estimated", r.rows.estimated}};
  j["rate_rows_per_second"] = r.rate_rows_per_second;
  j["eta_seconds"] =
      r.eta_seconds ? nlohmann::json::array({r.eta_seconds->first, r.eta_seconds->second}) : nlohmann::json();
  j["pace"] = pace_json(r.pace);
  j["rejects"] = r.rejects;
  j["differences"] = nullable(r.differences);
  j["comparison"] = r.comparison ? nlohmann::json{{"ended_at", r.comparison->ended_at},
                                                  {"age_seconds", r.comparison->age_seconds}}
                                 : nlohmann::json();
  j["excepted"] = r.excepted;
  j["misfits"] = r.misfits;
  j["next"] = {
      {"phase", nullable_phase(r.next.phase)}, {"ready", r.next.ready}, {"waiting_for", r.next.waiting_for}};
  j["rollback"] = {{"phase", nullable_phase(r.rollback.phase)},
                   {"possible", r.rollback.possible},
                   {"loses", nullable(r.rollback.loses)},
                   {"refused_for", r.rollback.refused_for},
                   {"does_first", r.rollback.does_first}};
  j["commands"] = {{"next", r.commands.next},       {"rollback", r.commands.rollback},
                   {"rejects", r.commands.rejects}, {"misfits", r.commands.misfits},
                   {"diffs", r.commands.diffs},     {"recapture", r.commands.recapture}};
  j["switch"] = {{"attempts", r.switched.attempts},
                 {"lock_held_ms", nullable(r.switched.lock_held_ms)},
                 {"lock_wait_ms", nullable(r.switched.lock_wait_ms)},
                 {"sessions_waited", r.switched.sessions_waited},
                 {"longest_wait_ms", nullable(r.switched.longest_wait_ms)}};
  j["request"] = r.request ? nlohmann::ordered_json::parse(to_json(*r.request)) : nlohmann::ordered_json();
  j["drop_from"] = nullable(r.drop_from);
  j["archive"] = nullable(r.archive);
  j["warnings"] = r.warnings;
  j["members"] = nlohmann::json::array();
  for (const auto& member : r.members) {
    j["members"].push_back({{"table", member.table},
                            {"column", member.column},
                            {"phase", to_text(member.phase)},
                            {"status", to_text(member.status)},
                            {"units", {{"total", member.units.total}, {"done", member.units.done}}},
                            {"rows",
                             {{"done", member.rows.done},
                              {"written", member.rows.written},
                              {"estimated", member.rows.estimated}}},
                            {"archive", nullable(member.archive)},
                            {"differences", nullable(member.differences)},
                            {"rejects", member.rejects},
                            {"misfits", member.misfits}});
  }
  j["redis"] = r.redis;
  j["strategy"] = r.strategy;
  j["pass"] = r.pass.empty() ? nlohmann::json() : nlohmann::json(r.pass);
  j["set_aside"] = r.set_aside;
  j["workers"] = workers;
  j["processes"] = processes;
  j["sweep"] = r.sweep ? nlohmann::ordered_json{{"order", r.sweep->order},
                                                {"order_reason", r.sweep->order_reason},
                                                {"interleave", r.sweep->interleave},
                                                {"interleave_reason", r.sweep->interleave_reason},
                                                {"hot_ratio", nullable(r.sweep->hot_ratio)}}
                       : nlohmann::ordered_json();
  return j.dump();
}

}  // namespace crossfade

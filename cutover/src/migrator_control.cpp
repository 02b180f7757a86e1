// The verbs that look and steer: history, pause, resume, tune, compare, differences, rejects, misfits,
// recapture, adopt.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/phase_request.hpp"
#include "crossfade/phases/paced_read.hpp"
#include "crossfade/shadow/capture.hpp"
#include "crossfade/shadow/pace_governor.hpp"
#include "group.hpp"
#include "migrator_impl.hpp"

namespace crossfade {

std::vector<TransitionRecord> Migrator::history(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "history");
  return StateStore(session).history(impl_->resolve(session, ref).id);
}

std::vector<ActionRecord> Migrator::actions(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "history");
  return StateStore(session).actions(impl_->resolve(session, ref).id);
}

std::optional<ProfileReport> Migrator::dry_run_report(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "status");
  const auto pass = newest_pass(session, impl_->resolve(session, ref).id, "profile");
  return pass ? profile_of(*pass) : std::nullopt;
}

std::vector<DryRunReport> Migrator::dry_run_reports(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "status");
  std::vector<DryRunReport> reports;
  for (const auto& m : load_group(session, impl_->resolve(session, ref).id)) {
    const auto pass = newest_pass(session, m.row.id, "profile");
    if (!pass || pass->state != "ended" || pass->result == "{}") continue;
    reports.push_back(
        {m.row.table.display(), display_identifier(m.binding.column.name), profile_from_json(pass->result)});
  }
  return reports;
}

std::vector<LockAttempt> Migrator::lock_attempts(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "history");
  return crossfade::lock_attempts(session, impl_->resolve(session, ref).id);
}

PauseReport Migrator::pause(const MigrationRef& ref, const std::string& reason) {
  auto session = impl_->open(ref.name, "pause");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  PauseReport report;
  report.request_cancelled = PhaseRequests(session).cancel(
      row.id, fmt::format("{} on {}", impl_->options.operator_name, impl_->options.host));
  report.changed = report.request_cancelled;
  report.status = row.status;
  if (row.status == Status::paused) return report;
  const auto& who = impl_->options;
  const auto recorded = [&] {
    session.exec(
        "INSERT INTO crossfade.pause (migration_id, kind, reason, changed_by) VALUES ($1, 'operator', $2, "
        "$3)",
        {row.id.text, reason, who.operator_name});
    StateStore(session).record_action(row.id, "pause", who.operator_name, who.host,
                                      nlohmann::json{{"reason", reason}}.dump());
  };
  if (!change_status(session, row.id, Event::pause, reason, std::nullopt, recorded)) {
    if (report.request_cancelled) return report;
    throw Error(ErrorCode::illegal_transition,
                is_closed(row.phase)
                    ? fmt::format("migration {} is closed ({}); there is nothing to pause", row.name,
                                  to_text(row.phase))
                    : fmt::format("migration {} is {} in {}: nothing works on it until 'crossfade next'",
                                  row.name, to_text(row.status), to_text(row.phase)),
                "see 'crossfade status " + row.name + "'", row.name);
  }
  report.changed = true;
  report.status = Status::paused;
  CursorCache(impl_->options.redis).publish_control(row.id, "pause");
  return report;
}

bool Migrator::resume(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "resume");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  const auto recorded = [&] {
    session.exec(
        "UPDATE crossfade.pause SET ended_at = clock_timestamp() WHERE migration_id = $1"
        " AND kind = 'operator' AND ended_at IS NULL",
        {row.id.text});
    StateStore(session).record_action(row.id, "resume", impl_->options.operator_name, impl_->options.host);
  };
  if (!change_status(session, row.id, Event::resume, "", std::nullopt, recorded)) return false;
  CursorCache(impl_->options.redis).publish_control(row.id, "resume");
  return true;
}

Tuning Migrator::tuning(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "tune");
  const auto m = migration_of(impl_->resolve(session, ref));
  return StateStore(session).tuning(m.row.id, m.spec.tuning);
}

namespace {

// A signal that the role may never read would hold the sweep for ever: that is said now, not in the night.
void require_readable(SqlSession& session, const Tuning& tuning) {
  const auto key = std::string(needs_statistics(tuning));
  if (key.empty()) return;
  const auto role = session
                        .exec(
                            "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),"
                            " quote_ident(current_user)")
                        .one("role");
  if (bool_of(role[0])) return;
  const auto name = text_of(role[1]);
  throw Error(ErrorCode::permission_denied,
              fmt::format("role {} may not read what {} needs (statistics_hidden)", name, key),
              fmt::format("GRANT pg_read_all_stats TO {};", name), name);
}

}  // namespace

void Migrator::tune(const MigrationRef& ref,
                    const std::vector<std::pair<std::string, std::string>>& settings) {
  auto session = impl_->open(ref.name, "tune");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  StateStore store(session);
  const auto m = migration_of(row);
  Tuning tuning = store.tuning(row.id, m.spec.tuning);
  for (const auto& [key, value] : settings) set_tuning(tuning, key, value);
  require_readable(session, tuning);
  auto detail = nlohmann::json::object();
  Transaction transaction(session);
  const auto group = store.group(row.id);
  for (const auto& [key, value] : settings) {
    for (const auto& member : group)
      store.set_tuning(member.id, key, tuning_value(tuning, key), impl_->options.operator_name);
    detail[key] = tuning_value(tuning, key);
  }
  store.record_action(row.id, "tune", impl_->options.operator_name, impl_->options.host, detail.dump());
  transaction.commit();
  CursorCache(impl_->options.redis).publish_control(row.id, "tune");
}

namespace {

CompareDirection direction_of(const MigrationRow& row) {
  if (row.phase == Phase::switched) return CompareDirection::backward;
  if (row.phase == Phase::compare || row.phase == Phase::dual_write) return CompareDirection::forward;
  throw Error(ErrorCode::illegal_transition,
              fmt::format("phase {} has nothing to compare", to_text(row.phase)),
              "both sides exist in dual_write, compare and switched", row.name);
}

}  // namespace

namespace {

std::string table_of_member(const Migration& m) {
  return m.row.leader ? m.row.table.display() : std::string();
}

// What the group found, as one.
void add_to(PassRow& sum, const PassRow& pass) {
  sum.rows_read += pass.rows_read;
  sum.rows_written += pass.rows_written;
  sum.differences += pass.differences;
  sum.excepted += pass.excepted;
  sum.repairs += pass.repairs;
  if (pass.state == "running") sum.state = pass.state;
  sum.age_seconds = std::max(sum.age_seconds, pass.age_seconds);
}

}  // namespace

PassRow Migrator::compare(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "compare");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  const auto direction = direction_of(row);
  Runner runner(impl_->runner_setup(row, stop_));
  auto& env = runner.env();
  std::optional<PassRow> sum;
  for (const auto& m : load_group(env.session, row.id)) {
    const auto table = current_table(env.session, m);
    if (direction == CompareDirection::backward) resolve_misfits(env.session, m, table);
    StateStore(env.session).stamp_last_write(m.row.id);
    const auto estimate = estimated_rows(env.session, m.row.table_oid);
    env.progress = [&](std::int64_t rows, std::int64_t, const std::string& note) {
      if (impl_->listener != nullptr)
        impl_->listener->on_progress({m.row.name, m.row.phase, rows, estimate, note});
    };
    PacedComparison comparison;
    while (!comparison.slice(env, m, direction, std::chrono::milliseconds(500))) {
      runner.check();
      // Of a migration that was paused before, this is what was asked for.
      if (row.status != Status::paused) runner.hold_while_paused();
    }
    const auto ended = *newest_pass(env.session, m.row.id, "compare", to_text(direction));
    if (sum)
      add_to(*sum, ended);
    else
      sum = ended;
  }
  return *sum;
}

std::optional<PassRow> Migrator::newest_comparison(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "diffs");
  const auto row = impl_->resolve(session, ref);
  const auto direction =
      row.phase == Phase::switched ? CompareDirection::backward : CompareDirection::forward;
  std::optional<PassRow> sum;
  for (const auto& member : StateStore(session).group(row.id)) {
    const auto pass = newest_pass(session, member.id, "compare", to_text(direction));
    if (!pass || pass->state == "void") return std::nullopt;
    if (sum)
      add_to(*sum, *pass);
    else
      sum = pass;
  }
  return sum;
}

std::vector<DifferenceValues> Migrator::differences(const MigrationRef& ref, ShowValues show) {
  auto session = impl_->open(ref.name, "diffs");
  const auto row = impl_->resolve(session, ref);
  std::vector<DifferenceValues> found;
  const auto direction =
      row.phase == Phase::switched ? CompareDirection::backward : CompareDirection::forward;
  if (!has_capture(row.phase)) return found;
  for (const auto& m : load_group(session, row.id)) {
    const auto pass = newest_pass(session, m.row.id, "compare", to_text(direction));
    if (!pass) continue;
    const Comparator comparator(m, current_table(session, m), direction);
    for (auto& difference : comparator.differences(session, pass->id)) {
      DifferenceValues values{difference, table_of_member(m)};
      if (show == ShowValues::yes) values.values = comparator.values(session, difference.key);
      found.push_back(std::move(values));
    }
  }
  return found;
}

std::int64_t Migrator::repair(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "repair");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  const auto direction = direction_of(row);
  Runner runner(impl_->runner_setup(row, stop_));
  auto& env = runner.env();
  std::int64_t written = 0;
  for (const auto& m : load_group(env.session, row.id)) {
    const auto pass = newest_pass(env.session, m.row.id, "compare", to_text(direction));
    if (!pass) continue;
    Comparator comparator(m, current_table(env.session, m), direction);
    written += comparator.repair(env.session, pass->id);
    failpoint::hit("repair.after");
    StateStore(env.session).stamp_last_write(m.row.id);
    if (direction == CompareDirection::backward)
      resolve_misfits(env.session, m, current_table(env.session, m));
  }
  return written;
}

namespace {

std::vector<RejectRow> of_group(SqlSession& session, const MigrationId& id,
                                std::vector<RejectRow> (*list)(SqlSession&, const MigrationId&)) {
  std::vector<RejectRow> rows;
  for (const auto& m : load_group(session, id)) {
    for (auto& found : list(session, m.row.id)) {
      found.table = table_of_member(m);
      rows.push_back(std::move(found));
    }
  }
  return rows;
}

}  // namespace

std::vector<RejectRow> Migrator::rejects(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "rejects");
  return of_group(session, impl_->resolve(session, ref).id, list_rejects);
}

Resolution Migrator::retry_rejects(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "rejects");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  if (!has_capture(row.phase) || row.phase == Phase::switched) {
    throw Error(ErrorCode::illegal_transition,
                fmt::format("phase {} has no rejects to retry", to_text(row.phase)),
                "rejects exist from backfill to compare", row.name);
  }
  Runner runner(impl_->runner_setup(row, stop_));
  auto& env = runner.env();
  Resolution sum;
  for (const auto& m : load_group(env.session, row.id)) {
    const auto table = current_table(env.session, m);
    // What this writes is younger than any comparison so far, which must therefore be made again.
    const auto one = resolve_rejects(env.session, m, table, env.token,
                                     [&] { void_passes(env.session, m.row.id, "compare"); });
    sum.open += one.open;
    sum.closed += one.closed;
    sum.written += one.written;
    sum.complete = sum.complete && one.complete;
  }
  return sum;
}

std::vector<RejectRow> Migrator::misfits(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "misfits");
  const auto row = impl_->resolve(session, ref);
  if (row.phase == Phase::switched) {
    for (const auto& m : load_group(session, row.id)) resolve_misfits(session, m, current_table(session, m));
  }
  return of_group(session, row.id, list_misfits);
}

// The capture is removed and made again. Before the switch everything is swept once more; after it the
// comparison finds what the old column missed in between, and repair writes it.
PhaseReport Migrator::recapture(const MigrationRef& ref) {
  auto session = impl_->open(ref.name, "recapture");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  if (!has_capture(row.phase)) {
    throw Error(ErrorCode::illegal_transition, fmt::format("phase {} has no capture", to_text(row.phase)), "",
                row.name);
  }
  Runner runner(impl_->runner_setup(row, stop_));
  if (row.phase == Phase::switched) {
    runner.reinstall_backward_capture();
  } else {
    // What follows are ordinary phase changes; this says what they were for.
    StateStore(session).record_action(row.id, "recapture", impl_->options.operator_name, impl_->options.host);
    while (runner.load().row.phase != Phase::dry_run) {
      runner.check();
      runner.go_back();
    }
    runner.settle();
    runner.advance();
  }
  const auto now = runner.load().row;
  return {now.name, now.phase, now.status};
}

void Migrator::adopt() {
  auto session = impl_->open("", "adopt");
  const auto& now = session.identity();
  for (const auto& row : StateStore(session).list()) {
    if (is_closed(row.phase)) continue;
    // Settled work is not settled here: fail and retry lead back to running by legal events.
    if (row.status == Status::settled && has_capture(row.phase)) {
      change_status(session, row.id, Event::fail, "adopted", std::nullopt);
      change_status(session, row.id, Event::retry, "", std::nullopt);
    }
    Transaction transaction(session);
    session.exec(
        "UPDATE crossfade.pass SET state = 'void' WHERE kind <> 'profile' AND migration_id IN"
        " (SELECT m.id FROM crossfade.migration m WHERE $1 IN (m.id, m.leader_id))",
        {row.id.text});
    session.exec(
        "UPDATE crossfade.migration SET system_identifier = $2, database_oid = $3::oid, timeline = $4,"
        " token = gen_random_uuid(), epoch = epoch + 1, lease_until = NULL, runner_pid = NULL,"
        " runner_backend_start = NULL, last_write_xid = CASE WHEN last_write_xid IS NULL THEN NULL"
        " ELSE pg_current_xact_id() END, capture_xid = CASE WHEN capture_xid IS NULL THEN NULL"
        " ELSE pg_current_xact_id() END WHERE $1 IN (id, leader_id)",
        {row.id.text, now.system_identifier, std::to_string(now.database_oid), now.timeline});
    StateStore(session).record_action(row.id, "adopt", impl_->options.operator_name, impl_->options.host);
    transaction.commit();
    CursorCache(impl_->options.redis).forget(row.id);
  }
}

}  // namespace crossfade

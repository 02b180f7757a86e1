#include "handlers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/phases/preflight.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "crossfade/shadow/twins.hpp"

namespace crossfade {

StepResult PhaseHandler::refresh(PhaseEnv&, const Migration&, std::chrono::milliseconds) {
  return {StepResult::Kind::settled, {}, {}};
}

StepResult PhaseHandler::prepare_rollback(PhaseEnv&, const Migration&) {
  return {StepResult::Kind::settled, {}, {}};
}

StepResult PhaseHandler::abandon_rollback(PhaseEnv&, const Migration&) {
  return {StepResult::Kind::settled, {}, {}};
}

void PhaseHandler::before_attempt(PhaseEnv&, const Migration&) {}

std::vector<Blocker> PhaseHandler::rollback_blockers(PhaseEnv&, const Migration&) { return {}; }

std::vector<Blocker> unaccepted(const std::vector<Blocker>& blockers,
                                const std::vector<Acceptance>& accepted) {
  std::vector<Blocker> open;
  for (const auto& blocker : blockers) {
    const auto* info = blocker.finding.empty() ? nullptr : find_finding(blocker.finding);
    const bool covered =
        info != nullptr && info->acceptable &&
        std::ranges::any_of(accepted, [&](const auto& a) { return a.id == blocker.finding; });
    if (!covered) open.push_back(blocker);
  }
  return open;
}

std::vector<Acceptance> standing(std::vector<Acceptance> stored) {
  std::erase_if(stored,
                [](const Acceptance& a) { return a.id == "misfits_open" || a.id == "one_way_rollback"; });
  return stored;
}

Error error_of(const std::vector<Blocker>& blockers, const std::string& name) {
  const auto& first = blockers.front();
  std::string message = first.text;
  for (std::size_t i = 1; i < blockers.size() && i < 10; ++i) message += "; " + blockers[i].text;
  std::string hint = first.hint;
  if (!first.finding.empty() && find_finding(first.finding) != nullptr &&
      find_finding(first.finding)->acceptable) {
    hint += fmt::format("{}or accept it: the same command with --accept {} --reason \"why\"",
                        hint.empty() ? "" : ", ", first.finding);
  }
  return Error(first.code, message, hint, name);
}

QualifiedName current_table(SqlSession& session, const Migration& migration) {
  const auto name = relation_name(session, migration.row.table_oid);
  if (name) return *name;
  throw Error(
      ErrorCode::table_changed,
      fmt::format("table {} (oid {}) was dropped", migration.row.table.display(),
                  migration.row.table_oid.value),
      fmt::format("nothing is left to migrate; close it with 'crossfade rollback {} --to rolled_back'",
                  migration.row.name),
      migration.row.table.display());
}

std::vector<Blocker> preflight_blockers(SqlSession& session, const Migration& m) {
  const auto table = read_table(session, m.row.table_oid);
  if (!table) current_table(session, m);
  std::vector<Blocker> blockers;
  if (auto lost = lost_key(session, m)) blockers.push_back(*std::move(lost));
  for (const auto& finding :
       preflight(session, m.spec, *table, m.binding.key, &m.binding.column, m.generated, m.row.phase)) {
    if (finding.severity != Severity::refuse) continue;
    blockers.push_back(
        {ErrorCode::finding_refused, finding.id + ": " + finding.message, finding.id, finding.hint});
  }
  return blockers;
}

namespace {

std::string how_to_see(const Migration& m) {
  return fmt::format(
      "see 'crossfade diffs {0}', repair with 'crossfade diffs {0} --repair', then 'crossfade next {0}'",
      m.row.name);
}

bool too_old(const PassRow& pass, const Migration& m) {
  return pass.age_seconds > static_cast<double>(m.spec.max_comparison_age.count()) / 1000.0;
}

}  // namespace

std::vector<Blocker> comparison_blockers(PhaseEnv& env, const Migration& m, CompareDirection direction) {
  const auto pass = newest_pass(env.session, m.row.id, "compare", to_text(direction));
  if (!pass || pass->state == "void")
    return {{ErrorCode::not_ready, "no full comparison has been made", "", "", true}};
  if (pass->state == "running") return {{ErrorCode::not_ready, "the comparison has not ended", "", "", true}};
  if (pass->differences > 0) {
    return {{ErrorCode::differences_found,
             fmt::format("the newest comparison found {} differences", pass->differences), "",
             how_to_see(m)}};
  }
  if (pass->repairs > 0) {
    return {{ErrorCode::not_ready,
             "rows were repaired since the newest comparison; a clean full pass must follow", "", "", true}};
  }
  // Against the capture (a disabled trigger, even if enabled again) and against the start of this pass.
  const auto now = read_fingerprint(env.session, m);
  auto changes = fingerprint_changes(m.row.fingerprint, now);
  const bool capture_holds = changes.empty();
  if (capture_holds) changes = fingerprint_changes(pass->fingerprint, now);
  if (!changes.empty()) {
    return {{ErrorCode::fingerprint_changed,
             "changed since the newest comparison began: " + fmt::format("{}", changes[0]),
             "fingerprint_changed",
             (capture_holds ? "compare again with 'crossfade next "
                            : "make the capture anew with 'crossfade recapture ") +
                 m.row.name + "'",
             capture_holds}};
  }
  if (too_old(*pass, m)) {
    return {{ErrorCode::not_ready,
             fmt::format("the newest comparison is older than max_comparison_age = {}",
                         format_duration(m.spec.max_comparison_age)),
             "", "", true}};
  }
  return {};
}

StepResult run_comparison(PhaseEnv& env, const Migration& m, CompareDirection direction,
                          std::chrono::milliseconds slice, PacedComparison& comparison) {
  const auto newest = newest_pass(env.session, m.row.id, "compare", to_text(direction));
  if (newest && newest->state == "ended" && comparison_blockers(env, m, direction).empty()) {
    return {StepResult::Kind::settled, {}, {}};
  }
  require_key(env.session, m);
  // Every write of ours so far is older than a new pass; a running one was stamped when it began.
  if (!newest || newest->state != "running") StateStore(env.session).stamp_last_write(m.row.id);
  if (!comparison.slice(env, m, direction, slice)) return {StepResult::Kind::again, {}, {}};
  auto blockers = comparison_blockers(env, m, direction);
  if (blockers.empty()) return {StepResult::Kind::settled, {}, {}};
  // Only a difference needs a person; everything else is answered by another pass.
  if (blockers.front().code == ErrorCode::differences_found) return {StepResult::Kind::failed, blockers, {}};
  return {StepResult::Kind::again, {}, std::chrono::milliseconds(100)};
}

// Of other roles' sessions a plain owner sees neither type nor state nor name: what is hidden counts as a
// reader.
std::vector<Blocker> old_snapshot_blockers(PhaseEnv& env, const Migration& m) {
  if (!m.row.last_write_xid) return {};
  const auto old = env.session.exec(
      "SELECT CASE WHEN a.backend_type IS NULL THEN"
      " format('pid %s (%s; what it does is hidden from this role)', a.pid, a.usename)"
      " ELSE format('pid %s (%s, %s, snapshot open for %s s, query since %s): %s', a.pid, a.usename, a.state,"
      " round(extract(epoch FROM clock_timestamp() - a.xact_start)::numeric, 1), a.query_start,"
      " left(a.query, 80)) END FROM pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.pid <> "
      "pg_backend_pid()"
      " AND (a.datid IS NULL OR a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = "
      "current_database()))"
      " AND coalesce(a.backend_type, CASE WHEN a.usesysid IS NULL THEN 'autovacuum worker' END, '') <> "
      "'autovacuum worker' AND coalesce(a.application_name, '') NOT LIKE $2"
      " AND age(a.backend_xmin) > age($1::xid8::xid)"
      " UNION ALL SELECT format('replication slot %s holds xmin %s', s.slot_name, s.xmin) FROM "
      "pg_replication_slots s"
      " WHERE s.xmin IS NOT NULL AND age(s.xmin) > age($1::xid8::xid) LIMIT 20",
      {*m.row.last_write_xid, "crossfade/" + m.row.name + "/%"});
  std::vector<Blocker> blockers;
  for (const auto& row : old.rows) {
    blockers.push_back(
        {ErrorCode::old_snapshot,
         "a snapshot older than the last write of the new column would read stale values: " + text_of(row[0]),
         "old_snapshot", "wait for it to end, or end it"});
  }
  return blockers;
}

std::optional<std::chrono::milliseconds> ShortLock::next(PhaseEnv& env, const Migration& m,
                                                         const std::vector<Oid>& beside) {
  auto tables = tree_of(env.session, m.row.table_oid);
  tables.insert(tables.end(), beside.begin(), beside.end());
  const auto holders = watch_.old_holders(env.session, tables, m.spec.lock_timeout);
  if (++attempt_ > m.spec.switch_attempts) {
    throw lock_attempts_exhausted(m.row.table.display(), m.spec.switch_attempts, m.spec.lock_timeout,
                                  holders.empty() ? "lock not available" : "an older transaction holds it",
                                  watch_.look(env.session, tables), unreached_);
  }
  if (!holders.empty()) {
    env.progress(-1, -1, "waiting for " + holders.front().text());
    unreached_ = signal_holders(env.session, tables, holders, env.signals);
    return std::nullopt;
  }
  // One millisecond is as close to NOWAIT as a timeout comes.
  auto wait = lock_wait(attempt_, m.spec.lock_timeout);
  if (m.binding.key.partitioned) wait = wait_with_locks(env.session, wait);
  return std::max(wait, std::chrono::milliseconds(1));
}

StepResult with_short_lock(PhaseEnv& env, const Migration& m, ShortLock& lock,
                           const std::function<bool(std::chrono::milliseconds)>& work,
                           const std::vector<Oid>& beside) {
  const auto wait = lock.next(env, m, beside);
  if (!wait) return {StepResult::Kind::again, {}, std::chrono::milliseconds(250)};
  try {
    // A build or a validation may take hours: it can be cancelled, and the next run finds what it left.
    const Interruptible interruptible(env.interruptible);
    const bool settled = work(*wait);
    lock.got();
    return {settled ? StepResult::Kind::settled : StepResult::Kind::again, {}, {}};
  } catch (const Error& error) {
    // Of several partitions together the deadline is statement_timeout. (An interrupt is seen by the runner.)
    const bool missed =
        error.is_lock_not_available() || (m.binding.key.partitioned && error.is_query_canceled());
    if (!missed) throw;
    return {StepResult::Kind::again, {}, lock.pause()};
  }
}

std::vector<Blocker> check_blockers(PhaseEnv& env, const Migration& m, const std::string& physical) {
  std::vector<Blocker> blockers;
  const auto table = current_table(env.session, m);
  for (const auto& entry : load_ledger(env.session, m.row.id).carried) {
    if (entry.kind != DependentKind::check || !entry.validated) continue;
    const Interruptible interruptible(env.interruptible);
    env.progress(-1, -1, "testing constraint " + entry.name);
    const auto found = env.session.exec(violation_sql(env.session, m, table, entry, physical));
    if (found.empty()) continue;
    blockers.push_back({ErrorCode::not_ready,
                        fmt::format("the row with key {} would violate constraint {} ({})",
                                    text_of(found[0][0]), display_identifier(entry.name), entry.holds),
                        "", "change the row or the constraint, then 'crossfade next " + m.row.name + "'"});
  }
  return blockers;
}

std::optional<StepResult> settle_column(PhaseEnv& env, const Migration& m, const std::string& column,
                                        ShortLock& lock) {
  const auto unvalidated =
      next_unvalidated(env.session, m, current_table(env.session, m), load_ledger(env.session, m.row.id));
  const bool settled = not_null_is_settled(env.session, m, column);
  if (!unvalidated && settled) return std::nullopt;
  if (settled) env.progress(-1, -1, "validating constraint " + unvalidated->constraint);
  auto result = with_short_lock(env, m, lock, [&](std::chrono::milliseconds wait) {
    const auto table = current_table(env.session, m);
    if (!settled) return settle_not_null(env.session, m, table, column, wait) && !unvalidated;
    validate_constraint(env.session, m, *unvalidated, wait);
    return false;
  });
  if (result.kind == StepResult::Kind::settled) return std::nullopt;
  return result;
}

std::vector<Blocker> dependent_blockers(PhaseEnv& env, const Migration& m) {
  // The inventory evaluates defaults behind savepoints; nothing of it is kept.
  std::optional<Transaction> transaction;
  if (!env.session.in_transaction()) transaction.emplace(env.session);
  const auto table = read_table(env.session, m.row.table_oid);
  if (!table) return {};
  std::vector<Finding> findings;
  const auto found = take_inventory(env.session, *table, m.binding.column, findings);
  for (auto& change : ledger_changes(load_ledger(env.session, m.row.id), found)) findings.push_back(change);
  std::vector<Blocker> blockers;
  for (const auto& finding : findings) {
    if (finding.severity != Severity::refuse) continue;
    blockers.push_back(
        {ErrorCode::finding_refused, finding.id + ": " + finding.message, finding.id, finding.hint});
  }
  return blockers;
}

std::string comparison_recheck_sql(PhaseEnv& env, const Migration& m, CompareDirection direction) {
  const auto pass = newest_pass(env.session, m.row.id, "compare", to_text(direction));
  const auto fingerprint = pass ? pass->fingerprint : std::string("{}");
  return raise_unless(fmt::format("{} = {}::jsonb", fingerprint_sql(m), quote_literal(fingerprint)),
                      "the table, its triggers or its functions changed since the comparison began");
}

std::vector<Blocker> old_column_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  for (const auto& finding : hanging_on_old_column(env.session, m))
    blockers.push_back(
        {ErrorCode::finding_refused, finding.id + ": " + finding.message, finding.id, finding.hint});
  return blockers;
}

std::vector<Blocker> reject_blockers(PhaseEnv& env, const Migration& m) {
  const auto open = open_rejects(env.session, m.row.id);
  if (open == 0) return {};
  const bool never = m.binding.column.not_null;
  return {{ErrorCode::rejects_open,
           fmt::format("{} rows cannot be converted{}", open, never ? " and the column is NOT NULL" : ""),
           never ? "" : "rejects_open",
           fmt::format("see 'crossfade rejects {0}', fix the rows, then 'crossfade rejects {0} --retry'",
                       m.row.name)}};
}

std::string raise_unless(const std::string& condition, const std::string& what) {
  return fmt::format("IF NOT ({}) THEN RAISE EXCEPTION USING ERRCODE = 'CF001', MESSAGE = {}; END IF;\n",
                     condition, quote_literal(what));
}

std::unique_ptr<PhaseHandler> make_phase_handler(Phase phase) {
  switch (phase) {
    case Phase::planned:
      return std::make_unique<PlannedHandler>();
    case Phase::dry_run:
      return std::make_unique<DryRunHandler>();
    case Phase::backfill:
      return std::make_unique<BackfillHandler>();
    case Phase::dual_write:
      return std::make_unique<DualWriteHandler>();
    case Phase::compare:
      return std::make_unique<CompareHandler>();
    case Phase::switched:
      return std::make_unique<SwitchedHandler>();
    case Phase::dropped:
    case Phase::rolled_back:
      return std::make_unique<DroppedHandler>();
  }
  throw Error(ErrorCode::internal_error, "no handler for this phase");
}

}  // namespace crossfade

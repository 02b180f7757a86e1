// switched: the names move, the capture turns round. The most dangerous hundred lines: both directions are
// composed here, and what is composed runs in one message under one lock.
//
// What happens around it. A writer waits for the lock at most the lock budget; a statement analysed before
// finds its relation changed and is analysed again. A chunk that queued behind the lock finds the phase
// changed and writes nothing. A crash before COMMIT leaves everything as it was, after it everything as it is
// now. A lost answer is probed. A frozen client holds nothing: the server has the whole message, COMMIT
// included.
#include "handlers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include <nlohmann/json.hpp>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/phases/range_meter.hpp"
#include "crossfade/shadow/archive.hpp"
#include "crossfade/shadow/capture.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "crossfade/shadow/twins.hpp"
#include "plpgsql_readers.hpp"
#include "trigger_probe.hpp"
#include "user_triggers.hpp"

namespace crossfade {

namespace {

Migration in_phase(const Migration& m, Phase phase) {
  Migration there = m;
  there.row.phase = phase;
  there.names = physical_names(m.binding.column, phase);
  return there;
}

enum class Notes { must_be_read, are_accepted };

// Re-checked under the lock: nothing relevant changed since the comparison that counts began, and no writer
// has left a row that cannot be carried (after accepted misfits more of them are no news).
std::string recheck(PhaseEnv& env, const Migration& m, const QualifiedName& table, CompareDirection direction,
                    Notes notes) {
  auto sql = comparison_recheck_sql(env, m, direction);
  if (notes == Notes::must_be_read) {
    sql += notes_are_empty_sql(
        m, table, direction == CompareDirection::forward ? NoteDirection::forward : NoteDirection::backward);
  }
  return sql;
}

Notes notes_policy(const PhaseEnv& env, std::string_view finding) {
  const bool accepted = std::ranges::any_of(env.accepted, [&](const auto& a) { return a.id == finding; });
  return accepted ? Notes::are_accepted : Notes::must_be_read;
}

std::string rename(const QualifiedName& table, const std::string& from, const std::string& to) {
  return fmt::format("ALTER TABLE {} RENAME COLUMN {} TO {};\n", table.sql(), quote_identifier(from),
                     quote_identifier(to));
}

// What is taken away before the names move and made again by the same words after it.
void let_followers_go(Crossing& crossing, const Ledger& ledger) {
  for (const auto& entry : ledger.carried | std::views::reverse) {
    if (!is_follower(entry.kind)) continue;
    const auto stage = entry.kind == DependentKind::view          ? Stage::views_off
                       : entry.kind == DependentKind::foreign_key ? Stage::foreign_keys_off
                                                                  : Stage::let_go;
    crossing.parts.push_back({stage, entry.remove_sql});
  }
  for (const auto& entry : ledger.carried) {
    if (!is_follower(entry.kind)) continue;
    crossing.parts.push_back(
        {entry.kind == DependentKind::foreign_key ? Stage::foreign_keys : Stage::follow, entry.create_sql});
  }
}

// The foreign keys of partitioned tables that are added under the lock find what their leaves have; without
// it they would read them.
void take_forerunners_over(PhaseEnv& env, const Migration& m, const Ledger& ledger, Crossing& crossing) {
  const auto proof = forerunners_proof_sql(env.session, m, ledger);
  if (proof.empty()) return;
  crossing.recheck +=
      raise_unless(proof, "a foreign key is not proved over the other column for every partition");
  crossing.parts.push_back({Stage::foreign_keys_off, forerunners_become_sql(env.session, m, ledger)});
}

bool type_changes(const Migration& m) { return m.binding.column.old_type != m.binding.column.new_type; }

std::string compile_anew_sql(SqlSession& session, const Migration& m, const QualifiedName& table) {
  return recreate_user_triggers_sql(session, m) + recompile_functions_sql(session, m, table);
}

// A constant is kept as a literal; what is computed anew for each row as a cast of its expression, and that
// cannot be recognised in a row.
CarriedDefault carried_default(const Ledger& ledger) {
  if (ledger.find(DependentKind::identity) != nullptr) return {std::nullopt, std::nullopt, true};
  const auto* entry = ledger.find(DependentKind::default_value);
  if (entry == nullptr || !entry->new_sql) return {};
  if (entry->from_sequence) return {entry->new_sql, std::nullopt, true};
  return {entry->new_sql, entry->new_sql->starts_with("CAST(") ? std::nullopt : entry->old_sql, false};
}

std::string refreshed_fingerprint(const Migration& m) { return "fingerprint = " + fingerprint_sql(m); }

// A sequence that is past the old type would give the old column nothing that it can hold.
std::vector<Blocker> sequence_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  const auto most = greatest_of(m.binding.column.old_type);
  for (const auto& entry : load_ledger(env.session, m.row.id).carried) {
    if (entry.kind != DependentKind::sequence && entry.kind != DependentKind::identity) continue;
    const auto value = text_of(env.session.exec("SELECT last_value FROM " + entry.name).one("sequence")[0]);
    const auto past =
        env.session.exec("SELECT abs($1::numeric) > $2::numeric", {value, most}).one("sequence");
    if (!bool_of(past[0])) continue;
    blockers.push_back({ErrorCode::rollback_refused,
                        fmt::format("sequence {} stands at {}, which {} cannot hold", entry.name, value,
                                    m.binding.column.old_type),
                        "", "set it back, if no row holds such a value: SELECT setval(…)"});
  }
  return blockers;
}

double soak_left_seconds(PhaseEnv& env, const Migration& m) {
  return double_of(env.session
                       .exec("SELECT extract(epoch FROM phase_since + $2::interval - clock_timestamp()) FROM "
                             "crossfade.migration WHERE id = $1",
                             {m.row.id.text, fmt::format("{} ms", m.spec.soak.count())})
                       .one("soak")[0]);
}

}  // namespace

Crossing SwitchedHandler::enter(PhaseEnv& env, const Migration& m) {
  // The marks are read before the inventory: an index or view that comes after it changes them, and would
  // otherwise be lost without a word.
  const auto marks = read_dependent_marks(env.session, m);
  if (const auto changed = unaccepted(dependent_blockers(env, m), env.accepted); !changed.empty())
    throw error_of(changed, m.row.name);
  const TwinBuilder twins(m, current_table(env.session, m), load_ledger(env.session, m.row.id));
  return switch_crossing(env, m, marks, twins.not_null_check_valid(env.session));
}

DependentMarks read_dependent_marks(SqlSession& session, const Migration& m) {
  const auto read = [&](const std::string& sql) {
    return text_of(session.exec("SELECT " + sql).one("mark")[0]);
  };
  DependentMarks marks;
  marks.views = read(views_mark_sql(m));
  marks.view_oids = read(view_oids_sql(m));
  marks.others = read(dependents_mark_sql(m, marks.view_oids));
  return marks;
}

Crossing switch_crossing(PhaseEnv& env, const Migration& m, const DependentMarks& marks,
                         bool not_null_check_valid) {
  const auto table = current_table(env.session, m);
  auto ledger = load_ledger(env.session, m.row.id);
  find_leaf_indexes(env.session, m, BuildSet::twins, ledger);
  const auto after = in_phase(m, Phase::switched);
  const auto& column = m.binding.column;
  Crossing crossing;
  crossing.locks_table = true;
  if (ledger.find(DependentKind::view) != nullptr) {
    crossing.views_recheck =
        raise_unless(fmt::format("{} = {}", views_mark_sql(m), quote_literal(marks.views)),
                     "a view that shows the column was changed");
  }
  crossing.also_locks = locked_beside(ledger);
  crossing.recheck = recheck(env, m, table, CompareDirection::forward, notes_policy(env, "rejects_open"));
  crossing.recheck += raise_unless(
      fmt::format("{} = {}", dependents_mark_sql(m, marks.view_oids), quote_literal(marks.others)),
      "something that hangs on the column was added or changed");
  const auto probe = trigger_probe(env.session, m, table);
  crossing.parts.push_back({Stage::probe_before, probe.before});
  take_forerunners_over(env, m, ledger, crossing);
  let_followers_go(crossing, ledger);
  const auto carried = carry_over_sql(after, table, ledger, not_null_check_valid);
  crossing.parts.insert(crossing.parts.end(),
                        {{Stage::sequences, sequences_over_sql(ledger)},
                         {Stage::triggers_off, remove_triggers_sql(m, table)},
                         {Stage::keys_off, let_keys_go_sql(table, ledger)},
                         {Stage::rename, rename(table, m.names.old_column, column.retired_name) +
                                             rename(table, m.names.new_column, column.name)},
                         {Stage::carry, carried.properties},
                         {Stage::carry_twins, carried.twins},
                         {Stage::release, carried.released},
                         {Stage::capture, install_backward_sql(after, table, carried_default(ledger))}});
  if (type_changes(m))
    crossing.parts.push_back({Stage::user_triggers, compile_anew_sql(env.session, m, table)});
  crossing.parts.push_back({Stage::probe_after, probe.after});
  crossing.assignments = {refreshed_fingerprint(after)};
  if (const auto pass = newest_pass(env.session, m.row.id, "compare")) {
    crossing.evidence = nlohmann::json{{"comparison",
                                        {{"pass", pass->id},
                                         {"rows", pass->rows_read},
                                         {"differences", pass->differences},
                                         {"excepted", pass->excepted}}}}
                            .dump();
  }
  return crossing;
}

Crossing SwitchedHandler::leave_back(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  auto ledger = load_ledger(env.session, m.row.id);
  find_leaf_indexes(env.session, m, BuildSet::owed, ledger);
  const auto after = in_phase(m, Phase::compare);
  const auto& column = m.binding.column;
  Crossing crossing;
  crossing.locks_table = true;
  crossing.also_locks = locked_beside(ledger);
  crossing.recheck = recheck(env, m, table, CompareDirection::backward, notes_policy(env, "misfits_open"));
  const auto probe = trigger_probe(env.session, m, table);
  crossing.parts.push_back({Stage::probe_before, probe.before});
  if (m.spec.archive == Archive::table)
    crossing.parts.push_back({Stage::triggers_off, remove_archive_sql(m, table)});
  // Where it is needed it was proved on the way here (prepare_rollback); no row is read under the lock.
  const bool needed = needs_not_null(ledger);
  const bool proved = needed || old_not_null_is_proved(env.session, m);
  if (needed) {
    crossing.recheck +=
        raise_unless(old_not_null_proof_sql(m), "the old column is not proved NOT NULL any more");
  }
  if (const auto owed = owed_indexes_proof_sql(env.session, m, table, ledger); !owed.empty())
    crossing.recheck += raise_unless(owed, "an index of the old column is not there any more");
  take_forerunners_over(env, m, ledger, crossing);
  let_followers_go(crossing, ledger);
  const auto carried = carry_back_sql(after, table, ledger, proved);
  crossing.parts.insert(crossing.parts.end(),
                        {{Stage::sequences, sequences_back_sql(ledger)},
                         {Stage::triggers_off, remove_triggers_sql(m, table)},
                         {Stage::keys_off, let_keys_go_sql(table, ledger)},
                         {Stage::rename, rename(table, m.names.new_column, column.shadow_name) +
                                             rename(table, m.names.old_column, column.name)},
                         {Stage::carry, carried.properties},
                         {Stage::carry_twins, carried.twins},
                         {Stage::release, carried.released},
                         {Stage::capture, reinstall_forward_sql(after, table)}});
  if (type_changes(m))
    crossing.parts.push_back({Stage::user_triggers, compile_anew_sql(env.session, m, table)});
  crossing.parts.push_back({Stage::probe_after, probe.after});
  // Values written under the new name may not be what forward gives: they are replayed and compared again. A
  // misfit is over with the switch back; its notes would read as rejects.
  crossing.statements = fmt::format(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = {0}::uuid AND kind IN ('replay', "
      "'compare');\n"
      "UPDATE crossfade.misfit SET state = 'closed', closed_at = clock_timestamp() WHERE migration_id = "
      "{0}::uuid"
      " AND state = 'open';\n"
      "DELETE FROM crossfade.reject_note WHERE migration_id = {0}::uuid;\n",
      quote_literal(m.row.id.text));
  crossing.assignments = {refreshed_fingerprint(after)};
  crossing.evidence = nlohmann::json{{"misfits_open", open_misfits(env.session, m.row.id)}}.dump();
  return crossing;
}

StepResult SwitchedHandler::step(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  const auto table = current_table(env.session, m);
  const auto given_up = abandon_rollback(env, m);
  if (given_up.kind != StepResult::Kind::settled) return given_up;
  if (auto unsettled = settle_column(env, m, m.names.new_column, lock_)) return *unsettled;
  resolve_misfits(env.session, m, table);
  return run_comparison(env, m, CompareDirection::backward, slice, comparison_);
}

// Only when the drop is asked for and its time has come: until it is made or taken back, each write of the
// table costs a note.
StepResult SwitchedHandler::archive(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  if (!archive_state(env.session, m).installed) {
    env.progress(-1, -1, "making the archive");
    auto made = with_short_lock(env, m, lock_, [&](std::chrono::milliseconds wait) {
      install_archive(env.session, m, table, wait);
      return false;
    });
    return made;
  }
  env.progress(-1, -1, "archiving the old values");
  try {
    return {
        archive_step(env.session, m, table) ? StepResult::Kind::settled : StepResult::Kind::again, {}, {}};
  } catch (const Error& error) {
    // Somebody reads the archive, or the migration row is being changed.
    if (!error.is_transient()) throw;
    return {StepResult::Kind::again, {}, std::chrono::milliseconds(200)};
  }
}

StepResult SwitchedHandler::refresh(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  const bool drops = env.confirmation == m.row.name && soak_left_seconds(env, m) <= 0;
  const bool archives = m.spec.archive == Archive::table && drops && old_column_blockers(env, m).empty();
  // First, because its trigger is part of what is compared.
  if (archives && !archive_state(env.session, m).copied) {
    if (auto result = archive(env, m); result.kind != StepResult::Kind::settled) return result;
  }
  resolve_misfits(env.session, m, current_table(env.session, m));
  auto compared = run_comparison(env, m, CompareDirection::backward, slice, comparison_);
  if (!archives || compared.kind != StepResult::Kind::settled) return compared;
  // And last, what was written while the comparison went on.
  return archive(env, m);
}

void SwitchedHandler::before_attempt(PhaseEnv& env, const Migration& m) {
  const auto table = relation_name(env.session, m.row.table_oid);
  if (!table) return;
  drop_empty_notes(env.session, m, *table, NoteDirection::backward);
  // While attempts miss the lock the application goes on writing.
  if (m.spec.archive == Archive::table && env.confirmation == m.row.name &&
      archive_state(env.session, m).copied)
    archive(env, m);
}

std::vector<Blocker> SwitchedHandler::exit_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  if (auto lost = lost_key(env.session, m)) blockers.push_back(*std::move(lost));
  if (const auto left = soak_left_seconds(env, m); left > 0) {
    blockers.push_back({ErrorCode::soak_not_over,
                        fmt::format("soak = {}: {} h {} min are left", format_duration(m.spec.soak),
                                    static_cast<long>(left) / 3600, static_cast<long>(left) % 3600 / 60 + 1),
                        "", "wait; until then 'crossfade rollback " + m.row.name + "' goes back"});
  }
  for (auto& blocker : old_column_blockers(env, m)) blockers.push_back(std::move(blocker));
  for (auto& blocker : comparison_blockers(env, m, CompareDirection::backward))
    blockers.push_back(std::move(blocker));
  if (m.spec.archive == Archive::table && env.confirmation == m.row.name) {
    const auto state = archive_state(env.session, m);
    if (!state.copied || !state.log_is_short)
      blockers.push_back({ErrorCode::not_ready, "the archive of the old values is not made yet", "", ""});
  }
  if (auto missing = missing_confirmation(m.row.name, env.confirmation, "")) {
    blockers.push_back(*std::move(missing));
  }
  return blockers;
}

std::optional<Blocker> missing_confirmation(const std::string& name, const std::string& given,
                                            std::string_view options) {
  if (given == name) return std::nullopt;
  const auto wrong = given.empty() ? std::string()
                                   : fmt::format(" (--confirm names {}, the migration is {})",
                                                 display_identifier(given), name);
  return Blocker{ErrorCode::confirmation_missing,
                 "confirmation by name: dropping the old column cannot be undone" + wrong, "",
                 fmt::format("confirm it by name: crossfade next {0}{1} --confirm {0}", name, options)};
}

std::vector<Blocker> SwitchedHandler::rollback_blockers(PhaseEnv& env, const Migration& m) {
  std::vector<Blocker> blockers;
  const auto misfits = misfits_now(env.session, m);
  if (misfits > 0) {
    // Accepted, they come back as NULL, which this column cannot hold.
    const bool never = m.binding.column.not_null;
    // Without a way back only a person knows the old value. Written under the retired name it is carried
    // forward as any write by position, so that the two sides agree again.
    const auto change = m.binding.column.one_way
                            ? fmt::format(
                                  " and give each of those rows its old value: UPDATE {} SET {} = … WHERE"
                                  " …; the new value follows from it",
                                  m.row.table.display(), display_identifier(m.names.old_column))
                            : std::string(" and change them first");
    blockers.push_back(
        {ErrorCode::rollback_refused,
         fmt::format("{} written since the switch {} not fit the old column{}",
                     misfits == 1 ? "1 value" : fmt::format("{} values", misfits),
                     misfits == 1 ? "does" : "do", never ? ", which is NOT NULL" : " and would be lost"),
         never ? "" : "misfits_open",
         fmt::format("see 'crossfade misfits {}'{}", m.row.name, never ? change : "")});
  }
  if (m.binding.column.one_way) {
    blockers.push_back(
        {ErrorCode::rollback_refused,
         "the migration is one-way: rows written since the switch come back as the old column can hold them",
         "one_way_rollback", ""});
  }
  // A value that came through a proved conversion satisfies what it did before.
  if (!keeps_values(m.binding.column)) {
    for (auto& blocker : check_blockers(env, m, m.names.old_column)) blockers.push_back(std::move(blocker));
  }
  for (const auto& finding : added_since_switch(env.session, m, load_ledger(env.session, m.row.id)))
    blockers.push_back({ErrorCode::rollback_refused, finding.message, finding.id, finding.hint});
  for (auto& blocker : sequence_blockers(env, m)) blockers.push_back(std::move(blocker));
  for (auto& blocker : comparison_blockers(env, m, CompareDirection::backward))
    blockers.push_back(std::move(blocker));
  for (auto& blocker : old_snapshot_blockers(env, m)) blockers.push_back(std::move(blocker));
  return blockers;
}

Crossing recapture_crossing(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  const auto ledger = load_ledger(env.session, m.row.id);
  Crossing crossing;
  crossing.locks_table = true;
  crossing.parts = {{Stage::triggers_off, remove_triggers_sql(m, table)},
                    {Stage::capture, install_backward_sql(m, table, carried_default(ledger))}};
  if (m.spec.archive == Archive::table)
    crossing.parts.push_back({Stage::triggers_off, remove_archive_sql(m, table)});
  crossing.statements = fmt::format(
      "UPDATE crossfade.pass SET state = 'void' WHERE migration_id = {}::uuid AND kind = 'compare';\n",
      quote_literal(m.row.id.text));
  crossing.assignments = {refreshed_fingerprint(m)};
  return crossing;
}

}  // namespace crossfade

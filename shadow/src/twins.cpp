// The twins of a migration, and NOT NULL on its way from one column to the other.
#include "crossfade/shadow/twins.hpp"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "fenced_ddl.hpp"
#include "index_build.hpp"
#include "not_null.hpp"
#include "partition_twins.hpp"

namespace crossfade {

namespace {

std::string oid_text(const Migration& m) { return std::to_string(m.row.table_oid.value); }

// Takes no time once the lock is granted.
void run_under_lock(SqlSession& session, const Migration& m, const QualifiedName& table,
                    std::chrono::milliseconds lock_timeout, const std::string& statements) {
  run_fenced(session, m, table, "ACCESS EXCLUSIVE", TokenFence::held, lock_timeout, statements);
}

std::string add_check_sql(const Migration& m, const QualifiedName& table) {
  return fmt::format("ALTER TABLE {} {};\n", table.sql(),
                     add_not_null_check(new_not_null_check(m), m.names.new_column));
}

enum class CheckState { absent, not_valid, valid };

// The check of that name on exactly that column.
CheckState check_state(SqlSession& session, const Migration& m, const std::string& check,
                       const std::string& column) {
  const auto found = session.exec(
      "SELECT k.convalidated FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND "
      "a.attname = $3"
      " WHERE k.conrelid = $1::oid AND k.conname = $2 AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]",
      {oid_text(m), check, column});
  if (found.empty()) return CheckState::absent;
  return bool_of(found[0][0]) ? CheckState::valid : CheckState::not_valid;
}

// Reads the whole table; blocks neither readers nor writers. Done late it does no harm.
void validate(SqlSession& session, const Migration& m, const QualifiedName& table, const std::string& check,
              std::chrono::milliseconds lock_timeout) {
  run_fenced(session, m, table, "SHARE UPDATE EXCLUSIVE", TokenFence::read, lock_timeout,
             validate_check_sql(table, check));
}

}  // namespace

TwinBuilder::TwinBuilder(const Migration& migration, QualifiedName table, Ledger ledger, BuildSet set)
    : migration_(migration), table_(std::move(table)), ledger_(std::move(ledger)), set_(set) {}

bool TwinBuilder::step(SqlSession& session, std::chrono::milliseconds lock_timeout) {
  try {
    return one_step(session, lock_timeout);
  } catch (const Error& error) {
    throw translated(error, migration_);
  }
}

bool TwinBuilder::one_step(SqlSession& session, std::chrono::milliseconds lock_timeout) {
  for (const auto& build : all_builds_of(session, migration_, table_, ledger_, set_)) {
    switch (state_of(session, build)) {
      case BuildState::absent:
        if (!is_being_built(session, build)) build_one(session, migration_, build, lock_timeout);
        return false;
      case BuildState::broken:
        if (build.only)
          complete_one_part(session, migration_, build, lock_timeout);
        else
          drop_leftover(session, migration_, build, lock_timeout);
        return false;
      case BuildState::valid:
        break;
    }
  }
  if (set_ == BuildSet::owed) return true;
  if (!proves_not_null(migration_.binding.column)) return true;
  const auto check = new_not_null_check(migration_);
  switch (check_state(session, migration_, check, migration_.names.new_column)) {
    case CheckState::absent:
      run_under_lock(session, migration_, table_, lock_timeout, add_check_sql(migration_, table_));
      return false;
    case CheckState::not_valid:
      validate(session, migration_, table_, check, lock_timeout);
      return false;
    case CheckState::valid:
      break;
  }
  return true;
}

bool TwinBuilder::builds_next(SqlSession& session) const {
  for (const auto& build : all_builds_of(session, migration_, table_, ledger_, set_)) {
    const auto state = state_of(session, build);
    if (state == BuildState::valid) continue;
    if (build.only) return state == BuildState::broken && next_part_is_built(session, migration_, build);
    return state == BuildState::absent;
  }
  return false;
}

std::vector<std::string> TwinBuilder::missing(SqlSession& session) const {
  std::vector<std::string> words;
  for (const auto& build : all_builds_of(session, migration_, table_, ledger_, set_)) {
    switch (state_of(session, build)) {
      case BuildState::absent:
        words.push_back(in_words(build) + " is not built yet");
        break;
      case BuildState::broken:
        words.push_back(in_words(build) + " is not valid yet");
        break;
      case BuildState::valid:
        break;
    }
  }
  if (set_ == BuildSet::twins && proves_not_null(migration_.binding.column) &&
      !not_null_check_valid(session)) {
    words.push_back(fmt::format("NOT NULL of the new {} is not validated yet",
                                display_identifier(migration_.binding.column.name)));
  }
  return words;
}

bool TwinBuilder::not_null_check_valid(SqlSession& session) const {
  return check_state(session, migration_, new_not_null_check(migration_), migration_.names.new_column) ==
         CheckState::valid;
}

bool not_null_is_proved_before_switch(const ColumnBinding& column) { return proves_not_null(column); }

std::optional<std::string> build_progress(SqlSession& session, Oid table) {
  const auto found = session.exec(
      "SELECT p.phase, CASE WHEN p.blocks_total > 0 THEN p.blocks_done ELSE p.tuples_done END,"
      " CASE WHEN p.blocks_total > 0 THEN p.blocks_total ELSE p.tuples_total END,"
      " nullif(p.current_locker_pid, 0), CASE WHEN p.relid <> $1::oid THEN p.relid END"
      " FROM pg_stat_progress_create_index p"
      " WHERE p.relid = ANY ($2::oid[]) AND p.datname = current_database() ORDER BY p.pid LIMIT 1",
      {std::to_string(table.value), oid_array(tree_of(session, table))});
  if (found.empty()) return std::nullopt;
  const auto& row = found[0];
  // Of other roles' backends a plain owner sees the row and nothing in it.
  auto text = row[0].value_or("building");
  const auto done = int_of(row[1].value_or("0")), total = int_of(row[2].value_or("0"));
  if (total > 0) text += fmt::format(", {} %", 100 * done / total);
  if (row[3]) text += ", waiting for pid " + *row[3];
  // A part of an index of a partitioned table is built on its partition.
  if (!row[4]) return text;
  const auto partition = relation_name(session, Oid{static_cast<std::uint32_t>(int_of(*row[4]))});
  return partition ? partition->display() + ": " + text : text;
}

std::string drop_twins_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger) {
  std::string sql;
  for (const auto& build : builds_of(m, table, ledger, BuildSet::twins)) {
    sql += build.entry->kind == DependentKind::statistics
               ? fmt::format("DROP STATISTICS IF EXISTS {};\n",
                             QualifiedName{build.entry->schema, build.name}.sql())
               : fmt::format("DROP INDEX IF EXISTS {};\n", build.index().sql());
  }
  if (m.binding.key.partitioned) sql += drop_loose_parts_sql(m);
  return sql + fmt::format("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {};\n", table.sql(),
                           quote_identifier(new_not_null_check(m)));
}

std::string analyze_sql(SqlSession& session, const Migration& m, const QualifiedName& table,
                        const Ledger& ledger) {
  std::set<std::string> columns{m.names.new_column};
  for (const auto& entry : ledger.carried) {
    if (entry.kind != DependentKind::statistics || !is_own_twin(entry)) continue;
    const auto found = session.exec(
        "SELECT a.attname FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace"
        " JOIN pg_depend d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid"
        " AND d.refclassid = 'pg_class'::regclass AND d.refobjid = s.stxrelid AND d.refobjsubid > 0"
        " JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid"
        " WHERE n.nspname = $1 AND s.stxname = $2",
        {entry.schema, entry.name});
    for (const auto& row : found.rows) columns.insert(text_of(row[0]));
  }
  // The old object names the old columns.
  std::string list;
  for (const auto* moving : moving_together(m.binding.column)) {
    const auto names = physical_names(*moving, m.row.phase);
    if (columns.erase(names.old_column) > 0) columns.insert(names.new_column);
  }
  for (const auto& column : columns) list += (list.empty() ? "" : ", ") + quote_identifier(column);
  return fmt::format("ANALYZE {} ({})", table.sql(), list);
}

std::vector<Statement> twin_statements(SqlSession& session, const Migration& m, const QualifiedName& table,
                                       const Ledger& ledger) {
  const auto self = "SHARE UPDATE EXCLUSIVE on " + table.display();
  const auto exclusive = "ACCESS EXCLUSIVE on " + table.display() + ", in short attempts";
  std::vector<Statement> list;
  for (const auto& build : all_builds_of(session, m, table, ledger, BuildSet::twins)) {
    const bool statistics = build.entry->kind == DependentKind::statistics;
    if (build.only) {
      for (auto& statement : part_statements(session, m, build)) list.push_back(std::move(statement));
      continue;
    }
    const auto& on = build.table;
    list.push_back({in_words(build), create_build_sql(session, build),
                    "SHARE UPDATE EXCLUSIVE on " + on.display(), Blocks::nothing, true});
    if (statistics) continue;
    list.push_back({"only if its builder died", lock_against_builders_sql(on) + ";\n" + drop_build_sql(build),
                    "ACCESS EXCLUSIVE on " + on.display() + ", in short attempts", Blocks::table, true});
  }
  if (proves_not_null(m.binding.column)) {
    list.push_back({"NOT NULL of the new column, for rows written from now on", add_check_sql(m, table),
                    exclusive, Blocks::table, true});
    list.push_back({"and for every row: a scan that nobody waits for",
                    validate_check_sql(table, new_not_null_check(m)), self, Blocks::nothing, false});
  }
  list.push_back(
      {"statistics of the new column", analyze_sql(session, m, table, ledger), self, Blocks::nothing, false});
  return list;
}

std::vector<Statement> settling_statements(const Migration& m, const QualifiedName& table,
                                           const Ledger& ledger) {
  const auto& column = m.binding.column;
  const bool switched = m.row.phase == Phase::switched;
  std::vector<Statement> list;
  for (const auto& entry : ledger.carried) {
    if (!entry.validated) continue;
    list.push_back({fmt::format("constraint {} is validated{}", display_identifier(entry.name),
                                switched ? "" : ", after a way back from switched"),
                    validate_check_sql(table, entry.name), "SHARE UPDATE EXCLUSIVE on " + table.display(),
                    Blocks::nothing, false});
  }
  if (!column.not_null) return list;
  if (switched && needs_not_null(ledger)) {
    const auto proof = old_not_null_check(m);
    const auto exclusive = "ACCESS EXCLUSIVE on " + table.display() + ", in short attempts";
    list.push_back(
        {"only before a way back: NOT NULL of the old column, for rows written from now on",
         fmt::format("ALTER TABLE {} {};\n", table.sql(), add_not_null_check(proof, m.names.old_column)),
         exclusive, Blocks::table, true});
    list.push_back({"and for every row", validate_check_sql(table, proof),
                    "SHARE UPDATE EXCLUSIVE on " + table.display(), Blocks::nothing, false});
    list.push_back(
        {"only after a way back that was given up",
         fmt::format("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {};\n", table.sql(), quote_identifier(proof)),
         exclusive, Blocks::table, true});
  }
  // What the switch could set at once is settled by it.
  if (switched && proves_not_null(column)) return list;
  const auto check = switched ? new_not_null_check(m) : old_not_null_check(m);
  const auto self = "SHARE UPDATE EXCLUSIVE on " + table.display();
  const auto after = switched ? "" : ", after a way back from switched";
  // Where a primary key needs it, it was proved before the way back.
  if (switched || !needs_not_null(ledger)) {
    list.push_back({std::string("NOT NULL of the column is proved") + after, validate_check_sql(table, check),
                    self, Blocks::nothing, false});
    list.push_back({std::string("and set without a scan") + after,
                    check_into_not_null_sql(table, switched ? m.names.new_column : m.names.old_column, check),
                    "ACCESS EXCLUSIVE on " + table.display() + ", in short attempts", Blocks::table, true});
  }
  if (!switched && proves_not_null(column)) {
    list.push_back({std::string("NOT NULL of the new column, too") + after,
                    validate_check_sql(table, new_not_null_check(m)), self, Blocks::nothing, false});
  }
  return list;
}

std::optional<Unvalidated> next_unvalidated(SqlSession& session, const Migration& m,
                                            const QualifiedName& table, const Ledger& ledger) {
  for (const auto& entry : ledger.carried) {
    if (!entry.validated) continue;
    const auto on = entry.referring.value_or(m.row.table_oid);
    const auto& name = entry.referring ? entry.constraint : entry.name;
    const auto found = session.exec(
        "SELECT 1 FROM pg_constraint WHERE conrelid = $1::oid AND conname = $2 AND NOT convalidated",
        {std::to_string(on.value), name});
    if (found.empty()) continue;
    // One that is dropped in this moment needs no validation.
    if (const auto holder = entry.referring ? relation_name(session, on) : table)
      return Unvalidated{*holder, name};
  }
  return std::nullopt;
}

void validate_constraint(SqlSession& session, const Migration& m, const Unvalidated& unvalidated,
                         std::chrono::milliseconds lock_timeout) {
  validate(session, m, unvalidated.table, unvalidated.constraint, lock_timeout);
}

bool not_null_is_settled(SqlSession& session, const Migration& m, const std::string& column) {
  for (const auto& check : {new_not_null_check(m), old_not_null_check(m)}) {
    if (check_state(session, m, check, column) != CheckState::absent) return false;
  }
  return column == m.names.new_column ||
         check_state(session, m, new_not_null_check(m), m.names.new_column) != CheckState::not_valid;
}

bool old_not_null_is_proved(SqlSession& session, const Migration& m) {
  return check_state(session, m, old_not_null_check(m), m.names.old_column) == CheckState::valid;
}

std::string old_not_null_proof_sql(const Migration& m) {
  return fmt::format(
      "EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k WHERE k.conrelid = {}::oid AND k.conname = {}"
      " AND k.contype = 'c' AND k.convalidated)",
      oid_text(m), quote_literal(old_not_null_check(m)));
}

bool prove_old_not_null(SqlSession& session, const Migration& m, const QualifiedName& table,
                        std::chrono::milliseconds lock_timeout) {
  const auto check = old_not_null_check(m);
  switch (check_state(session, m, check, m.names.old_column)) {
    case CheckState::absent:
      run_under_lock(
          session, m, table, lock_timeout,
          fmt::format("ALTER TABLE {} {};\n", table.sql(), add_not_null_check(check, m.names.old_column)));
      return false;
    case CheckState::not_valid:
      validate(session, m, table, check, lock_timeout);
      return false;
    case CheckState::valid:
      break;
  }
  return true;
}

bool old_not_null_has_proof(SqlSession& session, const Migration& m) {
  return check_state(session, m, old_not_null_check(m), m.names.old_column) != CheckState::absent;
}

void drop_old_not_null_proof(SqlSession& session, const Migration& m, const QualifiedName& table,
                             std::chrono::milliseconds lock_timeout) {
  run_under_lock(session, m, table, lock_timeout,
                 fmt::format("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {};\n", table.sql(),
                             quote_identifier(old_not_null_check(m))));
}

bool settle_not_null(SqlSession& session, const Migration& m, const QualifiedName& table,
                     const std::string& column, std::chrono::milliseconds lock_timeout) {
  for (const auto& check : {new_not_null_check(m), old_not_null_check(m)}) {
    switch (check_state(session, m, check, column)) {
      case CheckState::absent:
        break;
      case CheckState::not_valid:
        validate(session, m, table, check, lock_timeout);
        return false;
      case CheckState::valid:
        run_under_lock(session, m, table, lock_timeout, check_into_not_null_sql(table, column, check));
        return false;
    }
  }
  // After a switch back the shadow has its check again, as TwinBuilder had left it.
  const bool before_switch = column != m.names.new_column;
  if (before_switch &&
      check_state(session, m, new_not_null_check(m), m.names.new_column) == CheckState::not_valid) {
    validate(session, m, table, new_not_null_check(m), lock_timeout);
    return false;
  }
  return true;
}

}  // namespace crossfade

// What can be found when a builder died, and who may touch it:
//
// - before CREATE INDEX CONCURRENTLY: no index of the generated name; the ledger, committed long before, is
// the
//   intent.
// - inside it: an index that is not valid. A living builder, even one whose client is gone, holds SHARE
// UPDATE
//   EXCLUSIVE on the table for its whole life through a lock of its session: whoever is granted that lock
//   knows the builder dead, and no other can begin while it is held.
// - after it: a valid index, which is the end.
// - a second builder, after a takeover: waits while the first one lives, or finds the name taken.
//
// Building waits for every transaction that is older than its steps, so lock_timeout is off for it: a waiting
// SHARE UPDATE EXCLUSIVE queues no reader and no writer. Everything that needs more than that has a deadline.
#include "crossfade/shadow/twins.hpp"

#include <fmt/format.h>

#include <optional>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "fenced_ddl.hpp"
#include "not_null.hpp"

namespace crossfade {

namespace {

std::string oid_text(const Migration& m) { return std::to_string(m.row.table_oid.value); }

// Takes no time once the lock is granted.
void run_under_lock(SqlSession& session, const Migration& m, const QualifiedName& table,
                    std::chrono::milliseconds lock_timeout, const std::string& statements) {
  run_fenced(session, m, table, "ACCESS EXCLUSIVE", TokenFence::held, lock_timeout, statements);
}

enum class TwinState { absent, broken, valid };

// One object to build: the twin over the new column, or the spare of a constraint's index over the old one.
struct Build {
  const Dependent* entry = nullptr;
  std::string name, definition, predicate;
  bool spare = false;
};

// A constraint takes its index with it when it goes. The spare is what the way back makes the constraint of,
// at once; it may stay because the conversion is proved one-to-one both ways.
std::vector<Build> builds_of(const Migration& m, const Ledger& ledger) {
  std::vector<Build> builds;
  for (const auto& entry : ledger.carried) {
    if (!is_twin(entry.kind)) continue;
    builds.push_back(
        {&entry, m.generated.twin(entry.name), entry.twin_definition, entry.twin_predicate, false});
    if (entry.kind == DependentKind::unique_constraint)
      builds.push_back({&entry, m.generated.retired(entry.name), entry.definition, entry.predicate, true});
  }
  return builds;
}

std::string in_words(const Build& build) {
  const auto name = display_identifier(build.entry->name);
  switch (build.entry->kind) {
    case DependentKind::statistics:
      return "the twin of statistics object " + name;
    case DependentKind::unique_constraint:
      return (build.spare ? "the spare index of constraint " : "the twin of constraint ") + name;
    default:
      return "the twin of index " + name;
  }
}

[[noreturn]] void not_ours(const Build& build, const std::string& found, const std::string& expected) {
  throw Error(ErrorCode::internal_error,
              fmt::format("{} is not {}: it is \"{}\", not \"{}\".", display_identifier(build.name),
                          in_words(build), found, expected),
              "Look who made it, drop it, and continue.", display_identifier(build.name));
}

// Statistics come into being in one statement: there is no half of them.
TwinState statistics_state(SqlSession& session, const Migration& m, const Build& build) {
  const auto found = session.exec(
      "SELECT s.stxrelid = $1::oid, pg_get_statisticsobjdef_columns(s.oid) FROM pg_statistic_ext s"
      " JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE n.nspname = $2 AND s.stxname = $3",
      {oid_text(m), build.entry->schema, build.name});
  if (found.empty()) return TwinState::absent;
  const auto columns = text_of(found[0][1]);
  if (!bool_of(found[0][0]) || !build.definition.ends_with(" ON " + columns))
    not_ours(build, columns, build.definition);
  return TwinState::valid;
}

// Throws when the name belongs to something that is not the twin: it is never touched then.
TwinState state_of(SqlSession& session, const Migration& m, const Build& build) {
  if (build.entry->kind == DependentKind::statistics) return statistics_state(session, m, build);
  const auto found = session.exec(R"sql(
SELECT coalesce(pg_get_indexdef(c.oid), 'no index'), i.indisvalid AND i.indisready AND i.indislive,
       format('CREATE %sINDEX %I ON %I.%I USING ', CASE WHEN $3::boolean THEN 'UNIQUE ' ELSE '' END, $2::text,
              n.nspname, t.relname)
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_class c ON c.relnamespace = t.relnamespace AND c.relname = $2
LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE t.oid = $1::oid)sql",
                                  {oid_text(m), build.name, build.entry->unique ? "true" : "false"});
  if (found.empty()) return TwinState::absent;
  const auto expected =
      text_of(found[0][2]) + build.definition + (build.predicate.empty() ? "" : " WHERE " + build.predicate);
  if (text_of(found[0][0]) != expected) not_ours(build, text_of(found[0][0]), expected);
  return bool_of(found[0][1]) ? TwinState::valid : TwinState::broken;
}

// What a living builder conflicts with.
std::string lock_against_builders_sql(const QualifiedName& table) {
  return fmt::format("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE", table.sql());
}

std::string add_check_sql(const Migration& m, const QualifiedName& table) {
  return fmt::format("ALTER TABLE {} {};\n", table.sql(),
                     add_not_null_check(new_not_null_check(m), m.names.new_column));
}

std::string drop_twin_sql(const QualifiedName& table, const Build& build) {
  return fmt::format("DROP INDEX {};", QualifiedName{table.schema, build.name}.sql());
}

std::string create_sql(SqlSession& session, const QualifiedName& table, const Build& build,
                       bool concurrently) {
  const auto& entry = *build.entry;
  if (entry.kind == DependentKind::statistics) {
    auto sql = fmt::format("CREATE STATISTICS {}{} FROM {}", QualifiedName{entry.schema, build.name}.sql(),
                           build.definition, table.sql());
    if (!entry.settings.empty())
      sql += fmt::format(";\nALTER STATISTICS {} {}", QualifiedName{entry.schema, build.name}.sql(),
                         entry.settings);
    if (entry.old_sql)
      sql += fmt::format(";\nCOMMENT ON STATISTICS {} IS {}", QualifiedName{entry.schema, build.name}.sql(),
                         quote_literal(*entry.old_sql));
    return sql;
  }
  // Always named: without the clause the role's default_tablespace would decide.
  auto tablespace = entry.tablespace;
  if (tablespace.empty()) {
    tablespace = text_of(session
                             .exec("SELECT s.spcname FROM pg_database d JOIN pg_tablespace s"
                                   " ON s.oid = d.dattablespace WHERE d.datname = current_database()")
                             .one("tablespace")[0]);
  }
  return fmt::format("CREATE {}INDEX {}{} ON {} USING {} TABLESPACE {}{}", entry.unique ? "UNIQUE " : "",
                     concurrently ? "CONCURRENTLY " : "", quote_identifier(build.name), table.sql(),
                     build.definition, quote_identifier(tablespace),
                     build.predicate.empty() ? "" : " WHERE " + build.predicate);
}

void drop_leftover(SqlSession& session, const Migration& m, const QualifiedName& table, const Build& build,
                   std::chrono::milliseconds lock_timeout) {
  Transaction transaction(session);
  session.exec(fmt::format("SET LOCAL lock_timeout = {}", lock_timeout.count()));
  // It blocks neither readers nor writers; a frozen client must not keep vacuum away either.
  session.exec("SET LOCAL idle_in_transaction_session_timeout = 1000");
  session.exec(lock_against_builders_sql(table));
  session.exec(token_fence_sql(m, TokenFence::held));
  if (state_of(session, m, build) != TwinState::broken) return;
  session.commit_with(drop_twin_sql(table, build));
}

// Somebody builds it now, or waits for the table to begin: a runner that was superseded, or whose client is
// gone.
bool is_being_built(SqlSession& session, const Build& build) {
  return bool_of(session
                     .exec("SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid <> pg_backend_pid()"
                           " AND a.datname = current_database() AND a.state = 'active'"
                           " AND a.query LIKE 'CREATE % CONCURRENTLY %' AND position($1 IN a.query) > 0)",
                           {quote_identifier(build.name)})
                     .one("builder")[0]);
}

// CREATE INDEX CONCURRENTLY can carry no token. Whoever sends it has said so under the token just before, in
// a transaction that no takeover can overlap; what it may still do after a takeover is to build a twin that
// the newcomer builds too. One of the two finds the name taken, and looks again.
void build_one(SqlSession& session, const Migration& m, const QualifiedName& table, const Build& build,
               std::chrono::milliseconds lock_timeout) {
  const auto sql = create_sql(session, table, build, true);
  if (build.entry->kind == DependentKind::statistics)
    return run_fenced(session, m, table, "SHARE UPDATE EXCLUSIVE", TokenFence::held, lock_timeout,
                      sql + ";\n");
  {
    Transaction intent(session);
    session.exec(token_fence_sql(m, TokenFence::held));
    session.exec(
        "UPDATE crossfade.dependent SET builder = $2 WHERE migration_id = $1 AND kind = $3 AND name = $4",
        {m.row.id.text, m.row.token.text, std::string(to_text(build.entry->kind)), build.entry->name});
    intent.commit();
  }
  session.set_lock_timeout(std::chrono::milliseconds(0));
  session.set_statement_timeout(std::chrono::milliseconds(0));
  failpoint::hit("twin.intent");
  try {
    session.exec(sql);
  } catch (const Error& error) {
    if (error.sqlstate() != "42P07") throw;
  }
  failpoint::hit("twin.built");
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

TwinBuilder::TwinBuilder(const Migration& migration, QualifiedName table, Ledger ledger)
    : migration_(migration), table_(std::move(table)), ledger_(std::move(ledger)) {}

bool TwinBuilder::step(SqlSession& session, std::chrono::milliseconds lock_timeout) {
  try {
    return one_step(session, lock_timeout);
  } catch (const Error& error) {
    throw translated(error, migration_);
  }
}

bool TwinBuilder::one_step(SqlSession& session, std::chrono::milliseconds lock_timeout) {
  for (const auto& build : builds_of(migration_, ledger_)) {
    switch (state_of(session, migration_, build)) {
      case TwinState::absent:
        if (!is_being_built(session, build)) build_one(session, migration_, table_, build, lock_timeout);
        return false;
      case TwinState::broken:
        drop_leftover(session, migration_, table_, build, lock_timeout);
        return false;
      case TwinState::valid:
        break;
    }
  }
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
  for (const auto& build : builds_of(migration_, ledger_)) {
    const auto state = state_of(session, migration_, build);
    if (state != TwinState::valid) return state == TwinState::absent;
  }
  return false;
}

std::vector<std::string> TwinBuilder::missing(SqlSession& session) const {
  std::vector<std::string> words;
  for (const auto& build : builds_of(migration_, ledger_)) {
    switch (state_of(session, migration_, build)) {
      case TwinState::absent:
        words.push_back(in_words(build) + " is not built yet");
        break;
      case TwinState::broken:
        words.push_back(in_words(build) + " is not valid yet");
        break;
      case TwinState::valid:
        break;
    }
  }
  if (proves_not_null(migration_.binding.column) && !not_null_check_valid(session)) {
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
      " nullif(p.current_locker_pid, 0) FROM pg_stat_progress_create_index p"
      " WHERE p.relid = $1::oid AND p.datname = current_database() LIMIT 1",
      {std::to_string(table.value)});
  if (found.empty()) return std::nullopt;
  const auto& row = found[0];
  // Of other roles' backends a plain owner sees the row and nothing in it.
  auto text = row[0].value_or("building");
  const auto done = int_of(row[1].value_or("0")), total = int_of(row[2].value_or("0"));
  if (total > 0) text += fmt::format(", {} %", 100 * done / total);
  if (row[3]) text += ", waiting for pid " + *row[3];
  return text;
}

std::string drop_twins_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger) {
  std::string sql;
  for (const auto& build : builds_of(m, ledger)) {
    sql += build.entry->kind == DependentKind::statistics
               ? fmt::format("DROP STATISTICS IF EXISTS {};\n",
                             QualifiedName{build.entry->schema, build.name}.sql())
               : fmt::format("DROP INDEX IF EXISTS {};\n", QualifiedName{table.schema, build.name}.sql());
  }
  return sql + fmt::format("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {};\n", table.sql(),
                           quote_identifier(new_not_null_check(m)));
}

std::string analyze_sql(const Migration& m, const QualifiedName& table) {
  return fmt::format("ANALYZE {} ({})", table.sql(), quote_identifier(m.names.new_column));
}

std::vector<Statement> twin_statements(SqlSession& session, const Migration& m, const QualifiedName& table,
                                       const Ledger& ledger) {
  const auto self = "SHARE UPDATE EXCLUSIVE on " + table.display();
  const auto exclusive = "ACCESS EXCLUSIVE on " + table.display() + ", in short attempts";
  std::vector<Statement> list;
  for (const auto& build : builds_of(m, ledger)) {
    const bool statistics = build.entry->kind == DependentKind::statistics;
    list.push_back({in_words(build), create_sql(session, table, build, true), self, Blocks::nothing, true});
    if (statistics) continue;
    list.push_back({"only if its builder died",
                    lock_against_builders_sql(table) + ";\n" + drop_twin_sql(table, build), exclusive,
                    Blocks::table, true});
  }
  if (proves_not_null(m.binding.column)) {
    list.push_back({"NOT NULL of the new column, for rows written from now on", add_check_sql(m, table),
                    exclusive, Blocks::table, true});
    list.push_back({"and for every row: a scan that nobody waits for",
                    validate_check_sql(table, new_not_null_check(m)), self, Blocks::nothing, false});
  }
  list.push_back({"statistics of the new column", analyze_sql(m, table), self, Blocks::nothing, false});
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

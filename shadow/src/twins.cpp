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
//
// Building waits for every transaction that is older than its steps, so lock_timeout is off for it: a waiting
// SHARE UPDATE EXCLUSIVE queues no reader and no writer. Everything that needs more than that has a deadline.
#include "crossfade/shadow/twins.hpp"

#include <fmt/format.h>

#include <optional>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "not_null.hpp"

namespace crossfade {

namespace {

std::string oid_text(const Migration& m) { return std::to_string(m.row.table_oid.value); }

// The clause goes into the transaction, so that the session's own setting stays as it is.
std::string deadline(std::chrono::milliseconds lock_timeout) {
  return fmt::format("SET LOCAL lock_timeout = {};\n", lock_timeout.count());
}

void run_under_lock(SqlSession& session, std::chrono::milliseconds lock_timeout,
                    const std::string& statements) {
  session.script("BEGIN;\n" + deadline(lock_timeout) + statements + "COMMIT;");
}

enum class TwinState { absent, broken, valid };

int new_attnum(SqlSession& session, const Migration& m) {
  const auto found = session.exec(
      "SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = $2"
      " AND NOT a.attisdropped",
      {oid_text(m), m.names.new_column});
  if (found.empty()) {
    throw Error(ErrorCode::table_changed,
                fmt::format("Column {} is gone from table {}.", display_identifier(m.names.new_column),
                            m.row.table.display()),
                "Roll the migration back.", m.row.table.display());
  }
  return static_cast<int>(int_of(found[0][0]));
}

// "attnum:option" for each key column, as pg_index holds them.
std::string expected_columns(SqlSession& session, const Migration& m, const Dependent& index) {
  const int shadow = new_attnum(session, m);
  std::string text;
  for (const auto& column : index.columns) {
    const int attnum = column.attnum == m.binding.column.old_attnum ? shadow : column.attnum;
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", attnum,
                        (column.descending ? 1 : 0) | (column.nulls_first ? 2 : 0));
  }
  return text;
}

// Throws when the name belongs to something that is not the twin: it is never touched then.
TwinState twin_state(SqlSession& session, const Migration& m, const Dependent& index) {
  const auto name = m.generated.twin(index.name);
  const auto found = session.exec(R"sql(
SELECT i.indrelid = $1::oid, i.indisvalid AND i.indisready AND i.indislive, i.indisunique,
       (SELECT string_agg(i.indkey[p] || ':' || i.indoption[p], ' ' ORDER BY p)
        FROM generate_series(0, i.indnkeyatts - 1) p)
         || CASE WHEN i.indpred IS NULL AND i.indexprs IS NULL THEN '' ELSE ' and more' END
FROM pg_class t JOIN pg_class c ON c.relnamespace = t.relnamespace AND c.relname = $2
LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE t.oid = $1::oid)sql",
                                  {oid_text(m), name});
  if (found.empty()) return TwinState::absent;
  const auto& row = found[0];
  const auto expected = expected_columns(session, m, index);
  const bool ours =
      row[0] && bool_of(row[0]) && bool_of(row[2]) == index.unique && text_of(row[3]) == expected;
  if (!ours) {
    throw Error(ErrorCode::internal_error,
                fmt::format("The relation {} is not the twin of index {}: its columns are {}, not {}.",
                            display_identifier(name), display_identifier(index.name), row[3].value_or("none"),
                            expected),
                "Look who made it, drop it, and continue.", display_identifier(name));
  }
  return bool_of(row[1]) ? TwinState::valid : TwinState::broken;
}

// What a living builder conflicts with.
std::string lock_against_builders_sql(const QualifiedName& table) {
  return fmt::format("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE", table.sql());
}

std::string add_check_sql(const Migration& m, const QualifiedName& table) {
  return fmt::format("ALTER TABLE {} {};\n", table.sql(),
                     add_not_null_check(new_not_null_check(m), m.names.new_column));
}

std::string drop_twin_sql(const Migration& m, const QualifiedName& table, const Dependent& index) {
  return fmt::format("DROP INDEX {};", QualifiedName{table.schema, m.generated.twin(index.name)}.sql());
}

void drop_leftover(SqlSession& session, const Migration& m, const QualifiedName& table,
                   const Dependent& index, std::chrono::milliseconds lock_timeout) {
  Transaction transaction(session);
  session.exec(fmt::format("SET LOCAL lock_timeout = {}", lock_timeout.count()));
  // It blocks neither readers nor writers; a frozen client must not keep vacuum away either.
  session.exec("SET LOCAL idle_in_transaction_session_timeout = 1000");
  session.exec(lock_against_builders_sql(table));
  if (twin_state(session, m, index) != TwinState::broken) return;
  session.commit_with(drop_twin_sql(m, table, index));
}

void build(SqlSession& session, const Migration& m, const QualifiedName& table, const Dependent& index) {
  const auto sql = create_twin_sql(session, m, table, index, true);
  session.set_lock_timeout(std::chrono::milliseconds(0));
  session.set_statement_timeout(std::chrono::milliseconds(0));
  failpoint::hit("twin.intent");
  session.exec(sql);
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

void validate(SqlSession& session, const QualifiedName& table, const std::string& check,
              std::chrono::milliseconds lock_timeout) {
  run_under_lock(session, lock_timeout, validate_check_sql(table, check));
}

}  // namespace

TwinBuilder::TwinBuilder(const Migration& migration, QualifiedName table, Ledger ledger)
    : migration_(migration), table_(std::move(table)), ledger_(std::move(ledger)) {}

bool TwinBuilder::step(SqlSession& session, std::chrono::milliseconds lock_timeout) {
  for (const auto& entry : ledger_.carried) {
    if (entry.kind != DependentKind::index) continue;
    switch (twin_state(session, migration_, entry)) {
      case TwinState::absent:
        build(session, migration_, table_, entry);
        return false;
      case TwinState::broken:
        drop_leftover(session, migration_, table_, entry, lock_timeout);
        return false;
      case TwinState::valid:
        break;
    }
  }
  if (!proves_not_null(migration_.binding.column)) return true;
  const auto check = new_not_null_check(migration_);
  switch (check_state(session, migration_, check, migration_.names.new_column)) {
    case CheckState::absent:
      run_under_lock(session, lock_timeout, add_check_sql(migration_, table_));
      return false;
    case CheckState::not_valid:
      validate(session, table_, check, lock_timeout);
      return false;
    case CheckState::valid:
      break;
  }
  return true;
}

std::vector<std::string> TwinBuilder::missing(SqlSession& session) const {
  std::vector<std::string> words;
  for (const auto& entry : ledger_.carried) {
    if (entry.kind != DependentKind::index) continue;
    const auto name = display_identifier(entry.name);
    switch (twin_state(session, migration_, entry)) {
      case TwinState::absent:
        words.push_back(fmt::format("the twin of index {} is not built yet", name));
        break;
      case TwinState::broken:
        words.push_back(fmt::format("the twin of index {} is not valid yet", name));
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

std::string create_twin_sql(SqlSession& session, const Migration& m, const QualifiedName& table,
                            const Dependent& index, bool concurrently) {
  std::string columns;
  for (const auto& column : index.columns) {
    std::string name = m.names.new_column;
    if (column.attnum != m.binding.column.old_attnum) {
      name = text_of(session
                         .exec("SELECT a.attname FROM pg_attribute a WHERE a.attrelid = $1::oid"
                               " AND a.attnum = $2::int2 AND NOT a.attisdropped",
                               {oid_text(m), std::to_string(column.attnum)})
                         .one("column")[0]);
    }
    columns += fmt::format("{}{} {} NULLS {}", columns.empty() ? "" : ", ", quote_identifier(name),
                           column.descending ? "DESC" : "ASC", column.nulls_first ? "FIRST" : "LAST");
  }
  // Always named: without the clause the role's default_tablespace would decide.
  auto tablespace = index.tablespace;
  if (tablespace.empty()) {
    tablespace = text_of(session
                             .exec("SELECT s.spcname FROM pg_database d JOIN pg_tablespace s"
                                   " ON s.oid = d.dattablespace WHERE d.datname = current_database()")
                             .one("tablespace")[0]);
  }
  return fmt::format("CREATE {}INDEX {}{} ON {} USING btree ({}){} TABLESPACE {}",
                     index.unique ? "UNIQUE " : "", concurrently ? "CONCURRENTLY " : "",
                     quote_identifier(m.generated.twin(index.name)), table.sql(), columns,
                     index.storage_options.empty() ? "" : " WITH (" + index.storage_options + ")",
                     quote_identifier(tablespace));
}

std::string drop_twins_sql(const Migration& m, const QualifiedName& table, const Ledger& ledger) {
  std::string sql;
  for (const auto& entry : ledger.carried) {
    if (entry.kind != DependentKind::index) continue;
    sql += fmt::format("DROP INDEX IF EXISTS {};\n",
                       QualifiedName{table.schema, m.generated.twin(entry.name)}.sql());
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
  for (const auto& entry : ledger.carried) {
    if (entry.kind != DependentKind::index) continue;
    list.push_back({"a twin of index " + display_identifier(entry.name),
                    create_twin_sql(session, m, table, entry, true), self, Blocks::nothing, true});
    list.push_back({"only if its builder died",
                    lock_against_builders_sql(table) + ";\n" + drop_twin_sql(m, table, entry), exclusive,
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

std::vector<Statement> settling_statements(const Migration& m, const QualifiedName& table) {
  const auto& column = m.binding.column;
  if (!column.not_null) return {};
  const bool switched = m.row.phase == Phase::switched;
  // What the switch could set at once is settled by it.
  if (switched && proves_not_null(column)) return {};
  const auto check = switched ? new_not_null_check(m) : old_not_null_check(m);
  const auto self = "SHARE UPDATE EXCLUSIVE on " + table.display();
  const auto after = switched ? "" : ", after a way back from switched";
  std::vector<Statement> list{
      {std::string("NOT NULL of the column is proved") + after, validate_check_sql(table, check), self,
       Blocks::nothing, false},
      {std::string("and set without a scan") + after,
       check_into_not_null_sql(table, switched ? m.names.new_column : m.names.old_column, check),
       "ACCESS EXCLUSIVE on " + table.display() + ", in short attempts", Blocks::table, true}};
  if (!switched && proves_not_null(column)) {
    list.push_back({std::string("NOT NULL of the new column, too") + after,
                    validate_check_sql(table, new_not_null_check(m)), self, Blocks::nothing, false});
  }
  return list;
}

bool not_null_is_settled(SqlSession& session, const Migration& m, const std::string& column) {
  for (const auto& check : {new_not_null_check(m), old_not_null_check(m)}) {
    if (check_state(session, m, check, column) != CheckState::absent) return false;
  }
  return column == m.names.new_column ||
         check_state(session, m, new_not_null_check(m), m.names.new_column) != CheckState::not_valid;
}

bool settle_not_null(SqlSession& session, const Migration& m, const QualifiedName& table,
                     const std::string& column, std::chrono::milliseconds lock_timeout) {
  for (const auto& check : {new_not_null_check(m), old_not_null_check(m)}) {
    switch (check_state(session, m, check, column)) {
      case CheckState::absent:
        break;
      case CheckState::not_valid:
        validate(session, table, check, lock_timeout);
        return false;
      case CheckState::valid:
        run_under_lock(session, lock_timeout, check_into_not_null_sql(table, column, check));
        return false;
    }
  }
  // After a switch back the shadow has its check again, as TwinBuilder had left it.
  const bool before_switch = column != m.names.new_column;
  if (before_switch &&
      check_state(session, m, new_not_null_check(m), m.names.new_column) == CheckState::not_valid) {
    validate(session, table, new_not_null_check(m), lock_timeout);
    return false;
  }
  return true;
}

}  // namespace crossfade

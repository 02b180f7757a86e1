// What can be found when a builder died, and who may touch it:
//
// - before CREATE INDEX CONCURRENTLY: no index of the generated name; the ledger, committed long before, is
//   the intent.
// - inside it: an index that is not valid. A living builder, even one whose client is gone, holds SHARE
//   UPDATE EXCLUSIVE on the table for its whole life through a lock of its session: whoever is granted that
//   lock knows the builder dead, and no other can begin while it is held. A unique one that is not valid may
//   refuse live writes all the same.
// - after it: a valid index, which is the end.
// - a second builder, after a takeover: waits while the first one lives, or finds the name taken.
//
// Building waits for every transaction that is older than its steps, so lock_timeout is off for it: a waiting
// SHARE UPDATE EXCLUSIVE queues no reader and no writer. Everything that needs more than that has a deadline.
#include "index_build.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "fenced_ddl.hpp"

namespace crossfade {

std::vector<IndexBuild> builds_of(const Migration& m, const QualifiedName& table, const Ledger& ledger,
                                  BuildSet set) {
  std::vector<IndexBuild> builds;
  const auto add = [&](const Dependent& entry, IndexBuild::Role role, const std::string& name,
                       const std::string& definition, const std::string& predicate) {
    builds.push_back({&entry, role, m.row.table_oid, table, name, definition, predicate,
                      m.binding.key.partitioned && role == IndexBuild::Role::twin && !entry.leafwise});
  };
  for (const auto& entry : ledger.carried) {
    if (!is_own_twin(entry)) continue;
    const auto retired = m.generated.retired(entry.name);
    switch (set) {
      case BuildSet::twins:
        add(entry, IndexBuild::Role::twin, m.generated.twin(entry.name), entry.twin_definition,
            entry.twin_predicate);
        // A constraint takes its index with it when it goes. The spare is what the way back makes the
        // constraint of, at once, where it may stay.
        if (entry.kind == DependentKind::unique_constraint && !entry.shed)
          add(entry, IndexBuild::Role::spare, retired, entry.definition, entry.predicate);
        break;
      case BuildSet::owed:
        if (entry.shed)
          add(entry, IndexBuild::Role::owed, retired, entry.retired_definition, entry.retired_predicate);
        break;
    }
  }
  return builds;
}

std::string in_words(const IndexBuild& build) {
  auto name = display_identifier(build.entry->name);
  if (build.entry->leafwise) name += " on " + build.table.display();
  const bool constraint = build.entry->kind == DependentKind::unique_constraint;
  switch (build.role) {
    case IndexBuild::Role::twin:
      if (build.entry->kind == DependentKind::statistics) return "the twin of statistics object " + name;
      return (constraint ? "the twin of constraint " : "the twin of index ") + name;
    case IndexBuild::Role::spare:
      return "the spare index of constraint " + name;
    case IndexBuild::Role::owed:
      break;
  }
  return (constraint ? "the old column's index for constraint " : "the old column's index ") + name;
}

namespace {

[[noreturn]] void not_ours(const IndexBuild& build, const std::string& found, const std::string& expected) {
  throw Error(ErrorCode::internal_error,
              fmt::format("{} is not {}: it is \"{}\", not \"{}\".", display_identifier(build.name),
                          in_words(build), found, expected),
              "Look who made it, drop it, and continue.", display_identifier(build.name));
}

// Statistics come into being in one statement: there is no half of them.
BuildState statistics_state(SqlSession& session, const IndexBuild& build) {
  const auto found = session.exec(
      "SELECT s.stxrelid = $1::oid, pg_get_statisticsobjdef_columns(s.oid) FROM pg_statistic_ext s"
      " JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE n.nspname = $2 AND s.stxname = $3",
      {std::to_string(build.relation.value), build.entry->schema, build.name});
  if (found.empty()) return BuildState::absent;
  const auto columns = text_of(found[0][1]);
  if (!bool_of(found[0][0]) || !build.definition.ends_with(" ON " + columns))
    not_ours(build, columns, build.definition);
  return BuildState::valid;
}

}  // namespace

BuildState state_of(SqlSession& session, const IndexBuild& build) {
  if (build.entry->kind == DependentKind::statistics) return statistics_state(session, build);
  const auto found = session.exec(
      R"sql(
SELECT coalesce(pg_get_indexdef(c.oid), 'no index'), i.indisvalid AND i.indisready AND i.indislive,
       format('CREATE %sINDEX %I ON %s%I.%I USING ', CASE WHEN $3::boolean THEN 'UNIQUE ' ELSE '' END,
              $2::text,
              CASE WHEN t.relkind = 'p' THEN 'ONLY ' ELSE '' END, n.nspname, t.relname)
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_class c ON c.relnamespace = t.relnamespace AND c.relname = $2
LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE t.oid = $1::oid)sql",
      {std::to_string(build.relation.value), build.name, build.entry->unique ? "true" : "false"});
  if (found.empty()) return BuildState::absent;
  const auto expected =
      text_of(found[0][2]) + build.definition + (build.predicate.empty() ? "" : " WHERE " + build.predicate);
  if (text_of(found[0][0]) != expected) not_ours(build, text_of(found[0][0]), expected);
  return bool_of(found[0][1]) ? BuildState::valid : BuildState::broken;
}

std::string lock_against_builders_sql(const QualifiedName& table) {
  return fmt::format("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE", table.sql());
}

std::string drop_build_sql(const IndexBuild& build) {
  return fmt::format("DROP INDEX {};", build.index().sql());
}

std::string create_build_sql(SqlSession& session, const IndexBuild& build) {
  const auto& entry = *build.entry;
  const auto& table = build.table;
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
  const auto where = build.predicate.empty() ? "" : " WHERE " + build.predicate;
  if (build.only) {
    // The default tablespace cannot be named here.
    return fmt::format("CREATE {}INDEX {} ON ONLY {} USING {}{}{}", entry.unique ? "UNIQUE " : "",
                       quote_identifier(build.name), table.sql(), build.definition,
                       entry.tablespace.empty() ? "" : " TABLESPACE " + quote_identifier(entry.tablespace),
                       where);
  }
  // Always named: without the clause the role's default_tablespace would decide.
  auto tablespace = entry.tablespace;
  if (tablespace.empty()) {
    tablespace = text_of(session
                             .exec("SELECT s.spcname FROM pg_database d JOIN pg_tablespace s"
                                   " ON s.oid = d.dattablespace WHERE d.datname = current_database()")
                             .one("tablespace")[0]);
  }
  return fmt::format("CREATE {}INDEX CONCURRENTLY {} ON {} USING {} TABLESPACE {}{}",
                     entry.unique ? "UNIQUE " : "", quote_identifier(build.name), table.sql(),
                     build.definition, quote_identifier(tablespace), where);
}

void drop_leftover(SqlSession& session, const Migration& m, const IndexBuild& build,
                   std::chrono::milliseconds lock_timeout) {
  failpoint::hit("leftover.dropping");
  Transaction transaction(session);
  session.exec(fmt::format("SET LOCAL lock_timeout = {}", lock_timeout.count()));
  // It blocks neither readers nor writers; a frozen client must not keep vacuum away either.
  session.exec("SET LOCAL idle_in_transaction_session_timeout = 1000");
  session.exec(lock_against_builders_sql(build.table));
  session.exec(token_fence_sql(m, TokenFence::held));
  if (state_of(session, build) != BuildState::broken) return;
  session.commit_with(drop_build_sql(build));
  failpoint::hit("leftover.dropped");
}

// Somebody builds it now, or waits for the table to begin: a runner that was superseded, or whose client is
// gone.
bool is_being_built(SqlSession& session, const IndexBuild& build) {
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
void build_one(SqlSession& session, const Migration& m, const IndexBuild& build,
               std::chrono::milliseconds lock_timeout) {
  const auto sql = create_build_sql(session, build);
  if (build.entry->kind == DependentKind::statistics)
    return run_fenced(session, m, build.table, "SHARE UPDATE EXCLUSIVE", TokenFence::held, lock_timeout,
                      sql + ";\n");
  if (build.only) {
    // It reads no row: the index is one of its parts, which come later. Writers wait for this lock alone.
    const auto lock = fmt::format("LOCK TABLE ONLY {} IN SHARE MODE;\n", build.table.sql());
    return run_fenced_after(session, m, lock, TokenFence::held, lock_timeout,
                            "SET LOCAL default_tablespace = '';\n" + sql + ";\n");
  }
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

}  // namespace crossfade

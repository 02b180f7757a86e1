// Indexes of the old column that the switch drops, because kept they could fail the application's writes: two
// rows that may live side by side in the new column are not proved to differ in the old one, or an expression
// is not proved to take every old value. The ledger says how they read over the old column under its retired
// name; a way back builds them again before the names move.
//
// From the first step of such a build until the way back is done or given up such a write fails, as it would
// fail after it.
#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/twins.hpp"
#include "fenced_ddl.hpp"
#include "index_build.hpp"

namespace crossfade {

namespace {

std::string drop_all_sql(const std::vector<IndexBuild>& builds) {
  std::string sql;
  for (const auto& build : builds) sql += fmt::format("DROP INDEX IF EXISTS {};\n", build.index().sql());
  return sql;
}

}  // namespace

bool owed_indexes_begun(SqlSession& session, const Migration& m, const QualifiedName& table,
                        const Ledger& ledger) {
  return std::ranges::any_of(
      all_builds_of(session, m, table, ledger, BuildSet::owed),
      [&](const IndexBuild& build) { return state_of(session, build) != BuildState::absent; });
}

// That no partition came since is told by the fingerprint.
std::string owed_indexes_proof_sql(SqlSession& session, const Migration& m, const QualifiedName& table,
                                   const Ledger& ledger) {
  std::string sql;
  for (const auto& build : all_builds_of(session, m, table, ledger, BuildSet::owed)) {
    sql += fmt::format(
        "{}EXISTS (SELECT 1 FROM pg_catalog.pg_index i WHERE i.indexrelid = pg_catalog.to_regclass({})"
        " AND i.indrelid = {}::oid AND i.indisvalid)",
        sql.empty() ? "" : " AND ", quote_literal(build.index().sql()), build.relation.value);
  }
  return sql;
}

void drop_owed_indexes(SqlSession& session, const Migration& m, const QualifiedName& table,
                       const Ledger& ledger, std::chrono::milliseconds lock_timeout) {
  auto builds = all_builds_of(session, m, table, ledger, BuildSet::owed);
  std::erase_if(builds, [&](const IndexBuild& b) { return state_of(session, b) == BuildState::absent; });
  failpoint::hit("owed.dropping");
  run_fenced(session, m, table, "ACCESS EXCLUSIVE", TokenFence::held, lock_timeout, drop_all_sql(builds));
  failpoint::hit("owed.dropped");
}

std::vector<Statement> owed_statements(SqlSession& session, const Migration& m, const QualifiedName& table,
                                       const Ledger& ledger) {
  std::vector<Statement> list;
  for (const auto& build : all_builds_of(session, m, table, ledger, BuildSet::owed)) {
    list.push_back({"only before a way back: " + in_words(build) +
                        "; from then on a write fails whose old value it refuses",
                    create_build_sql(session, build), "SHARE UPDATE EXCLUSIVE on " + build.table.display(),
                    Blocks::nothing, true});
    list.push_back({"only if that way back is given up, or the builder died", drop_all_sql({build}),
                    "ACCESS EXCLUSIVE on " + build.table.display() + ", in short attempts", Blocks::table,
                    true});
  }
  return list;
}

}  // namespace crossfade

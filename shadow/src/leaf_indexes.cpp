// UNIQUE and PRIMARY KEY of a partitioned table. ADD CONSTRAINT … USING INDEX does not exist for it; but
// adding the constraint makes a part of every leaf's constraint that is equal, and builds nothing then. So no
// index is made on the table: each leaf gets its own, which belongs to no other, and in the switch becomes
// the leaf's constraint first. A partition that comes meanwhile has none, which is seen as for any twin.
//
// There is no spare for the way back: of a partition that comes after the switch there could be none. The old
// column's indexes go with the constraint, and are owed (owed_indexes.cpp).
#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "index_build.hpp"

namespace crossfade {

namespace {

// $1 table, $2 constraint: the leaves with the names of their parts of its index.
constexpr const char* kLeaves = R"sql(
WITH RECURSIVE parts (oid, relation) AS (
  SELECT i.indexrelid, i.indrelid FROM pg_constraint k JOIN pg_index i ON i.indexrelid = k.conindid
    WHERE k.conrelid = $1::oid AND k.conname = $2
  UNION ALL SELECT i.indexrelid, i.indrelid FROM parts JOIN pg_inherits h ON h.inhparent = parts.oid
    JOIN pg_index i ON i.indexrelid = h.inhrelid)
SELECT p.relid, n.nspname, c.relname, x.relname FROM {} p JOIN parts ON parts.relation = p.relid
JOIN pg_class x ON x.oid = parts.oid JOIN pg_class c ON c.oid = p.relid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.leaf ORDER BY p.relid)sql";

std::vector<IndexBuild> of_leaves(SqlSession& session, const Migration& m, const IndexBuild& whole) {
  std::vector<IndexBuild> builds;
  const auto found = session.exec(fmt::format(kLeaves, partition_tree_sql("$1::oid")),
                                  {std::to_string(m.row.table_oid.value), whole.entry->name});
  for (const auto& row : found.rows) {
    auto build = whole;
    build.relation = Oid{static_cast<std::uint32_t>(int_of(row[0]))};
    build.table = {text_of(row[1]), text_of(row[2])};
    build.name = whole.role == IndexBuild::Role::owed ? m.generated.retired(text_of(row[3]))
                                                      : m.generated.twin(text_of(row[3]));
    builds.push_back(std::move(build));
  }
  return builds;
}

}  // namespace

std::vector<IndexBuild> all_builds_of(SqlSession& session, const Migration& m, const QualifiedName& table,
                                      const Ledger& ledger, BuildSet set) {
  std::vector<IndexBuild> builds;
  for (auto& build : builds_of(m, table, ledger, set)) {
    if (!build.entry->leafwise) {
      builds.push_back(std::move(build));
      continue;
    }
    for (auto& leaf : of_leaves(session, m, build)) builds.push_back(std::move(leaf));
  }
  return builds;
}

void find_leaf_indexes(SqlSession& session, const Migration& m, BuildSet set, Ledger& ledger) {
  for (auto& entry : ledger.carried) {
    if (!entry.leafwise || entry.kind != DependentKind::unique_constraint) continue;
    Ledger alone;
    alone.carried.push_back(entry);
    entry.leaves.clear();
    for (const auto& build : all_builds_of(session, m, {}, alone, set))
      entry.leaves.push_back({build.table, build.name});
  }
}

}  // namespace crossfade

// What is built online with CREATE INDEX CONCURRENTLY (and CREATE STATISTICS), whichever column it stands on.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/twins.hpp"

namespace crossfade {

// One object to build.
struct IndexBuild {
  enum class Role {
    twin,   // over the new column
    spare,  // over the old one, beside its constraint
    owed,   // over the old one, after the switch
  };
  const Dependent* entry = nullptr;  // of the ledger, which must outlive it
  Role role = Role::twin;
  Oid relation;  // which it stands on: the table, or a partition for a part
  QualifiedName table;
  std::string name, definition, predicate;
  bool only = false;  // of a partitioned table: without its parts, not valid until they are attached
  QualifiedName index() const { return {table.schema, name}; }
};
std::vector<IndexBuild> builds_of(const Migration& migration, const QualifiedName& table,
                                  const Ledger& ledger, BuildSet set);
// The same, with those of each leaf for a unique constraint of a partitioned table.
std::vector<IndexBuild> all_builds_of(SqlSession& session, const Migration& migration,
                                      const QualifiedName& table, const Ledger& ledger, BuildSet set);
std::string in_words(const IndexBuild& build);

enum class BuildState { absent, broken, valid };
// Throws when the name belongs to something else: it is never touched then.
BuildState state_of(SqlSession& session, const IndexBuild& build);

std::string create_build_sql(SqlSession& session, const IndexBuild& build);
std::string drop_build_sql(const IndexBuild& build);
// What a living builder conflicts with.
std::string lock_against_builders_sql(const QualifiedName& table);

bool is_being_built(SqlSession& session, const IndexBuild& build);
void build_one(SqlSession& session, const Migration& migration, const IndexBuild& build,
               std::chrono::milliseconds lock_timeout);
// Requires that it was seen broken; looks again under the lock that a living builder holds.
void drop_leftover(SqlSession& session, const Migration& migration, const IndexBuild& build,
                   std::chrono::milliseconds lock_timeout);

}  // namespace crossfade

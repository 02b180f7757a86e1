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
  std::string name, definition, predicate;
};
std::vector<IndexBuild> builds_of(const Migration& migration, const Ledger& ledger, BuildSet set);
std::string in_words(const IndexBuild& build);

enum class BuildState { absent, broken, valid };
// Throws when the name belongs to something else: it is never touched then.
BuildState state_of(SqlSession& session, const Migration& migration, const IndexBuild& build);

std::string create_build_sql(SqlSession& session, const QualifiedName& table, const IndexBuild& build);
std::string drop_build_sql(const QualifiedName& table, const IndexBuild& build);
// What a living builder conflicts with.
std::string lock_against_builders_sql(const QualifiedName& table);

// One thing towards having all of them: builds one, or drops what a dead builder left. True when all are
// valid. Throws as TwinBuilder::step.
bool step_builds(SqlSession& session, const Migration& migration, const QualifiedName& table,
                 const std::vector<IndexBuild>& builds, std::chrono::milliseconds lock_timeout);

}  // namespace crossfade

// One object that twins.cpp brings into being, and what is done with it alone.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

enum class TwinState { absent, broken, valid };

// The twin over the new column, or the spare of a constraint's index over the old one.
struct Build {
  const Dependent* entry = nullptr;
  Oid relation;  // which it stands on
  QualifiedName table;
  std::string name, definition, predicate;
  bool spare = false;
  bool only = false;  // of a partitioned table: without its parts, not valid until they are attached
  QualifiedName index() const { return {table.schema, name}; }
};

std::vector<Build> builds_of(const Migration& migration, const QualifiedName& table, const Ledger& ledger);
std::string in_words(const Build& build);
// Throws when the name belongs to something that is not the twin: it is never touched then.
TwinState state_of(SqlSession& session, const Build& build);

std::string lock_against_builders_sql(const QualifiedName& table);
std::string create_sql(SqlSession& session, const Build& build);
std::string drop_twin_sql(const Build& build);

bool is_being_built(SqlSession& session, const Build& build);
void build_one(SqlSession& session, const Migration& migration, const Build& build,
               std::chrono::milliseconds lock_timeout);
// Requires that it was seen broken; looks again under the lock that a living builder holds.
void drop_leftover(SqlSession& session, const Migration& migration, const Build& build,
                   std::chrono::milliseconds lock_timeout);

}  // namespace crossfade

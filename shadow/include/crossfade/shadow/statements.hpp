// What `plan` shows: the statements of a phase with what they lock. The texts come from the functions that
// the phases send them with, so that the two cannot part.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/comparator.hpp"

namespace crossfade {

// Whom a statement can hold up.
enum class Blocks {
  nothing,  // no reader and no writer
  rows,     // writers of the rows that it has in hand
  table,    // every reader and writer of the table, for the length of the lock
};
std::string_view to_text(Blocks blocks);

struct Statement {
  std::string what;  // in a few words
  std::string sql;   // parameters as $1, …
  std::string lock;
  Blocks blocks = Blocks::nothing;
  bool may_wait = false;  // for a lock that a writer holds
};

// A sweep or a replay, in the phase of `migration`.
std::vector<Statement> sweep_statements(const Migration& migration, const QualifiedName& table);
// The dry run. In an open transaction.
std::vector<Statement> dry_run_statements(SqlSession& session, const Migration& migration,
                                          const QualifiedName& table);
// A comparison and its repair.
std::vector<Statement> comparison_statements(const Migration& migration, const QualifiedName& table,
                                             CompareDirection direction);

}  // namespace crossfade

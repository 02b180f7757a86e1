// What an expression reaches, by the rule tree that PostgreSQL makes of it. Read only after PostgreSQL itself
// has refused the expression as not immutable, to tell a stable one from a volatile one, and to know which
// results depend on settings of the session.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {

// What one rule tree names. Pure; see rule_tree_facts().
struct TreeFacts {
  std::set<std::uint32_t> functions, operators;
  std::set<std::uint32_t> input_types, output_types;  // of conversions through text
  std::set<int> columns;                    // attribute numbers; 0 is the whole row, below it a system column
  std::set<std::string> stable, volatile_;  // nodes that are no function: CURRENT_DATE, nextval
  bool readable = true;                     // false: a conversion of a type that the tree does not tell
};

// `tree` is pg_rewrite.ev_action as text.
TreeFacts rule_tree_facts(const std::string& tree);

struct ExpressionReading {
  std::vector<std::string> stable, volatile_;  // what makes it so, as SQL shows it
  bool readable = true;
  // Functions that PostgreSQL calls immutable although their results follow a setting (interval_out before
  // 15).
  bool follows_settings = false;
  std::vector<int> columns;
};

// Reads `expression` over `relation` through a temporary view. In the caller's transaction; the view is
// undone. Throws what PostgreSQL says of the expression.
ExpressionReading read_expression(SqlSession& session, const std::string& relation,
                                  const std::string& expression);

}  // namespace crossfade

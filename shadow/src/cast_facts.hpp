// What pg_cast and PostgreSQL's own casts prove about a conversion between two types.
#pragma once

#include <optional>
#include <string>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

enum class CastKind { none, explicit_only, assignment, input_output };

// How a value of `from` becomes one of `to`: the strongest way that exists. Same type counts as assignment.
CastKind cast_kind(SqlSession& session, const TypeFacts& from, const TypeFacts& to);

struct CastProof {
  Totality totality = Totality::partial;
  std::string low, high;
  bool one_to_one = false;
};
// What is proved of the cast between two built-in types with modifiers; nullopt when nothing is.
std::optional<CastProof> cast_proof(const TypeFacts& from, const TypeFacts& to);

// `expression` coerced to `type` with assignment semantics: a value that is too long raises, it is never cut.
std::string coerced_sql(SqlSession& session, const std::string& expression, const TypeFacts& type);

}  // namespace crossfade

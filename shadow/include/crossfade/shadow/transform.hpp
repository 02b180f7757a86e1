// Expressions: judged, bound and called through the catalog (design: expressions are SQL-body functions,
// bound once).
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/finding.hpp"
#include "crossfade/core/spec.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

// Binds both directions of one column and creates their functions in schema crossfade, in the caller's
// transaction. Findings (refusals) are appended; with a refusal among them the binding is not usable.
// Requires: an open transaction, schema crossfade present. Throws spec_bad_value for a type that does not
// exist.
ColumnBinding bind_column(SqlSession& session, const TableFacts& table, const ColumnSpec& column,
                          const GeneratedNames& names, std::vector<Finding>& findings);

// DROP FUNCTION statements for everything that bind_column made, ';'-terminated; they tolerate absence.
std::string drop_functions_sql(const ColumnBinding& column);

// --- SQL of an expression; each text is complete and safe to embed in parentheses
// -------------------------------

// crossfade.f(row."a", row."b"): `row` is an alias, NEW or OLD; empty for bare column names.
std::string call_sql(const Expression& expression, const PhysicalNames& names, std::string_view row);
// The same for the try function; "NULL::text" when total.
std::string try_call_sql(const Expression& expression, const PhysicalNames& names, std::string_view row);
// The physical name of an input.
std::string input_column(const ExpressionInput& input, const PhysicalNames& names, bool forward);

// True when a and b are not identical: IS DISTINCT FROM where equality implies identity for `type`, else by
// record image. One rule for sweep, replay, trigger, comparison and misfit.
std::string differs_sql(const std::string& type, const std::string& a, const std::string& b);

}  // namespace crossfade

#include "crossfade/shadow/transform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cast_facts.hpp"
#include "crossfade/core/error.hpp"
#include "expression_judge.hpp"

namespace crossfade {

namespace {

// Settings that a result may follow. As our own sessions have them, on whatever session the function is
// called; what those do not pin is taken as it is when the migration starts.
constexpr auto kPinned = std::to_array<std::string_view>(
    {"\"TimeZone\"", "timezone_abbreviations", "\"DateStyle\"", "\"IntervalStyle\"", "extra_float_digits",
     "bytea_output", "array_nulls", "xmloption", "xmlbinary", "quote_all_identifiers", "lc_monetary",
     "lc_numeric", "lc_time", "default_text_search_config"});

std::string pinned_sql(const Expression& expression) {
  if (!expression.pinned) return {};
  std::string sql = " SET search_path = pg_catalog, pg_temp";
  for (const auto setting : kPinned) sql += fmt::format(" SET {} FROM CURRENT", setting);
  return sql;
}

std::string_view volatility(const Expression& expression) {
  return expression.stable ? "STABLE" : "IMMUTABLE";
}

// What the catalog proves total is a built-in cast, which the server may compute in several processes at
// once. Of anything else nobody has asked whether it may.
std::string_view parallel(const Expression& expression) {
  return expression.derived && expression.totality == Totality::total ? " PARALLEL SAFE" : "";
}

std::string parameter_list(const std::vector<ExpressionInput>& inputs) {
  std::string list;
  for (const auto& input : inputs) {
    list += (list.empty() ? "" : ", ") + quote_identifier(input.column) + " " + input.type;
  }
  return list;
}

std::string type_list(const std::vector<ExpressionInput>& inputs) {
  std::string list;
  for (const auto& input : inputs) list += (list.empty() ? "" : ", ") + input.type;
  return list;
}

// By number, and without names: a column named like a variable of PL/pgSQL (found, "$1") must not be taken
// for it.
std::string argument_numbers(const std::vector<ExpressionInput>& inputs) {
  std::string list;
  for (std::size_t i = 1; i <= inputs.size(); ++i) list += fmt::format("{}${}", i > 1 ? ", " : "", i);
  return list;
}

// Evaluates and tells, for readers that must go on: NULL, or 'SQLSTATE message'. Classes that say nothing
// about the value are raised again; WHEN OTHERS does not catch a cancel.
std::string try_function_sql(const Expression& expression, const TypeFacts& target) {
  const auto body = fmt::format(
      "DECLARE cf_result {};\nBEGIN\n  cf_result := crossfade.{}({});\n"
      "  RETURN NULL;\n"
      "EXCEPTION\n"
      "  WHEN transaction_rollback OR insufficient_resources OR operator_intervention OR system_error"
      " OR internal_error THEN RAISE;\n"
      "  WHEN OTHERS THEN RETURN pg_catalog.concat(SQLSTATE, ' ', SQLERRM);\nEND",
      target.base_text, quote_identifier(expression.function), argument_numbers(expression.inputs));
  return fmt::format("CREATE FUNCTION crossfade.{}({}) RETURNS text LANGUAGE plpgsql {} AS {}",
                     quote_identifier(expression.try_function), type_list(expression.inputs),
                     volatility(expression), quote_literal(body));
}

// Creates the function of a judged expression and fills in what PostgreSQL made of its text.
void create_functions(SqlSession& session, const TypeFacts& target, const std::string& expression,
                      Expression& bound) {
  session.exec(fmt::format("CREATE FUNCTION crossfade.{}({}) RETURNS {} LANGUAGE sql {}{}{} RETURN {}",
                           quote_identifier(bound.function), parameter_list(bound.inputs),
                           target.is_domain ? target.text : target.base_text, volatility(bound),
                           parallel(bound), pinned_sql(bound), coerced_sql(session, expression, target)));
  bound.text = text_of(session
                           .exec("SELECT substr(pg_get_function_sqlbody(p.oid), length('RETURN ') + 1) FROM "
                                 "pg_proc p WHERE p.proname = $1"
                                 " AND p.pronamespace = 'crossfade'::regnamespace",
                                 {bound.function})
                           .one("function")[0]);
  // The writers' own roles call it from the triggers.
  session.exec(
      fmt::format("GRANT EXECUTE ON FUNCTION crossfade.{} TO PUBLIC", quote_identifier(bound.function)));
  if (bound.totality != Totality::total) session.exec(try_function_sql(bound, target));
}

std::string drop_function_sql(const Expression& expression) {
  std::string sql;
  const auto types = type_list(expression.inputs);
  for (const auto& function : {expression.try_function, expression.function}) {
    if (function.empty()) continue;
    sql += fmt::format("DROP FUNCTION IF EXISTS crossfade.{}({});\n", quote_identifier(function), types);
  }
  return sql;
}

struct Wanted {
  std::string expression;
  bool derived = false;
};

std::optional<Expression> bind_direction(SqlSession& session, const TableFacts& table,
                                         const ColumnSpec& column, Direction direction, const Wanted& wanted,
                                         const TypeFacts& old_type, const TypeFacts& new_type,
                                         const GeneratedNames& names, std::vector<Finding>& findings) {
  const auto& from = direction == Direction::forward ? old_type : new_type;
  const auto& to = direction == Direction::forward ? new_type : old_type;
  const auto judged = judge(session, {table, column, direction, new_type, to, wanted.expression}, findings);
  if (!judged.accepted) return std::nullopt;
  Expression bound;
  bound.inputs = judged.inputs;
  bound.derived = wanted.derived;
  bound.stable = judged.stable;
  bound.pinned = judged.follows_settings;
  bound.function = names.function(word(direction));
  if (wanted.derived) {
    if (const auto proof = cast_proof(from, to)) {
      bound.totality = proof->totality;
      bound.guard_low = proof->low;
      bound.guard_high = proof->high;
      bound.one_to_one = proof->one_to_one;
      bound.strict = true;
    }
  }
  if (bound.totality != Totality::total)
    bound.try_function = names.function("try_" + std::string(word(direction)));
  create_functions(session, to, wanted.expression, bound);
  return bound;
}

}  // namespace

ColumnBinding bind_column(SqlSession& session, const TableFacts& table, const ColumnSpec& column,
                          const GeneratedNames& names, std::vector<Finding>& findings) {
  const auto* facts = table.column(column.name);
  if (facts == nullptr) {
    findings.push_back({Severity::refuse, "column_not_found", column.name,
                        fmt::format("table {} has no column {}", table.name.display(), column.name),
                        "check the name in [[column]]; quote it there as SQL would"});
    return {};
  }
  const auto old_type = resolve_type(session, facts->type_text);
  const auto new_type = resolve_type(session, column.type);
  ColumnBinding bound;
  bound.name = column.name;
  bound.old_attnum = facts->attnum;
  bound.old_type = facts->type_text;
  bound.new_type = new_type.text;
  bound.new_base_type = new_type.base_text;
  bound.shadow_name = names.shadow_column(column.name);
  bound.retired_name = names.retired_column(column.name);
  bound.not_null = facts->not_null;
  bound.on_misfit = column.on_misfit;

  const auto name = quote_identifier(column.name);
  Wanted forward{column.forward.value_or(""), !column.forward};
  if (forward.derived) {
    const auto kind = cast_kind(session, old_type, new_type);
    if (kind == CastKind::none || kind == CastKind::explicit_only) {
      findings.push_back({Severity::refuse, "expression_type", column.name,
                          fmt::format("no assignment cast leads from {} to {}", old_type.text, new_type.text),
                          "write forward (and backward) in [[column]]"});
      return bound;
    }
    forward.expression = fmt::format("CAST({} AS {})", name, new_type.base_text);
  }
  auto made = bind_direction(session, table, column, Direction::forward, forward, old_type, new_type, names,
                             findings);
  if (!made) return bound;
  bound.forward = *made;

  if (column.backward) {
    bound.backward = bind_direction(session, table, column, Direction::backward, {*column.backward, false},
                                    old_type, new_type, names, findings);
    return bound;
  }
  const auto back = cast_kind(session, new_type, old_type);
  if (back == CastKind::assignment || (back == CastKind::input_output && forward.derived)) {
    // A cast back that is not immutable is no way back, unless forward is no better and one acceptance says
    // so of both; the migration is one-way then, and says so.
    std::vector<Finding> said;
    const Wanted backward{fmt::format("CAST({} AS {})", name, old_type.base_text), true};
    bound.backward = bind_direction(session, table, column, Direction::backward, backward, old_type, new_type,
                                    names, said);
    if (bound.backward && bound.backward->stable) {
      if (bound.forward.stable) {
        findings.insert(findings.end(), said.begin(), said.end());
      } else {
        session.script(drop_function_sql(*bound.backward));
        bound.backward.reset();
      }
    }
  }
  bound.one_way = !forward.derived || !bound.backward;
  return bound;
}

std::string drop_functions_sql(const ColumnBinding& column) {
  return drop_function_sql(column.forward) + (column.backward ? drop_function_sql(*column.backward) : "");
}

std::string input_column(const ExpressionInput& input, const PhysicalNames& names, bool forward) {
  if (!input.migrated) return input.column;
  return forward ? names.old_column : names.new_column;
}

namespace {
// A migrated input with attnum 0 is the new column: only backward expressions have one.
std::string arguments(const Expression& expression, const PhysicalNames& names, std::string_view row) {
  std::string list;
  for (const auto& input : expression.inputs) {
    if (!list.empty()) list += ", ";
    if (!row.empty()) list += std::string(row) + ".";
    list += quote_identifier(input_column(input, names, input.attnum != 0));
  }
  return list;
}
}  // namespace

std::string call_sql(const Expression& expression, const PhysicalNames& names, std::string_view row) {
  return fmt::format("crossfade.{}({})", quote_identifier(expression.function),
                     arguments(expression, names, row));
}

std::string try_call_sql(const Expression& expression, const PhysicalNames& names, std::string_view row) {
  if (expression.try_function.empty()) return "NULL::pg_catalog.text";
  return fmt::format("crossfade.{}({})", quote_identifier(expression.try_function),
                     arguments(expression, names, row));
}

std::string differs_sql(const std::string& type, const std::string& a, const std::string& b) {
  // Types under whose equality no two different values are equal. text is here because the columns that
  // Crossfade makes have a deterministic collation.
  static constexpr auto kIdentity = std::to_array<std::string_view>(
      {"smallint", "integer", "bigint", "boolean", "uuid", "date", "timestamp without time zone",
       "timestamp with time zone", "bytea", "text", "character varying", "oid"});
  auto base = type.substr(0, type.find('('));
  if (const auto close = type.find(')'); close != std::string::npos) base += type.substr(close + 1);
  if (std::ranges::find(kIdentity, base) != kIdentity.end()) {
    return fmt::format("(({}) IS DISTINCT FROM ({}))", a, b);
  }
  return fmt::format("pg_catalog.record_image_ne(ROW({}), ROW({}))", a, b);
}

}  // namespace crossfade

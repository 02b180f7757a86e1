#include "crossfade/shadow/transform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cast_facts.hpp"
#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {

enum class Direction { forward, backward };

std::string_view word(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

struct Judged {
  std::vector<ExpressionInput> inputs;
  bool accepted = false;
};

// The finding for an SQLSTATE that ADD COLUMN … GENERATED ALWAYS AS answered with.
std::string finding_for(const std::string& sqlstate) {
  if (sqlstate == "42P17") return "expression_not_immutable";
  if (sqlstate == "0A000" || sqlstate == "42803" || sqlstate == "42P20") return "expression_other_relation";
  return "expression_type";
}

std::string advice_for(const std::string& id) {
  if (id == "expression_not_immutable") {
    return "use only immutable functions and operators; now(), random() and time zone dependent casts are "
           "not";
  }
  if (id == "expression_other_relation") return "an expression may read only columns of the row it converts";
  return "check the expression with SELECT on the table; names outside pg_catalog need their schema";
}

// PostgreSQL itself is the judge: a stored generated column on an empty copy of the table refuses what is not
// immutable, sub-selects, aggregates, window and set-returning functions. Everything is undone.
Judged judge(SqlSession& session, const TableFacts& table, const ColumnSpec& column, Direction direction,
             const TypeFacts& new_type, const std::string& expression, const TypeFacts& target,
             std::vector<Finding>& findings) {
  Judged judged;
  const auto refuse = [&](std::string id, const std::string& why) {
    findings.push_back(
        {Severity::refuse, id, fmt::format("{} of column {}", word(direction), column.name),
         fmt::format("the {} expression of column {} is refused: {}", word(direction), column.name, why),
         advice_for(id)});
  };
  Savepoint savepoint(session);
  try {
    session.exec(fmt::format("CREATE TEMP TABLE cf_probe (LIKE {})", table.name.sql()));
    const auto name = quote_identifier(column.name);
    if (direction == Direction::backward) {
      session.exec(fmt::format("ALTER TABLE pg_temp.cf_probe DROP COLUMN {0}, ADD COLUMN {0} {1}", name,
                               new_type.text));
    }
    session.exec(fmt::format(
        "ALTER TABLE pg_temp.cf_probe ADD COLUMN cf_value_of_probe {} GENERATED ALWAYS AS ({}) STORED",
        target.text, expression));
    // A generated column does not look at the coercion to its own type (timestamptz to timestamp passes,
    // tried on 15); the predicate of an index does.
    session.exec(fmt::format("CREATE INDEX ON pg_temp.cf_probe ((true)) WHERE {} IS NOT NULL",
                             coerced_sql(session, expression, target)));
    const auto inputs = session.exec(R"sql(
SELECT DISTINCT d.refobjsubid, a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute v
JOIN pg_attrdef ad ON ad.adrelid = v.attrelid AND ad.adnum = v.attnum
JOIN pg_depend d ON (d.classid = 'pg_attrdef'::regclass AND d.objid = ad.oid)
                 OR (d.classid = 'pg_class'::regclass AND d.objid = v.attrelid AND d.objsubid = v.attnum)
LEFT JOIN pg_attribute a ON a.attrelid = v.attrelid AND a.attnum = d.refobjsubid
WHERE v.attrelid = 'pg_temp.cf_probe'::regclass AND v.attname = 'cf_value_of_probe'
  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = v.attrelid AND d.refobjsubid <> v.attnum
ORDER BY d.refobjsubid)sql");
    for (const auto& row : inputs.rows) {
      const auto attnum = int_of(row[0]);
      const auto input = row[1].value_or("");
      if (attnum <= 0) {
        refuse("expression_other_relation", "it reads the whole row or a system column");
        return judged;
      }
      const auto* facts = table.column(input);
      if (facts != nullptr && !facts->generated.empty() && input != column.name) {
        refuse("generated_input", "it reads the generated column " + input);
        return judged;
      }
      const bool written = (direction == Direction::forward ? column.forward : column.backward).has_value();
      if (written && facts != nullptr && !facts->default_collation) {
        // A function's parameter has the type's own collation: the expression would mean something else in
        // it.
        findings.push_back(
            {Severity::refuse, "not_supported_yet", table.name.display() + "." + input,
             fmt::format("the {} expression of column {} reads column {}, which has a collation of its own",
                         word(direction), column.name, input),
             "read columns of the default collation only"});
        return judged;
      }
      const bool migrated = input == column.name;
      judged.inputs.push_back(
          {input, text_of(row[2]), migrated,
           migrated && direction == Direction::backward ? 0 : (facts != nullptr ? facts->attnum : 0)});
    }
    judged.accepted = true;
  } catch (const Error& error) {
    if (error.sqlstate().empty() || error.is_transient() || error.code() == ErrorCode::connection_lost) throw;
    savepoint.rollback();
    if (error.sqlstate() == "42501") {
      findings.push_back({Severity::refuse, "missing_privilege", table.name.display(), error.message(),
                          "GRANT TEMPORARY ON DATABASE … and USAGE, EXECUTE on what the expression uses"});
    } else {
      refuse(finding_for(error.sqlstate()), error.message());
    }
  }
  return judged;
}

std::string parameter_list(const std::vector<ExpressionInput>& inputs) {
  std::string list;
  for (const auto& input : inputs) {
    list += (list.empty() ? "" : ", ") + quote_identifier(input.column) + " " + input.type;
  }
  return list;
}

// By number: a column named like a variable of PL/pgSQL (found) must not be taken for it.
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
  return fmt::format("CREATE FUNCTION crossfade.{}({}) RETURNS text LANGUAGE plpgsql IMMUTABLE AS {}",
                     quote_identifier(expression.try_function), parameter_list(expression.inputs),
                     quote_literal(body));
}

// Creates the function of a judged expression and fills in what PostgreSQL made of its text.
void create_functions(SqlSession& session, const TypeFacts& target, const std::string& expression,
                      Expression& bound) {
  session.exec(fmt::format("CREATE FUNCTION crossfade.{}({}) RETURNS {} LANGUAGE sql IMMUTABLE RETURN {}",
                           quote_identifier(bound.function), parameter_list(bound.inputs),
                           target.is_domain ? target.text : target.base_text,
                           coerced_sql(session, expression, target)));
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
  const auto judged = judge(session, table, column, direction, new_type, wanted.expression, to, findings);
  if (!judged.accepted) return std::nullopt;
  Expression bound;
  bound.inputs = judged.inputs;
  bound.derived = wanted.derived;
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
    // A cast back that is not immutable is no way back; the migration is one-way then, and says so.
    std::vector<Finding> unused;
    const Wanted backward{fmt::format("CAST({} AS {})", name, old_type.base_text), true};
    bound.backward = bind_direction(session, table, column, Direction::backward, backward, old_type, new_type,
                                    names, unused);
  }
  bound.one_way = !forward.derived || !bound.backward;
  return bound;
}

std::string drop_functions_sql(const ColumnBinding& column) {
  std::string sql;
  const auto drop = [&](const std::string& function, const std::vector<ExpressionInput>& inputs) {
    if (function.empty()) return;
    std::string types;
    for (const auto& input : inputs) types += (types.empty() ? "" : ", ") + input.type;
    sql += fmt::format("DROP FUNCTION IF EXISTS crossfade.{}({});\n", quote_identifier(function), types);
  };
  drop(column.forward.try_function, column.forward.inputs);
  drop(column.forward.function, column.forward.inputs);
  if (column.backward) {
    drop(column.backward->try_function, column.backward->inputs);
    drop(column.backward->function, column.backward->inputs);
  }
  return sql;
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
  // Crossfade makes have the default collation, which is deterministic.
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

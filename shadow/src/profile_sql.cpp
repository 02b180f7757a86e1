// Each stage of the sub-selects computes one thing from the row of the stage before, behind CASE, so that
// nothing is evaluated on a row for which its try function failed. The forward value gets the name that the
// shadow will have: backward is then called on the row as it is called after the switch.
#include "profile_sql.hpp"

#include <fmt/format.h>

#include <set>

#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

namespace {

constexpr int kSampleKeys = 10;

std::string without_modifier(const std::string& type) {
  const auto open = type.find('(');
  const auto close = type.find(')');
  if (open == std::string::npos || close == std::string::npos) return type;
  return type.substr(0, open) + type.substr(close + 1);
}

// Columns of the table that the stages read, each once.
std::string columns_sql(const Migration& m) {
  std::set<std::string> names{m.names.old_column};
  const auto add = [&](const Expression& expression) {
    for (const auto& input : expression.inputs) {
      if (!input.migrated) names.insert(input.column);
    }
  };
  add(m.binding.column.forward);
  if (m.binding.column.backward) add(*m.binding.column.backward);
  for (const auto& column : m.binding.key.columns) names.insert(column.name);
  std::string list;
  for (const auto& name : names) list += "t." + quote_identifier(name) + ", ";
  return list;
}

// Differs in value: as record_eq() has it, whatever the search path says of "=".
std::string value_differs(const std::string& type, Equality equality, const std::string& a,
                          const std::string& b) {
  const auto image = differs_sql(type, a, b);
  if (equality == Equality::by_image) return image;
  return fmt::format("({} AND pg_catalog.record_ne(ROW({}), ROW({})))", image, a, b);
}

std::string changed_sql(const Migration& m, Equality equality, const std::string& from,
                        const std::string& to) {
  const auto& column = m.binding.column;
  if (without_modifier(column.old_type) == column.new_base_type) {
    return value_differs(column.old_type, equality, from, to);
  }
  return fmt::format("{}::text IS DISTINCT FROM {}::text", from, to);
}

// Types whose "=" is equality of value and which every cast into them can be tested with.
bool has_plain_equality(const std::string& type) {
  static const std::set<std::string> kTypes{"smallint",
                                            "integer",
                                            "bigint",
                                            "numeric",
                                            "real",
                                            "double precision",
                                            "boolean",
                                            "uuid",
                                            "date",
                                            "timestamp without time zone",
                                            "timestamp with time zone"};
  return kTypes.contains(type);
}

// What a derived cast means by a value, before the modifier of the new type is applied.
std::string unmodified(const Migration& m, const std::string& value) {
  return fmt::format("CAST({} AS {})", value, m.binding.column.new_base_type);
}

// "007" and "7" are two spellings of one number: between different types the values are compared as the new
// type has them, without its modifier, so that a rounded value still counts as another one.
std::string round_trip_differs(const Migration& m, Equality old_equality, const std::string& old_value,
                               const std::string& back) {
  const auto& column = m.binding.column;
  const bool spelled = column.forward.derived && has_plain_equality(column.new_base_type) &&
                       without_modifier(column.old_type) != column.new_base_type;
  if (!spelled) return value_differs(column.old_type, old_equality, old_value, back);
  return fmt::format(
      "CASE WHEN r.\"cf error\" IS NULL AND r.\"cf back failure\" IS NULL THEN {} IS DISTINCT FROM {} ELSE "
      "false END",
      unmodified(m, old_value), unmodified(m, back));
}

std::string rounded_sql(const Migration& m, const std::string& old_value, const std::string& new_value) {
  const auto& column = m.binding.column;
  const bool modified = column.new_type.find('(') != std::string::npos;
  if (!column.forward.derived || !modified || !has_plain_equality(column.new_base_type)) return "false";
  return fmt::format("CASE WHEN r.\"cf error\" IS NULL THEN {} IS DISTINCT FROM {} ELSE false END",
                     unmodified(m, old_value), new_value);
}

std::string stages_sql(const Migration& m, const QualifiedName& table, Tolerance tolerance,
                       const std::string& range) {
  const auto& column = m.binding.column;
  const bool round_trip = column.backward && !column.one_way;
  const auto failure = [&](const Expression& expression) {
    return tolerance == Tolerance::strict ? "NULL::text" : try_call_sql(expression, m.names, "t");
  };
  const auto shadow = quote_identifier(m.names.new_column);
  auto sql = fmt::format("SELECT {}{} AS \"cf failure\" FROM {} t WHERE {} OFFSET 0", columns_sql(m),
                         failure(column.forward), rows_sql(m.binding.key, table), range);
  sql = fmt::format("SELECT t.*, CASE WHEN t.\"cf failure\" IS NULL THEN {} END AS {} FROM ({}) t OFFSET 0",
                    call_sql(column.forward, m.names, "t"), shadow, sql);
  auto error = std::string("t.\"cf failure\"");
  if (column.not_null) {
    error = fmt::format(
        "coalesce({}, CASE WHEN t.{} IS NULL THEN '23502 null value for a column that is not null' END)",
        error, shadow);
  }
  sql = fmt::format(
      "SELECT t.*, {} AS \"cf error\", {} AS \"cf back failure\" FROM ({}) t OFFSET 0", error,
      round_trip ? fmt::format("CASE WHEN t.\"cf failure\" IS NULL THEN {} END", failure(*column.backward))
                 : "NULL::text",
      sql);
  return fmt::format(
      "SELECT t.*, {} AS \"cf back\" FROM ({}) t OFFSET 0",
      round_trip
          ? fmt::format("CASE WHEN t.\"cf error\" IS NULL AND t.\"cf back failure\" IS NULL THEN {} END",
                        call_sql(*column.backward, m.names, "t"))
          : "NULL::text",
      sql);
}

}  // namespace

std::string equality_probe_sql(const std::string& type) {
  return fmt::format("SELECT pg_catalog.record_ne(ROW(NULL::{0}), ROW(NULL::{0}))", type);
}

std::string profile_range_sql(const Migration& m, const QualifiedName& table, Equality old_equality,
                              Tolerance tolerance, const std::string& range) {
  const auto& column = m.binding.column;
  const auto old_value = "r." + quote_identifier(m.names.old_column);
  const auto new_value = "r." + quote_identifier(m.names.new_column);
  std::string lossy = "false", respelled = "false";
  if (column.backward && !column.one_way) {
    const auto differs = round_trip_differs(m, old_equality, old_value, "r.\"cf back\"");
    lossy = fmt::format("r.\"cf back failure\" IS NOT NULL OR {}", differs);
    respelled = fmt::format("r.\"cf back failure\" IS NULL AND NOT {} AND {}", differs,
                            differs_sql(column.old_type, old_value, "r.\"cf back\""));
  }
  return fmt::format(
      "SELECT left(r.\"cf error\", 5), count(*), count(*) FILTER (WHERE r.\"cf error\" IS NULL AND "
      "{changed}),"
      " count(*) FILTER (WHERE {old_value} IS NULL),"
      " count(*) FILTER (WHERE r.\"cf error\" IS NULL AND {new_value} IS NULL),"
      " count(*) FILTER (WHERE r.\"cf error\" IS NULL AND ({lossy})),"
      " count(*) FILTER (WHERE r.\"cf error\" IS NULL AND ({respelled})),"
      " count(*) FILTER (WHERE {rounded}),"
      " coalesce(min(left(substr(r.\"cf error\", 7), 500)), ''),"
      " coalesce((array_agg({key}::text) FILTER (WHERE r.\"cf error\" IS NOT NULL))[1:{samples}], '{{}}')"
      " FROM ({stages}) r GROUP BY 1",
      fmt::arg("changed", changed_sql(m, old_equality, old_value, new_value)),
      fmt::arg("old_value", old_value), fmt::arg("new_value", new_value), fmt::arg("lossy", lossy),
      fmt::arg("respelled", respelled), fmt::arg("rounded", rounded_sql(m, old_value, new_value)),
      fmt::arg("key", key_text_sql(m.binding.key, "r")), fmt::arg("samples", kSampleKeys),
      fmt::arg("stages", stages_sql(m, table, tolerance, range)));
}

}  // namespace crossfade

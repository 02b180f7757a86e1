#include "column_default.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"
#include "crossfade/shadow/transform.hpp"
#include "reading.hpp"

namespace crossfade {

namespace {

constexpr std::string_view kProbe = "pg_temp.cf_default";

// One column's default under judgement.
class DefaultJudge {
 public:
  DefaultJudge(SqlSession& session, const TableFacts& table, const ColumnFacts& facts,
               const ColumnBinding& column, std::vector<Finding>& findings)
      : session_(session),
        table_oid_(table.oid),
        facts_(facts),
        column_(column),
        findings_(findings),
        object_(table.name.display() + "." + display_identifier(facts.name)) {}

  std::optional<Dependent> carry() {
    Savepoint undone(session_);
    session_.exec(fmt::format("CREATE TEMP TABLE cf_default ({} {})", quote_identifier(column_.name),
                              facts_.type_text));
    Dependent entry;
    entry.kind = DependentKind::default_value;
    entry.name = facts_.name;
    entry.old_sql = facts_.default_text;
    const auto immutable = is_immutable();
    if (!immutable) return std::nullopt;
    if (*immutable ? !evaluate(entry) : !convert(entry)) return std::nullopt;
    return entry;
  }

 private:
  // PostgreSQL is the judge: a predicate of an index takes nothing that is not immutable, coercions included.
  // (A generated column would not look at the coercion to its own type, and fails on upper('x'); both tried
  // on 15.) nullopt: refused.
  std::optional<bool> is_immutable() {
    Savepoint attempt(session_);
    try {
      session_.exec(fmt::format("CREATE INDEX ON {} ((true)) WHERE CAST(({}) AS {}) IS NOT NULL", kProbe,
                                *facts_.default_text, facts_.type_text));
      return true;
    } catch (const Error& error) {
      if (!is_answer(error)) throw;
      attempt.rollback();
      if (error.sqlstate() == "42P17") return false;
      refuse(error.message());
      return std::nullopt;
    }
  }

  // The value once and for all, through the column's own type, as INSERT would make it.
  bool evaluate(Dependent& entry) {
    const auto& inputs = column_.forward.inputs;
    if (!std::ranges::all_of(inputs, &ExpressionInput::migrated)) {
      refuse("the forward expression reads other columns, so that there is no one value for the new default");
      return false;
    }
    Savepoint attempt(session_);
    try {
      session_.exec(fmt::format("ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {}", kProbe,
                                quote_identifier(column_.name), *facts_.default_text));
      session_.exec(fmt::format("INSERT INTO {} DEFAULT VALUES", kProbe));
      const auto call = call_sql(column_.forward, {column_.name, column_.shadow_name}, "d");
      const auto row = session_
                           .exec(fmt::format("SELECT {0} IS NOT DISTINCT FROM NULL, pg_catalog.format('%s', "
                                             "{0}), d.{1} IS NOT DISTINCT FROM NULL FROM {2} d",
                                             call, quote_identifier(column_.name), kProbe))
                           .one("default");
      const bool new_is_null = bool_of(row[0]), old_is_null = bool_of(row[2]);
      if (!new_is_null) entry.new_sql = quote_literal(text_of(row[1])) + "::" + column_.new_type;
      if (new_is_null && !old_is_null) misfit(Severity::refuse, "the forward expression makes NULL of it");
    } catch (const Error& error) {
      if (!is_answer(error)) throw;
      attempt.rollback();
      misfit(Severity::refuse, error.message());
    }
    return true;
  }

  // Computed anew for each row on the new column, too. The modifier is left to the column's assignment, which
  // checks the length; a cast would cut.
  bool convert(Dependent& entry) {
    entry.from_sequence = draws_from_sequence();
    // Any integer that it gives is one of the wider type, too.
    if (widens_integer(column_) && entry.from_sequence) {
      entry.new_sql = facts_.default_text;
      return true;
    }
    if (column_.forward.pinned) {
      refuse(
          "it is computed anew for each row, and the conversion follows settings, which a default cannot "
          "pin");
      return false;
    }
    if (!column_.forward.derived) {
      refuse("it is computed anew for each row, and the forward expression is not a plain cast");
      return false;
    }
    Savepoint attempt(session_);
    try {
      const bool domain = bool_of(
          session_.exec("SELECT typtype = 'd' FROM pg_type WHERE oid = $1::regtype", {column_.new_type})
              .one("type")[0]);
      entry.new_sql = fmt::format("CAST(CAST(({}) AS {}) AS {})", *facts_.default_text, facts_.type_text,
                                  domain ? column_.new_type : column_.new_base_type);
      session_.exec(fmt::format("ALTER TABLE {} ADD COLUMN cf_new_value {}", kProbe, column_.new_type));
      session_.exec(
          fmt::format("ALTER TABLE {} ALTER COLUMN cf_new_value SET DEFAULT {}", kProbe, *entry.new_sql));
    } catch (const Error& error) {
      if (!is_answer(error)) throw;
      attempt.rollback();
      refuse(error.message());
      return false;
    }
    misfit(Severity::warn,
           "it is computed anew for each row and converted then, which may fail for a value that the "
           "new type does not hold; an INSERT by position after the switch is taken for a conflict "
           "when two computations differ");
    return true;
  }

  bool draws_from_sequence() {
    return bool_of(
        session_
            .exec("SELECT EXISTS (SELECT 1 FROM pg_attrdef a JOIN pg_depend d ON d.classid = "
                  "'pg_attrdef'::regclass AND d.objid = a.oid AND d.refclassid = 'pg_class'::regclass"
                  " JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'"
                  " WHERE a.adrelid = $1::oid AND a.adnum = $2::int2)",
                  {std::to_string(table_oid_.value), std::to_string(facts_.attnum)})
            .one("default")[0]);
  }

  void refuse(const std::string& why) {
    findings_.push_back(
        {Severity::refuse, "dependent_not_carried", object_,
         fmt::format("The default of column {}, {}, is not carried to the new column: {}.", object_,
                     *facts_.default_text, why),
         "Drop the default for the time of the migration and let the application give the value."});
  }

  void misfit(Severity severity, const std::string& why) {
    findings_.push_back(
        {severity, "misfit_default", object_,
         fmt::format("The default of column {}, {}, may not fit the new column: {}.", object_,
                     *facts_.default_text, why),
         "Set a default that the forward expression can convert, or drop it before the start."});
  }

  SqlSession& session_;
  Oid table_oid_;
  const ColumnFacts& facts_;
  const ColumnBinding& column_;
  std::vector<Finding>& findings_;
  std::string object_;
};

}  // namespace

std::optional<Dependent> carried_default(SqlSession& session, const TableFacts& table,
                                         const ColumnFacts& facts, const ColumnBinding& column,
                                         std::vector<Finding>& findings) {
  if (facts.default_text) return DefaultJudge(session, table, facts, column, findings).carry();
  // Without a default of its own a column takes that of its type.
  const auto of_type =
      session
          .exec("SELECT t.typdefault, format_type(t.oid, -1) FROM pg_type t WHERE t.oid = $1::oid",
                {std::to_string(facts.type.value)})
          .one("type");
  if (of_type[0]) {
    findings.push_back(
        {Severity::refuse, "dependent_not_carried", text_of(of_type[1]),
         fmt::format("The default of type {}, {}, is that of column {}.{} and is not carried.",
                     text_of(of_type[1]), *of_type[0], table.name.display(), display_identifier(facts.name)),
         "Give the column a default of its own: ALTER TABLE … ALTER COLUMN … SET DEFAULT …."});
  }
  return std::nullopt;
}

}  // namespace crossfade

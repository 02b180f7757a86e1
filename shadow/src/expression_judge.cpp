#include "expression_judge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cast_facts.hpp"
#include "crossfade/core/error.hpp"
#include "rule_tree.hpp"

namespace crossfade {

std::string_view word(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

namespace {

constexpr const char* kProbe = "pg_temp.cf_probe";

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

bool is_answer(const Error& error) {
  return !error.sqlstate().empty() && !error.is_transient() && error.code() != ErrorCode::connection_lost;
}

// What is the same for all rows of one transaction and another thing in the next.
bool changes_with_time(const std::string& reached) {
  static constexpr std::string_view kNames[] = {"now()",
                                                "transaction_timestamp()",
                                                "statement_timestamp()",
                                                "age(timestamp with time zone)",
                                                "CURRENT_DATE",
                                                "CURRENT_TIME",
                                                "CURRENT_TIMESTAMP",
                                                "LOCALTIME",
                                                "LOCALTIMESTAMP"};
  return std::ranges::find(kNames, reached) != std::end(kNames);
}

class Judgement {
 public:
  Judgement(SqlSession& session, const Candidate& candidate, std::vector<Finding>& findings)
      : session_(session), c_(candidate), findings_(findings) {}

  Judged judge() {
    std::string objection;
    {
      Savepoint undone(session_);
      try {
        make_probe();
        ask_postgresql();
        read_inputs(referenced_columns());
        if (judged_.accepted) judged_.follows_settings = reading().follows_settings;
        return judged_;
      } catch (const Error& error) {
        if (!is_answer(error)) throw;
        undone.rollback();
        objection = error.message();
        if (error.sqlstate() == "42501") {
          findings_.push_back(
              {Severity::refuse, "missing_privilege", c_.table.name.display(), objection,
               "GRANT TEMPORARY ON DATABASE … and USAGE, EXECUTE on what the expression uses"});
          return judged_;
        }
        if (error.sqlstate() != "42P17") {
          refuse(finding_for(error.sqlstate()), objection);
          return judged_;
        }
      }
    }
    Savepoint undone(session_);
    try {
      make_probe();
      judge_not_immutable(reading(), objection);
    } catch (const Error& error) {
      if (!is_answer(error)) throw;
      undone.rollback();
      judged_ = {};
      refuse_for_good(objection);
    }
    return judged_;
  }

 private:
  void make_probe() {
    session_.exec(fmt::format("CREATE TEMP TABLE cf_probe (LIKE {})", c_.table.name.sql()));
    if (c_.direction == Direction::forward) return;
    session_.exec(fmt::format("ALTER TABLE {0} DROP COLUMN {1}, ADD COLUMN {1} {2}", kProbe,
                              quote_identifier(c_.column.name), c_.new_type.text));
  }

  void ask_postgresql() {
    session_.exec(
        fmt::format("ALTER TABLE {} ADD COLUMN cf_value_of_probe {} GENERATED ALWAYS AS ({}) STORED", kProbe,
                    c_.target.text, c_.expression));
    // A generated column does not look at the coercion to its own type (timestamptz to timestamp passes,
    // tried on 15); the predicate of an index does.
    session_.exec(fmt::format("CREATE INDEX ON {} ((true)) WHERE {} IS NOT NULL", kProbe,
                              coerced_sql(session_, c_.expression, c_.target)));
  }

  ExpressionReading reading() {
    return read_expression(session_, kProbe, coerced_sql(session_, c_.expression, c_.target));
  }

  std::vector<int> referenced_columns() {
    const auto found = session_.exec(R"sql(
SELECT DISTINCT d.refobjsubid
FROM pg_attribute v
JOIN pg_attrdef ad ON ad.adrelid = v.attrelid AND ad.adnum = v.attnum
JOIN pg_depend d ON (d.classid = 'pg_attrdef'::regclass AND d.objid = ad.oid)
                 OR (d.classid = 'pg_class'::regclass AND d.objid = v.attrelid AND d.objsubid = v.attnum)
WHERE v.attrelid = 'pg_temp.cf_probe'::regclass AND v.attname = 'cf_value_of_probe'
  AND d.refclassid = 'pg_class'::regclass AND d.refobjid = v.attrelid AND d.refobjsubid <> v.attnum
ORDER BY d.refobjsubid)sql");
    std::vector<int> columns;
    for (const auto& row : found.rows) columns.push_back(static_cast<int>(int_of(row[0])));
    return columns;
  }

  // Refuses, or makes the inputs of the expression and accepts it.
  void read_inputs(const std::vector<int>& columns) {
    for (const int column : columns) {
      if (column > 0) continue;
      refuse("expression_other_relation", "it reads the whole row or a system column");
      return;
    }
    const auto inputs = session_.exec(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a"
        " WHERE a.attrelid = 'pg_temp.cf_probe'::regclass AND a.attnum = ANY ($1::int2[]) ORDER BY a.attnum",
        {fmt::format("{{{}}}", fmt::join(columns, ","))});
    for (const auto& row : inputs.rows) {
      if (!add_input(text_of(row[0]), text_of(row[1]))) return;
    }
    judged_.accepted = true;
  }

  bool add_input(const std::string& input, const std::string& type) {
    const auto* facts = c_.table.column(input);
    if (facts != nullptr && !facts->generated.empty() && input != c_.column.name) {
      refuse("generated_input", "it reads the generated column " + display_identifier(input));
      return false;
    }
    const bool forward = c_.direction == Direction::forward;
    const bool written = (forward ? c_.column.forward : c_.column.backward).has_value();
    if (written && facts != nullptr && !facts->default_collation) {
      // A function's parameter has the type's own collation: the expression would mean something else in it.
      findings_.push_back(
          {Severity::refuse, "not_supported_yet", c_.table.name.display() + "." + display_identifier(input),
           fmt::format("the {} expression of column {} reads column {}, which has a collation of its own",
                       word(c_.direction), display_identifier(c_.column.name), display_identifier(input)),
           "read columns of the default collation only"});
      return false;
    }
    const bool migrated = input == c_.column.name;
    judged_.inputs.push_back(
        {input, type, migrated, migrated && !forward ? 0 : (facts != nullptr ? facts->attnum : 0)});
    return true;
  }

  void judge_not_immutable(const ExpressionReading& reading, const std::string& objection) {
    if (!reading.volatile_.empty()) {
      refuse_for_good(fmt::format("{} is volatile: it gives another value each time",
                                  fmt::join(reading.volatile_, ", ")));
      return;
    }
    if (!reading.readable || reading.stable.empty()) {
      refuse_for_good(objection);
      return;
    }
    read_inputs(reading.columns);
    if (!judged_.accepted) return;
    judged_.stable = judged_.follows_settings = true;
    const bool with_time = std::ranges::any_of(reading.stable, changes_with_time);
    refuse(
        "expression_not_immutable",
        fmt::format("{} is only stable: {}", fmt::join(reading.stable, ", "),
                    with_time ? "it gives another value in a later transaction, so that no comparison will "
                                "come out clean"
                              : "its result follows settings of the session"),
        with_time ? "take the time from a column of the row"
                  : "use an immutable one (AT TIME ZONE 'UTC', for example); once accepted it is computed "
                    "under pinned settings (TimeZone UTC, DateStyle ISO and the like) in every session");
  }

  void refuse(const std::string& id, const std::string& why, const std::string& hint = {}) {
    findings_.push_back({Severity::refuse, id,
                         fmt::format("{} of column {}", word(c_.direction), c_.column.name),
                         fmt::format("the {} expression of column {} is refused: {}", word(c_.direction),
                                     c_.column.name, why),
                         hint.empty() ? advice_for(id) : hint});
  }

  void refuse_for_good(const std::string& why) {
    refuse("expression_not_immutable", why);
    findings_.back().never_accepted = true;
  }

  SqlSession& session_;
  const Candidate& c_;
  std::vector<Finding>& findings_;
  Judged judged_;
};

}  // namespace

Judged judge(SqlSession& session, const Candidate& candidate, std::vector<Finding>& findings) {
  return Judgement(session, candidate, findings).judge();
}

}  // namespace crossfade

#include "reading.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/error.hpp"

namespace crossfade {

bool is_answer(const Error& error) {
  return !error.sqlstate().empty() && !error.is_transient() && error.code() != ErrorCode::connection_lost;
}

std::string comment_sql(const std::string& what, const SqlValue& text) {
  return text ? fmt::format("COMMENT ON {} IS {};\n", what, quote_literal(*text)) : "";
}

namespace {

// The new column gets the collation of the old one when its type has collations at all.
std::string collation_of(SqlSession& session, Oid table, const ColumnBinding& column) {
  const auto found = session.exec(
      "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) FROM pg_attribute a"
      " JOIN pg_type t ON t.oid = a.atttypid AND a.attcollation <> t.typcollation"
      " JOIN pg_collation c ON c.oid = a.attcollation JOIN pg_namespace n ON n.oid = c.collnamespace"
      " WHERE a.attrelid = $2::oid AND a.attnum = $3::int2"
      " AND (SELECT typcollation <> 0 FROM pg_type WHERE oid = $1::regtype)",
      {column.new_type, std::to_string(table.value), std::to_string(column.old_attnum)});
  return found.empty() ? std::string() : text_of(found[0][0]);
}

}  // namespace

Clone::Clone(SqlSession& session, const TableFacts& table, const ColumnBinding& column)
    : session_(session),
      columns_(moving_together(column)),
      sql_("pg_temp." + quote_identifier(table.name.name)),
      undone_(session) {
  // The new columns come into being in this order.
  std::ranges::sort(columns_, {}, &ColumnBinding::old_attnum);
  std::vector<std::string> collations;
  for (const auto* moving : columns_) collations.push_back(collation_of(session, table.oid, *moving));
  // A temporary table brings a type of its name, which is found first unless its schema is named last.
  session_.exec("SET LOCAL search_path = pg_catalog, pg_temp");
  std::string columns;
  for (const auto& other : table.columns) {
    // The same words in every phase, whether the shadows exist or not.
    if (std::ranges::find(columns_, other.name, &ColumnBinding::shadow_name) != columns_.end()) continue;
    columns += quote_identifier(other.name);
    if (const auto moving = std::ranges::find(columns_, other.name, &ColumnBinding::name);
        moving != columns_.end())
      columns += " AS " + quote_identifier((*moving)->retired_name);
    columns += ", ";
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    columns += fmt::format("{}CAST(NULL AS {}){} AS {}", i > 0 ? ", " : "", columns_[i]->new_type,
                           collations[i].empty() ? "" : " COLLATE " + collations[i],
                           quote_identifier(columns_[i]->name));
  }
  session_.exec(fmt::format("CREATE TEMP TABLE {} AS SELECT {} FROM {} WITH NO DATA",
                            quote_identifier(table.name.name), columns, table.name.sql()));
}

std::optional<std::string> Clone::objection(const std::string& statement) const {
  Savepoint attempt(session_);
  try {
    session_.script(statement);
    return std::nullopt;
  } catch (const Error& error) {
    if (!is_answer(error)) throw;
    attempt.rollback();
    return error.message();
  }
}

void Clone::rename(std::string ColumnBinding::*from, std::string ColumnBinding::*to) const {
  for (const auto* column : columns_) {
    session_.exec(fmt::format("ALTER TABLE {} RENAME COLUMN {} TO {}", sql_, quote_identifier(column->*from),
                              quote_identifier(column->*to)));
  }
}

std::string Clone::over_shadow(const std::string& statement, const std::string& reading) const {
  const Savepoint undone(session_);
  session_.exec(statement);
  rename(&ColumnBinding::name, &ColumnBinding::shadow_name);
  rename(&ColumnBinding::retired_name, &ColumnBinding::name);
  return text_of(session_.exec("SELECT " + reading).one("definition")[0]);
}

std::string Clone::over_retired(const std::string& statement, const std::string& reading) const {
  const Savepoint undone(session_);
  rename(&ColumnBinding::name, &ColumnBinding::shadow_name);
  rename(&ColumnBinding::retired_name, &ColumnBinding::name);
  session_.exec(statement);
  rename(&ColumnBinding::name, &ColumnBinding::retired_name);
  return text_of(session_.exec("SELECT " + reading).one("definition")[0]);
}

namespace {

std::string hint_for(ReferenceKind kind) {
  switch (kind) {
    case ReferenceKind::index:
      return "Drop the index before the migration and build it again after it.";
    case ReferenceKind::constraint:
      return "Drop the constraint before the migration and add it again after it: a foreign key or a check "
             "NOT VALID, then VALIDATE CONSTRAINT; a unique or primary key constraint with ADD CONSTRAINT … "
             "USING INDEX, from a unique index built CONCURRENTLY.";
    case ReferenceKind::trigger:
      return "Drop the trigger, or make it one without a column list and without this column in WHEN.";
    case ReferenceKind::view:
    case ReferenceKind::materialised_view:
    case ReferenceKind::rule:
      return "Drop it before the migration and create it again after it.";
    case ReferenceKind::policy:
      return "Drop the policy before the migration and create it again after it.";
    case ReferenceKind::statistics:
      return "Drop the statistics object before the migration and create it again after it.";
    case ReferenceKind::function:
      return "Write the body as a string (AS '…') for the time of the migration, so that it names the "
             "column.";
    case ReferenceKind::generated_column:
      return "Drop the generated column before the migration and add it again after it.";
    case ReferenceKind::own_generation:
      return "A generated column takes its new type and content from its expression: ALTER TABLE does it.";
    case ReferenceKind::sequence:
      return "Migrate a column without identity or serial default, or detach the sequence: ALTER SEQUENCE … "
             "OWNED BY NONE.";
    case ReferenceKind::publication:
      return "Let the publication's owner publish the whole row: ALTER PUBLICATION … SET TABLE without "
             "column list and row filter.";
    case ReferenceKind::partition_key:
      return "A partition key cannot be migrated.";
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
    case ReferenceKind::unknown:
      break;
  }
  return "Drop it before the migration and create it again after it.";
}

}  // namespace

Reading::Reading(SqlSession& s, const TableFacts& t, const ColumnFacts& f, const ColumnBinding& c,
                 std::vector<Finding>& found)
    : session(s),
      table(t),
      facts(f),
      column(c),
      findings(found),
      object_(t.name.display() + "." + display_identifier(f.name)),
      collation_(collation_of(s, t.oid, c)) {}

Dependent& Reading::carry(DependentKind kind, std::string name) {
  Dependent entry;
  entry.kind = kind;
  entry.name = std::move(name);
  ledger.carried.push_back(std::move(entry));
  return ledger.carried.back();
}

void Reading::refuse(const Reference& reference, const std::string& why) {
  refuse(reference.identity,
         fmt::format("{} hangs on column {} and is not carried to the new one{}.", reference.description,
                     object_, why.empty() ? "" : ": " + why),
         hint_for(reference.kind));
}

void Reading::refuse(const std::string& object, const std::string& message, const std::string& hint) {
  findings.push_back({Severity::refuse, "dependent_not_carried", object, message, hint});
}

bool Reading::keeps_values() const { return crossfade::keeps_values(column); }

const Clone& Reading::clone() {
  if (!clone_) clone_.emplace(session, table, column);
  return *clone_;
}

std::string Reading::moving_attnums() const {
  std::vector<std::optional<std::string>> attnums;
  for (const auto* moving : moving_together(column)) attnums.emplace_back(std::to_string(moving->old_attnum));
  return array_literal(attnums);
}

std::string Reading::carried_by(std::int64_t first_attnum) const {
  for (const auto& companion : column.companions) {
    if (companion.old_attnum == first_attnum) return companion.name;
  }
  return {};
}

bool Reading::acts_as(const std::string& role) {
  constexpr int kSetOption = 160000;
  return bool_of(session
                     .exec("SELECT pg_has_role(current_user, $1::name, $2)",
                           {role, session.identity().version_num >= kSetOption ? "SET" : "MEMBER"})
                     .one("role")[0]);
}

}  // namespace crossfade

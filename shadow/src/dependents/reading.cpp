#include "reading.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"

namespace crossfade {

bool is_answer(const Error& error) {
  return !error.sqlstate().empty() && !error.is_transient() && error.code() != ErrorCode::connection_lost;
}

std::string comment_sql(const std::string& what, const SqlValue& text) {
  return text ? fmt::format("COMMENT ON {} IS {};\n", what, quote_literal(*text)) : "";
}

Clone::Clone(SqlSession& session, const TableFacts& table, const ColumnBinding& column,
             const std::string& collation)
    : session_(session),
      column_(column),
      sql_("pg_temp." + quote_identifier(table.name.name)),
      undone_(session) {
  // A temporary table brings a type of its name, which is found first unless its schema is named last.
  session_.exec("SET LOCAL search_path = pg_catalog, pg_temp");
  std::string columns;
  for (const auto& other : table.columns) {
    if (other.name == column.shadow_name) continue;
    columns += quote_identifier(other.name);
    if (other.name == column.name) columns += " AS " + quote_identifier(column.retired_name);
    columns += ", ";
  }
  // The same words in every phase, whether the shadow exists or not.
  session_.exec(fmt::format("CREATE TEMP TABLE {} AS SELECT {}CAST(NULL AS {}){} AS {} FROM {} WITH NO DATA",
                            quote_identifier(table.name.name), columns, column.new_type,
                            collation.empty() ? "" : " COLLATE " + collation, quote_identifier(column.name),
                            table.name.sql()));
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

void Clone::rename(const std::string& from, const std::string& to) const {
  session_.exec(fmt::format("ALTER TABLE {} RENAME COLUMN {} TO {}", sql_, quote_identifier(from),
                            quote_identifier(to)));
}

std::string Clone::over_shadow(const std::string& statement, const std::string& reading) const {
  const Savepoint undone(session_);
  session_.exec(statement);
  rename(column_.name, column_.shadow_name);
  rename(column_.retired_name, column_.name);
  return text_of(session_.exec("SELECT " + reading).one("definition")[0]);
}

std::string Clone::over_retired(const std::string& statement, const std::string& reading) const {
  const Savepoint undone(session_);
  rename(column_.name, column_.shadow_name);
  rename(column_.retired_name, column_.name);
  session_.exec(statement);
  rename(column_.name, column_.retired_name);
  return text_of(session_.exec("SELECT " + reading).one("definition")[0]);
}

namespace {

// The new column gets the collation of the old one when its type has collations at all.
std::string collation_of(SqlSession& session, const TableFacts& table, const ColumnFacts& facts,
                         const ColumnBinding& column) {
  if (facts.default_collation) return {};
  const auto found = session.exec(
      "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.collname) FROM pg_attribute a"
      " JOIN pg_collation c ON c.oid = a.attcollation JOIN pg_namespace n ON n.oid = c.collnamespace"
      " WHERE a.attrelid = $2::oid AND a.attnum = $3::int2"
      " AND (SELECT typcollation <> 0 FROM pg_type WHERE oid = $1::regtype)",
      {column.new_type, std::to_string(table.oid.value), std::to_string(facts.attnum)});
  return found.empty() ? std::string() : text_of(found[0][0]);
}

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
      collation_(collation_of(s, t, f, c)) {}

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
  if (!clone_) clone_.emplace(session, table, column, collation_);
  return *clone_;
}

bool Reading::acts_as(const std::string& role) {
  constexpr int kSetOption = 160000;
  return bool_of(session
                     .exec("SELECT pg_has_role(current_user, $1::name, $2)",
                           {role, session.identity().version_num >= kSetOption ? "SET" : "MEMBER"})
                     .one("role")[0]);
}

}  // namespace crossfade

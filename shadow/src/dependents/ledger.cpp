#include "crossfade/shadow/dependents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "column_default.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "reading.hpp"

namespace crossfade {

using nlohmann::json;

namespace {

constexpr auto kKinds = std::to_array<std::pair<DependentKind, std::string_view>>({
    {DependentKind::not_null, "not_null"},
    {DependentKind::default_value, "default_value"},
    {DependentKind::comment, "comment"},
    {DependentKind::column_setting, "column_setting"},
    {DependentKind::index, "index"},
    {DependentKind::unique_constraint, "unique_constraint"},
    {DependentKind::statistics, "statistics"},
    {DependentKind::check, "check"},
    {DependentKind::foreign_key, "foreign_key"},
    {DependentKind::policy, "policy"},
    {DependentKind::rule, "rule"},
    {DependentKind::trigger, "trigger"},
    {DependentKind::sql_function, "sql_function"},
    {DependentKind::publication, "publication"},
    {DependentKind::column_grant, "column_grant"},
    {DependentKind::sequence, "sequence"},
    {DependentKind::identity, "identity"},
    {DependentKind::view, "view"},
});

}  // namespace

std::string_view to_text(DependentKind kind) {
  return std::ranges::find(kKinds, kind, &std::pair<DependentKind, std::string_view>::first)->second;
}

bool is_own_twin(const Dependent& entry) {
  const bool twin = entry.kind == DependentKind::index || entry.kind == DependentKind::unique_constraint ||
                    entry.kind == DependentKind::statistics;
  return twin && entry.carried_by.empty();
}

bool is_follower(DependentKind kind) { return kind >= DependentKind::check; }

const Dependent* Ledger::find(DependentKind kind) const {
  const auto found = std::ranges::find(carried, kind, &Dependent::kind);
  return found == carried.end() ? nullptr : &*found;
}

bool needs_not_null(const Ledger& ledger) {
  return ledger.find(DependentKind::not_null) != nullptr &&
         std::ranges::any_of(ledger.carried, [](const Dependent& entry) {
           return entry.replica_identity || entry.constraint_kind == "PRIMARY KEY" ||
                  entry.kind == DependentKind::identity;
         });
}

namespace {

DependentKind kind_from(const std::string& text) {
  const auto found = std::ranges::find(kKinds, text, &std::pair<DependentKind, std::string_view>::second);
  if (found != kKinds.end()) return found->first;
  throw Error(ErrorCode::schema_version,
              fmt::format("The state holds the unknown kind of dependent '{}'.", text),
              "Use the version of crossfade that wrote it.");
}

// What of a partitioned table cannot be carried yet, in words; empty for the rest.
std::string not_of_partitioned(const Reference& reference) {
  switch (reference.kind) {
    case ReferenceKind::statistics:
    case ReferenceKind::trigger:
    case ReferenceKind::publication:
      return "the table is partitioned";
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
    case ReferenceKind::index:
    case ReferenceKind::constraint:
    case ReferenceKind::sequence:
    case ReferenceKind::view:
    case ReferenceKind::materialised_view:
    case ReferenceKind::rule:
    case ReferenceKind::policy:
    case ReferenceKind::function:
    case ReferenceKind::generated_column:
    case ReferenceKind::own_generation:
    case ReferenceKind::partition_key:
    case ReferenceKind::unknown:
      break;
  }
  return {};
}

void take_one(Reading& reading, const Reference& reference) {
  if (reading.table.kind == "p") {
    if (const auto why = not_of_partitioned(reference); !why.empty()) return reading.refuse(reference, why);
  }
  // Views are asked where they are taken, together with those on them.
  if (reference.kind != ReferenceKind::view) {
    if (const auto why = hidden_narrowing(reading, reference.kind, reference.oid))
      return reading.refuse(reference, *why);
  }
  switch (reference.kind) {
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
    case ReferenceKind::view:
    case ReferenceKind::materialised_view:
      return;
    case ReferenceKind::index:
      return take_index(reading, reference);
    case ReferenceKind::constraint:
      return take_constraint(reading, reference);
    case ReferenceKind::statistics:
      return take_statistics(reading, reference);
    case ReferenceKind::policy:
      return take_policy(reading, reference);
    case ReferenceKind::rule:
      return take_rule(reading, reference);
    case ReferenceKind::trigger:
      return take_trigger(reading, reference);
    case ReferenceKind::function:
      return take_function(reading, reference);
    case ReferenceKind::publication:
      return take_publication(reading, reference);
    case ReferenceKind::sequence:
      return take_sequence(reading, reference);
    case ReferenceKind::generated_column:
    case ReferenceKind::own_generation:
    case ReferenceKind::partition_key:
    case ReferenceKind::unknown:
      return reading.refuse(reference, "");
  }
}

void refuse_settings(Reading& reading) {
  for (const auto& setting : reading.facts.settings) {
    if (setting != "foreign data wrapper options" && setting != "security label") continue;
    reading.refuse(reading.object(),
                   fmt::format("Column {} has its own {}, which the new column would not have.",
                               reading.object(), setting),
                   "Reset it before the migration and set it again after it.");
  }
}

json to_json(const Dependent& entry) {
  const auto nullable = [](const std::optional<std::string>& text) { return text ? json(*text) : json(); };
  return {
      {"old_sql", nullable(entry.old_sql)},
      {"new_sql", nullable(entry.new_sql)},
      {"definition", entry.definition},
      {"twin_definition", entry.twin_definition},
      {"predicate", entry.predicate},
      {"twin_predicate", entry.twin_predicate},
      {"from_sequence", entry.from_sequence},
      {"unique", entry.unique},
      {"shed", entry.shed},
      {"retired_definition", entry.retired_definition},
      {"retired_predicate", entry.retired_predicate},
      {"tablespace", entry.tablespace},
      {"constraint_kind", entry.constraint_kind},
      {"replica_identity", entry.replica_identity},
      {"clustered", entry.clustered},
      {"schema", entry.schema},
      {"settings", entry.settings},
      {"carried_by", entry.carried_by},
      {"remove_sql", entry.remove_sql},
      {"create_sql", entry.create_sql},
      {"validated", entry.validated},
      {"holds", entry.holds},
      {"locks", entry.locks},
      {"referring",
       entry.referring ? json{{"table", entry.referring->value}, {"constraint", entry.constraint}} : json()},
      {"leafwise", entry.leafwise}};
}

Dependent from_json(const std::string& kind, std::string name, const json& detail) {
  const auto nullable = [&](const char* member) {
    const auto& value = detail.at(member);
    return value.is_null() ? std::nullopt : std::optional<std::string>(value.get<std::string>());
  };
  Dependent entry;
  entry.kind = kind_from(kind);
  entry.name = std::move(name);
  entry.old_sql = nullable("old_sql");
  entry.new_sql = nullable("new_sql");
  entry.definition = detail.at("definition");
  entry.twin_definition = detail.at("twin_definition");
  entry.predicate = detail.at("predicate");
  entry.twin_predicate = detail.at("twin_predicate");
  entry.from_sequence = detail.at("from_sequence");
  entry.unique = detail.at("unique");
  entry.shed = detail.at("shed");
  entry.retired_definition = detail.at("retired_definition");
  entry.retired_predicate = detail.at("retired_predicate");
  entry.tablespace = detail.at("tablespace");
  entry.constraint_kind = detail.at("constraint_kind");
  entry.replica_identity = detail.at("replica_identity");
  entry.clustered = detail.at("clustered");
  entry.schema = detail.at("schema");
  entry.settings = detail.at("settings");
  entry.carried_by = detail.value("carried_by", "");
  entry.remove_sql = detail.at("remove_sql");
  entry.create_sql = detail.at("create_sql");
  entry.validated = detail.at("validated");
  entry.holds = detail.at("holds");
  entry.locks = detail.at("locks").get<std::vector<std::string>>();
  if (const auto& referring = detail.value("referring", json()); !referring.is_null()) {
    entry.referring = Oid{referring.at("table").get<std::uint32_t>()};
    entry.constraint = referring.at("constraint");
  }
  entry.leafwise = detail.value("leafwise", false);
  return entry;
}

std::string in_words(const Dependent& entry) {
  const auto name = [&] { return display_identifier(entry.name); };
  switch (entry.kind) {
    case DependentKind::not_null:
      return "NOT NULL of column " + name();
    case DependentKind::default_value:
      return "the default of column " + name();
    case DependentKind::comment:
      return "the comment of column " + name();
    case DependentKind::column_setting:
      return "the " + entry.name + " of the column";
    case DependentKind::index:
      return "index " + name();
    case DependentKind::unique_constraint:
    case DependentKind::check:
    case DependentKind::foreign_key:
      return "constraint " + (entry.referring ? entry.name : name());
    case DependentKind::statistics:
      return "statistics object " + name();
    case DependentKind::policy:
      return "policy " + entry.name;
    case DependentKind::rule:
      return "rule " + entry.name;
    case DependentKind::trigger:
      return "trigger " + name();
    case DependentKind::sql_function:
      return "function " + entry.name;
    case DependentKind::publication:
      return "the list or filter of publication " + name();
    case DependentKind::column_grant:
      return "the privileges on column " + name();
    case DependentKind::sequence:
    case DependentKind::identity:
      return "sequence " + entry.name;
    case DependentKind::view:
      return "view " + entry.name;
  }
  return "";
}

}  // namespace

Ledger take_inventory(SqlSession& session, const TableFacts& table, const ColumnBinding& column,
                      std::vector<Finding>& findings) {
  const auto facts = std::ranges::find(table.columns, column.old_attnum, &ColumnFacts::attnum);
  if (facts == table.columns.end()) {
    throw Error(
        ErrorCode::table_changed,
        fmt::format("Table {} has lost column {}.", table.name.display(), display_identifier(column.name)),
        "Roll the migration back.", table.name.display());
  }
  Reading reading(session, table, *facts, column, findings);
  if (facts->not_null) reading.carry(DependentKind::not_null, facts->name);
  const auto references = read_references(session, table.oid, facts->attnum, own_suffixes(column));
  for (const auto& reference : references) take_one(reading, reference);
  take_views(reading, references);
  if (table.kind == "p") take_partitions(reading);
  refuse_settings(reading);
  take_settings(reading);
  take_column_grants(reading);
  // A sequence that is refused says it for the default that draws from it.
  const bool sequence_refused =
      std::ranges::any_of(references, [](const auto& r) { return r.kind == ReferenceKind::sequence; }) &&
      reading.ledger.find(DependentKind::sequence) == nullptr;
  if (!sequence_refused && facts->generated.empty()) {
    if (auto entry = carried_default(session, table, *facts, column, findings))
      reading.ledger.carried.push_back(std::move(*entry));
  }
  if (facts->comment) reading.carry(DependentKind::comment, facts->name).old_sql = facts->comment;
  return std::move(reading.ledger);
}

std::string violation_sql(SqlSession& session, const Migration& m, const QualifiedName& table,
                          const Dependent& check, const std::string& physical) {
  // Both sides are there under one name or the other; only one of them is read.
  std::set<std::string> sides{m.names.old_column, m.names.new_column};
  std::string columns =
      fmt::format("{} AS {}", quote_identifier(physical), quote_identifier(m.binding.column.name));
  for (const auto& companion : m.binding.column.companions) {
    const auto names = physical_names(companion, m.row.phase);
    sides.insert({names.old_column, names.new_column});
    columns += fmt::format(
        ", {} AS {}", quote_identifier(physical == m.names.new_column ? names.new_column : names.old_column),
        quote_identifier(companion.name));
  }
  const auto found = session.exec(
      "SELECT attname FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped",
      {std::to_string(m.row.table_oid.value)});
  for (const auto& row : found.rows) {
    if (const auto name = text_of(row[0]); !sides.contains(name)) columns += ", " + quote_identifier(name);
  }
  std::string key;
  for (const auto& column : m.binding.key.columns)
    key += (key.empty() ? "" : ", ") + quote_identifier(column.name);
  return fmt::format("SELECT ROW({})::text FROM (SELECT {} FROM {}) {} WHERE NOT ({}) LIMIT 1", key, columns,
                     rows_sql(m.binding.key, table), quote_identifier(table.name), check.holds);
}

std::vector<Finding> ledger_changes(const Ledger& stored, const Ledger& found) {
  std::vector<Finding> changes;
  const auto report = [&](const Dependent& entry, std::string_view what) {
    changes.push_back({Severity::refuse, "dependent_changed",
                       entry.referring ? entry.name : display_identifier(entry.name),
                       fmt::format("{} {} since the migration planned for it.", in_words(entry), what),
                       "Undo the change, or roll back to planned and start again."});
  };
  const auto same_object = [](const Dependent& a) {
    return [&a](const Dependent& b) { return a.kind == b.kind && a.name == b.name; };
  };
  for (const auto& entry : stored.carried) {
    const auto now = std::ranges::find_if(found.carried, same_object(entry));
    if (now == found.carried.end())
      report(entry, "was removed");
    else if (*now != entry)
      report(entry, "was changed");
  }
  for (const auto& entry : found.carried) {
    if (std::ranges::none_of(stored.carried, same_object(entry))) report(entry, "was added");
  }
  return changes;
}

void store_ledger(SqlSession& session, const MigrationId& id, const Ledger& ledger) {
  session.exec("DELETE FROM crossfade.dependent WHERE migration_id = $1", {id.text});
  int number = 0;
  for (const auto& entry : ledger.carried) {
    session.exec(
        "INSERT INTO crossfade.dependent (migration_id, number, kind, name, detail) VALUES ($1, $2, $3, $4, "
        "$5)",
        {id.text, std::to_string(++number), std::string(to_text(entry.kind)), entry.name,
         to_json(entry).dump()});
  }
}

Ledger load_ledger(SqlSession& session, const MigrationId& id) {
  Ledger ledger;
  const auto found = session.exec(
      "SELECT kind, name, detail::text FROM crossfade.dependent WHERE migration_id = $1 ORDER BY number",
      {id.text});
  for (const auto& row : found.rows) {
    ledger.carried.push_back(from_json(text_of(row[0]), text_of(row[1]), json::parse(text_of(row[2]))));
  }
  return ledger;
}

}  // namespace crossfade

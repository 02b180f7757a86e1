#include "crossfade/shadow/dependents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "column_default.hpp"
#include "crossfade/core/error.hpp"
#include "inventory.hpp"

namespace crossfade {

using nlohmann::json;

std::string_view to_text(DependentKind kind) {
  switch (kind) {
    case DependentKind::not_null:
      return "not_null";
    case DependentKind::default_value:
      return "default_value";
    case DependentKind::comment:
      return "comment";
    case DependentKind::index:
      return "index";
  }
  return "";
}

const Dependent* Ledger::find(DependentKind kind) const {
  const auto found = std::ranges::find(carried, kind, &Dependent::kind);
  return found == carried.end() ? nullptr : &*found;
}

namespace {

DependentKind kind_from(const std::string& text) {
  for (const auto kind : {DependentKind::not_null, DependentKind::default_value, DependentKind::comment}) {
    if (text == to_text(kind)) return kind;
  }
  if (text == to_text(DependentKind::index)) return DependentKind::index;
  throw Error(ErrorCode::schema_version,
              fmt::format("The state holds the unknown kind of dependent '{}'.", text),
              "Use the version of crossfade that wrote it.");
}

std::string hint_for(ReferenceKind kind) {
  switch (kind) {
    case ReferenceKind::index:
      return "Drop the index before the migration and build it again after it, or replace it by a plain one.";
    case ReferenceKind::constraint:
      return "Drop the constraint before the migration and add it again after it: a foreign key or a check "
             "NOT "
             "VALID, then VALIDATE CONSTRAINT; a unique or primary key constraint with ADD CONSTRAINT … "
             "USING "
             "INDEX, from a unique index built CONCURRENTLY.";
    case ReferenceKind::trigger:
      return "Drop the trigger, or make it one without a column list and without this column in WHEN.";
    case ReferenceKind::view:
    case ReferenceKind::rule:
      return "Drop it before the migration and create it again after it; it follows the column by number, "
             "not by name.";
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
      return "Publish the whole row: ALTER PUBLICATION … SET TABLE without column list and row filter.";
    case ReferenceKind::partition_key:
      return "A partition key cannot be migrated.";
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
    case ReferenceKind::unknown:
      break;
  }
  return "Drop it before the migration and create it again after it.";
}

// Takes the inventory of one column.
class Inventory {
 public:
  Inventory(SqlSession& session, const TableFacts& table, const ColumnFacts& facts,
            const ColumnBinding& column, std::vector<Finding>& findings)
      : session_(session),
        table_(table),
        facts_(facts),
        column_(column),
        findings_(findings),
        object_(table.name.display() + "." + display_identifier(facts.name)) {}

  Ledger take() {
    bool owns_sequence = false;
    if (facts_.not_null) add(DependentKind::not_null);
    for (const auto& reference : read_references(session_, table_.oid, facts_.attnum, own_suffix(column_))) {
      owns_sequence = owns_sequence || reference.kind == ReferenceKind::sequence;
      switch (reference.kind) {
        case ReferenceKind::own_default:
        case ReferenceKind::not_null:
          break;
        case ReferenceKind::index:
          take_index(reference);
          break;
        default:
          refuse(reference.kind, reference.identity, reference.description, "");
      }
    }
    take_settings();
    // The sequence's finding says it; the default that draws from it goes with it.
    if (!owns_sequence && facts_.generated.empty()) {
      if (auto entry = carried_default(session_, table_, facts_, column_, findings_)) {
        ledger_.carried.push_back(std::move(*entry));
      }
    }
    if (facts_.comment) add(DependentKind::comment).old_sql = facts_.comment;
    return std::move(ledger_);
  }

 private:
  Dependent& add(DependentKind kind) {
    Dependent entry;
    entry.kind = kind;
    entry.name = facts_.name;
    ledger_.carried.push_back(std::move(entry));
    return ledger_.carried.back();
  }

  void refuse(ReferenceKind kind, const std::string& object, const std::string& description,
              const std::string& why) {
    findings_.push_back({Severity::refuse, "dependent_not_carried", object,
                         fmt::format("{} hangs on column {} and is not carried to the new one{}.",
                                     description, object_, why.empty() ? "" : ": " + why),
                         hint_for(kind)});
  }

  void take_index(const Reference& reference) {
    Dependent index;
    auto why = read_index(session_, reference.oid, index);
    const auto also = [&](const std::string& reason) { why += (why.empty() ? "" : ", ") + reason; };
    if (!is_ordered()) also("type " + column_.new_type + " has no default operator class for btree");
    const bool one_to_one = column_.forward.one_to_one && column_.backward && column_.backward->one_to_one;
    if (index.unique && !one_to_one)
      also("it is unique, and the conversion is not proved one-to-one both ways");
    if (!why.empty()) return refuse(reference.kind, reference.identity, reference.description, why);
    if (index.unique) {
      findings_.push_back(
          {Severity::warn, "twin_unique_may_reject", reference.identity,
           fmt::format("While {} and its twin stand side by side, INSERT … ON CONFLICT on one of them "
                       "can fail with 23505 when two sessions insert the same value at once.",
                       reference.description),
           "Let the application repeat such an INSERT, as after any unique violation."});
    }
    warn_of_size(reference);
    check_tablespace(reference, index);
    ledger_.carried.push_back(std::move(index));
  }

  // A btree entry is at most a third of a page: a longer value fails the write.
  void warn_of_size(const Reference& reference) {
    if (column_.forward.totality == Totality::total) return;
    const bool unbounded =
        bool_of(session_.exec("SELECT typlen < 0 FROM pg_type WHERE oid = $1::regtype", {column_.new_type})
                    .one("type")[0]);
    if (!unbounded || column_.new_type.find('(') != std::string::npos) return;
    findings_.push_back(
        {Severity::warn, "twin_unique_may_reject", reference.identity,
         fmt::format("The twin of {} refuses a value of the new column that takes more than about "
                     "2700 bytes.",
                     reference.description),
         "Make sure that the forward expression makes no such value, or drop the index."});
  }

  void check_tablespace(const Reference& reference, const Dependent& index) {
    if (index.tablespace.empty()) return;
    const auto row = session_
                         .exec("SELECT has_tablespace_privilege($1, 'CREATE'), quote_ident(current_user)",
                               {index.tablespace})
                         .one("privilege");
    if (bool_of(row[0])) return;
    const auto grant = fmt::format("GRANT CREATE ON TABLESPACE {} TO {};",
                                   display_identifier(index.tablespace), text_of(row[1]));
    findings_.push_back(
        {Severity::refuse, "missing_privilege", display_identifier(index.tablespace),
         fmt::format("Role {} may not build the twin of {} in tablespace {}.", text_of(row[1]),
                     reference.description, display_identifier(index.tablespace)),
         grant});
  }

  bool is_ordered() {
    if (ordered_) return *ordered_;
    Savepoint undone(session_);
    ordered_ = true;
    try {
      session_.exec(fmt::format("CREATE TEMP TABLE cf_ordered (v {})", column_.new_type));
      session_.exec("CREATE INDEX ON pg_temp.cf_ordered (v)");
    } catch (const Error& error) {
      if (error.sqlstate() != "42704") throw;
      undone.rollback();
      ordered_ = false;
    }
    return *ordered_;
  }

  void take_settings() {
    for (const auto& setting : facts_.settings) {
      findings_.push_back(
          {Severity::refuse, "dependent_not_carried", object_,
           fmt::format("Column {} has its own {}, which the new column would not have.", object_, setting),
           "Reset it before the migration and set it again after it."});
    }
    if (facts_.default_collation) return;
    const auto row =
        session_
            .exec(
                "SELECT (SELECT typcollation <> 0 FROM pg_type WHERE oid = $1::regtype),"
                " (pg_identify_object('pg_collation'::regclass, a.attcollation, 0)).identity"
                " FROM pg_attribute a WHERE a.attrelid = $2::oid AND a.attnum = $3::int2",
                {column_.new_type, std::to_string(table_.oid.value), std::to_string(facts_.attnum)})
            .one("collation");
    if (!bool_of(row[0])) return;
    findings_.push_back({Severity::refuse, "dependent_not_carried", text_of(row[1]),
                         fmt::format("Column {} has collation {}, which the new column would not have.",
                                     object_, text_of(row[1])),
                         "Migrate to a type without collation, or choose the collation in a domain."});
  }

  SqlSession& session_;
  const TableFacts& table_;
  const ColumnFacts& facts_;
  const ColumnBinding& column_;
  std::vector<Finding>& findings_;
  std::string object_;
  Ledger ledger_;
  std::optional<bool> ordered_;
};

json to_json(const Dependent& entry) {
  const auto nullable = [](const std::optional<std::string>& text) { return text ? json(*text) : json(); };
  json columns = json::array();
  for (const auto& column : entry.columns) {
    columns.push_back(
        {{"attnum", column.attnum}, {"descending", column.descending}, {"nulls_first", column.nulls_first}});
  }
  return {{"old_sql", nullable(entry.old_sql)},
          {"new_sql", nullable(entry.new_sql)},
          {"index_oid", entry.index_oid},
          {"unique", entry.unique},
          {"columns", columns},
          {"storage_options", entry.storage_options},
          {"tablespace", entry.tablespace}};
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
  entry.index_oid = detail.at("index_oid");
  entry.unique = detail.at("unique");
  for (const auto& column : detail.at("columns")) {
    entry.columns.push_back({column.at("attnum"), column.at("descending"), column.at("nulls_first")});
  }
  entry.storage_options = detail.at("storage_options");
  entry.tablespace = detail.at("tablespace");
  return entry;
}

std::string in_words(const Dependent& entry) {
  switch (entry.kind) {
    case DependentKind::not_null:
      return "NOT NULL of column " + display_identifier(entry.name);
    case DependentKind::default_value:
      return "the default of column " + display_identifier(entry.name);
    case DependentKind::comment:
      return "the comment of column " + display_identifier(entry.name);
    case DependentKind::index:
      return "index " + display_identifier(entry.name);
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
  return Inventory(session, table, *facts, column, findings).take();
}

std::vector<Finding> ledger_changes(const Ledger& stored, const Ledger& found) {
  std::vector<Finding> changes;
  const auto report = [&](const Dependent& entry, std::string_view what) {
    changes.push_back({Severity::refuse, "dependent_changed", display_identifier(entry.name),
                       fmt::format("{} {} since the migration planned for it.", in_words(entry), what),
                       "Undo the change, or roll back to planned and start again."});
  };
  const auto same_object = [](const Dependent& a) {
    return [&a](const Dependent& b) { return a.kind == b.kind && a.index_oid == b.index_oid; };
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

#include "registration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/core/tuning.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "crossfade/phases/preflight.hpp"
#include "crossfade/shadow/transform.hpp"
#include "plan_statements.hpp"
#include "registration_group.hpp"

namespace crossfade {

std::string spec_hash(SqlSession& session, const Spec& spec) {
  return text_of(session.exec("SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex')", {spec.canonical_text()})
                     .one("hash")[0]);
}

namespace {

// Keeps the statements that make something while it lives; what only reads is not of interest.
class Sending {
 public:
  Sending(SqlSession& session, std::vector<std::string>& sent) : session_(session) {
    session.watch([&sent](const std::string& sql) {
      for (const auto* verb : {"CREATE ", "ALTER ", "DROP ", "GRANT ", "INSERT "}) {
        if (sql.starts_with(verb)) sent.push_back(sql);
      }
    });
  }
  ~Sending() { session_.watch({}); }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

 private:
  SqlSession& session_;
};

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const auto found = nearest(word, views);
  return found ? fmt::format("did you mean {}? ", *found) : std::string();
}

// The same name in another schema is nearer than another name in the same one.
Error no_such_table(SqlSession& session, const Spec& spec) {
  const auto found = session.exec(
      "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
      " WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'crossfade' AND n.nspname <> 'information_schema'"
      " AND n.nspname NOT LIKE 'pg\\_%' ORDER BY c.relname = $1 DESC, 1, 2 LIMIT 10000",
      {spec.table.name});
  std::vector<std::string> known;
  std::string advice;
  for (const auto& row : found.rows) {
    const QualifiedName name{text_of(row[0]), text_of(row[1])};
    if (name.name == spec.table.name && advice.empty())
      advice = fmt::format("did you mean {}? ", name.display());
    known.push_back(name.display());
  }
  if (advice.empty()) advice = did_you_mean(spec.table.display(), known);
  return {ErrorCode::undefined_table,
          fmt::format("{}: there is no table {} in this database", spec.table_at, spec.table.display()),
          advice + "check [migration] table; quote it there as SQL would", spec.table.display()};
}

ColumnBinding bind(SqlSession& session, const TableFacts& table, const ColumnSpec& column,
                   const GeneratedNames& names, std::vector<Finding>& findings) {
  try {
    auto bound = bind_column(session, table, column, names, findings);
    for (auto& finding : findings) {
      if (finding.id != "column_not_found") continue;
      std::vector<std::string> known;
      for (const auto& facts : table.columns) known.push_back(display_identifier(facts.name));
      finding.message = column.name_at + ": " + finding.message;
      finding.hint = did_you_mean(display_identifier(column.name), known) + finding.hint;
    }
    return bound;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::spec_bad_value) throw;
    throw Error(error.code(), fmt::format("{}: key column.type: {}", column.type_at, error.message()),
                error.hint(), error.object())
        .with_sqlstate(error.sqlstate());
  }
}

// What is common to the migrations of a group.
struct Origin {
  const MigratorOptions& options;
  std::optional<MigrationId> leader;
  std::vector<int> not_in_key;  // further migrated columns of the table
};

Registration register_column(SqlSession& session, Spec spec, const std::string& spec_text,
                             const Origin& origin) {
  Registration r;
  r.spec = std::move(spec);
  StateStore store(session);
  r.row.id = store.new_id();
  r.row.leader = origin.leader;
  r.row.name = r.spec.name;
  r.row.mode = r.spec.mode();
  r.row.spec_text = spec_text;
  r.row.spec_hash = spec_hash(session, r.spec);
  r.row.operator_name = origin.options.operator_name;
  r.row.system_identifier = session.identity().system_identifier;
  r.row.database_oid = session.identity().database_oid;
  r.row.timeline = session.identity().timeline;
  const GeneratedNames names(r.row.id);
  const auto table = read_table(session, r.spec.table);
  if (!table) throw no_such_table(session, r.spec);
  r.row.table_oid = table->oid;
  r.row.table = r.row.registered_table = table->name;
  const auto& column = r.spec.columns.front();
  std::optional<KeyFacts> key;
  const auto* facts = table->column(column.name);
  auto not_in_key = origin.not_in_key;
  if (facts != nullptr) not_in_key.push_back(facts->attnum);
  key = choose_key(session, table->oid, not_in_key);
  {
    const Sending sending(session, r.sent);
    r.binding.column = bind(session, *table, column, names, r.findings);
  }
  r.binding.column.follows_foreign_keys = r.spec.follow_foreign_keys;
  // The migrated column itself only where there is no other order, and it keeps its own.
  if (!key && widens_integer(r.binding.column)) key = choose_key(session, table->oid, {});
  if (key) r.binding.key = *key;
  for (auto& part : r.binding.key.columns) {
    if (std::ranges::find(not_in_key, part.attnum) != not_in_key.end())
      part.type_after = r.binding.column.new_type;
  }
  // A way back that was refused is not the same as none.
  const bool bound = is_bound(r.binding.column);
  for (auto& finding :
       preflight(session, r.spec, *table, key, bound ? &r.binding.column : nullptr, names, Phase::planned)) {
    r.findings.push_back(std::move(finding));
  }
  r.usable = bound && key.has_value();
  return r;
}

// What hangs on the column, once it is known what moves together with it.
void complete(SqlSession& session, Registration& r) {
  if (!is_bound(r.binding.column)) return;
  const auto table = read_table(session, r.row.table_oid);
  const Sending sending(session, r.sent);
  r.ledger = take_inventory(session, *table, r.binding.column, r.findings);
  if (r.usable) r.row.binding = to_json(r.binding);
}

// The column that refers moves to the same type, by the same rules. What the operator expects is said of the
// column that he named.
Spec spec_of_member(const Spec& leader, const ForeignKeyColumn& column) {
  Spec spec = leader;
  spec.table = column.name;
  spec.columns.front().name = column.column;
  spec.columns.front().forward.reset();
  spec.columns.front().backward.reset();
  spec.expect_changed.reset();
  spec.expect_lossy.reset();
  return spec;
}

}  // namespace

namespace {
bool has_type(SqlSession& session, const ForeignKeyColumn& column, const std::string& type) {
  const auto found = session.exec(
      "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = $1::oid AND attnum = "
      "$2::int2",
      {std::to_string(column.table.value), std::to_string(column.attnum)});
  return !found.empty() && text_of(found[0][0]) == type;
}
}  // namespace

Registration register_spec(SqlSession& session, const SpecSource& source, const MigratorOptions& options) {
  const auto spec = parse_spec(source.text, source.file);
  std::vector<ForeignKeyColumn> following;
  Origin origin{options, std::nullopt, {}};
  if (spec.follow_foreign_keys) {
    if (const auto table = read_table(session, spec.table)) {
      const auto* column = table->column(spec.columns.front().name);
      if (column != nullptr) following = columns_that_follow(session, table->oid, column->attnum);
      origin.not_in_key = attnums_of(following, table->oid);
    }
  }
  auto r = register_column(session, spec, source.text, origin);
  std::erase_if(following, [&](const ForeignKeyColumn& column) {
    return has_type(session, column, r.binding.column.new_type);
  });
  if (following.empty()) {
    complete(session, r);
    return r;
  }
  origin.leader = r.row.id;
  for (const auto& column : following) {
    origin.not_in_key = attnums_of(following, column.table);
    if (column.table == r.row.table_oid) origin.not_in_key.push_back(r.binding.column.old_attnum);
    const auto derived = spec_of_member(spec, column);
    auto member = register_column(session, derived, derived.canonical_text(), origin);
    member.row.shares_table = shares_table(r, member);
    r.members.push_back(std::move(member));
  }
  introduce_companions(r);
  complete(session, r);
  for (auto& member : r.members) complete(session, member);
  check_group(r);
  return r;
}

void require_free_tables(SqlSession& session, const Registration& r) {
  const auto require = [&](const MigrationRow& row) {
    if (const auto open = StateStore(session).find_open_on(row.table_oid)) {
      throw Error(
          ErrorCode::table_has_migration,
          fmt::format("table {} has the open migration {}", row.table.display(), open->name),
          fmt::format("see 'crossfade status {0}'; finish it, or 'crossfade rollback {0} --to rolled_back'",
                      open->name),
          row.table.display());
    }
  };
  require(r.row);
  for (const auto& member : r.members) require(member.row);
}

void insert_registration(SqlSession& session, const Registration& r) {
  StateStore(session).insert(r.row, r.spec.tuning);
  store_ledger(session, r.row.id, r.ledger);
  for (const auto& member : r.members) insert_registration(session, member);
}

namespace {

std::vector<std::optional<std::string>> functions_of(const ColumnBinding& column) {
  std::vector<std::optional<std::string>> names{column.forward.function, column.forward.try_function};
  if (column.backward) {
    names.emplace_back(column.backward->function);
    names.emplace_back(column.backward->try_function);
  }
  return names;
}

Registration stored_column(SqlSession& session, const MigrationRow& row) {
  Registration r;
  const auto m = migration_of(row);
  r.row = row;
  r.spec = m.spec;
  r.binding = m.binding;
  r.ledger = load_ledger(session, row.id);
  r.accepted = standing(StateStore(session).acceptances(row.id));
  r.usable = true;
  const auto functions = session.exec(
      "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'crossfade'::regnamespace"
      " AND p.proname = ANY ($1::text[]) ORDER BY p.oid",
      {array_literal(functions_of(m.binding.column))});
  for (const auto& function : functions.rows) r.sent.push_back(text_of(function[0]));
  // The gates of later phases do not ask again, and would find the migration's own objects.
  if (row.phase != Phase::planned && row.phase != Phase::dry_run) return r;
  const auto table = read_table(session, row.table_oid);
  if (!table) return r;
  r.findings = preflight(session, m.spec, *table, m.binding.key, &m.binding.column, m.generated, row.phase);
  take_inventory(session, *table, m.binding.column, r.findings);
  return r;
}

}  // namespace

Registration stored_registration(SqlSession& session, const MigrationRow& row) {
  auto r = stored_column(session, row);
  for (const auto& member : StateStore(session).group(row.id)) {
    if (!member.leader) continue;
    r.members.push_back(stored_column(session, member));
    for (const auto& finding : r.members.back().findings) {
      if (std::ranges::find(r.findings, finding) == r.findings.end()) r.findings.push_back(finding);
    }
  }
  return r;
}

namespace {

std::string stands_on_both(const std::string& kind, const Dependent& dependent) {
  return fmt::format("{} {}: stands on column {} too, and goes over with it", kind, dependent.name,
                     display_identifier(dependent.carried_by));
}

std::string describe(const Dependent& dependent) {
  switch (dependent.kind) {
    case DependentKind::not_null:
      return "NOT NULL of " + dependent.name + ": proved by a check, then set without a scan";
    case DependentKind::default_value:
      return fmt::format("default of {}: {} becomes {}", dependent.name, dependent.old_sql.value_or("none"),
                         dependent.new_sql.value_or("none"));
    case DependentKind::comment:
      return "comment on " + dependent.name;
    case DependentKind::column_setting:
      return fmt::format("{} of the column: {}, on the new one from the start", dependent.name,
                         dependent.create_sql);
    case DependentKind::index:
      if (!dependent.carried_by.empty()) return stands_on_both("index", dependent);
      return fmt::format("{}index {}: a twin is built CONCURRENTLY and takes the name at the switch",
                         dependent.unique ? "unique " : "", dependent.name);
    case DependentKind::unique_constraint:
      if (!dependent.carried_by.empty())
        return stands_on_both(dependent.constraint_kind + " constraint", dependent);
      if (dependent.leafwise) {
        return fmt::format(
            "{} constraint {}: an index on each partition is built CONCURRENTLY and becomes its constraint "
            "at "
            "the switch, and all of them the table's; the old column's are built again before a way back",
            dependent.constraint_kind, dependent.name);
      }
      return fmt::format(
          "{} constraint {}: a twin of its index is built CONCURRENTLY and becomes the constraint at "
          "the switch; a spare on the old column waits for the way back",
          dependent.constraint_kind, dependent.name);
    case DependentKind::statistics:
      if (!dependent.carried_by.empty()) return stands_on_both("statistics object", dependent);
      return fmt::format("statistics object {}: a twin is made and takes the name at the switch",
                         dependent.name);
    case DependentKind::check:
    case DependentKind::foreign_key:
      if (dependent.leafwise) {
        return fmt::format(
            "foreign key {} of a partitioned table{}: proved over the other column on each partition before "
            "the switch, which takes that over",
            dependent.name,
            dependent.referring ? ", whose column has the new type already and stays as it is" : "");
      }
      if (dependent.referring) {
        return fmt::format(
            "foreign key {}, whose column has the new type already and stays as it is: added again NOT VALID "
            "at the switch, then validated",
            dependent.name);
      }
      return fmt::format("{} {}: added again NOT VALID at the switch, then validated",
                         dependent.kind == DependentKind::check ? "check" : "foreign key", dependent.name);
    case DependentKind::policy:
      return fmt::format("policy {}: bound to the new column at the switch", dependent.name);
    case DependentKind::rule:
      return fmt::format("rule {}: bound to the new column at the switch", dependent.name);
    case DependentKind::trigger:
      return fmt::format("trigger {}: made again at the switch", dependent.name);
    case DependentKind::sql_function:
      return fmt::format("function {}: bound to the new column at the switch", dependent.name);
    case DependentKind::publication:
      return fmt::format("publication {}: its column list or row filter is made again at the switch",
                         dependent.name);
    case DependentKind::column_grant:
      return fmt::format("privileges on column {}: granted on the new one at the switch", dependent.name);
    case DependentKind::sequence:
      return fmt::format("sequence {}: goes over to the new column, in its type, at the switch",
                         dependent.name);
    case DependentKind::identity:
      return fmt::format("identity sequence {}: made again at the switch, where it stood", dependent.name);
    case DependentKind::view:
      return fmt::format("view {}: made again at the switch, over the new column", dependent.name);
  }
  return {};
}

std::vector<std::string> carried_in_words(const Registration& r) {
  std::vector<std::string> words;
  for (const auto& dependent : r.ledger.carried) words.push_back(describe(dependent));
  return words;
}

}  // namespace

PlanReport plan_report(SqlSession& session, const Registration& r,
                       const std::function<SqlSession(const std::string&)>& connect) {
  PlanReport report;
  report.name = r.spec.name;
  report.table = r.row.table.display();
  report.mode = std::string(to_text(r.row.mode));
  report.findings = r.findings;
  report.refusals = unaccepted(r.findings, r.accepted);
  report.hooks = r.spec.hooks;
  for (const auto& column : r.binding.key.columns)
    report.key += (report.key.empty() ? "" : ", ") + column.name;
  report.forward = r.binding.column.forward.text;
  if (r.binding.column.backward) report.backward = r.binding.column.backward->text;
  report.one_way = r.binding.column.one_way;
  report.carried = carried_in_words(r);
  for (const auto& member : r.members) {
    std::string key;
    for (const auto& part : member.binding.key.columns) key += (key.empty() ? "" : ", ") + part.name;
    report.members.push_back({member.row.table.display(), member.spec.columns.front().name, key,
                              member.binding.column.forward.text, carried_in_words(member)});
  }
  const bool may_go_on = std::ranges::all_of(report.refusals, is_acceptable);
  if (r.usable && may_go_on) {
    CursorCache cache("");
    const std::atomic<bool> stop{false};
    std::atomic<bool> interruptible{false};
    PhaseEnv env{session, cache, connect, {}, r.spec.name, {}, stop, interruptible, {}};
    report.statements = planned_statements(env, r);
  }
  return report;
}

std::string to_json(const PlanReport& report) {
  const auto findings = [](const std::vector<Finding>& list) {
    nlohmann::json array = nlohmann::json::array();
    for (const auto& f : list) {
      array.push_back({{"id", f.id},
                       {"severity", to_text(f.severity)},
                       {"object", f.object},
                       {"message", f.message},
                       {"hint", f.hint}});
    }
    return array;
  };
  nlohmann::json statements = nlohmann::json::array();
  for (const auto& s : report.statements) {
    statements.push_back({{"phase", to_text(s.phase)},
                          {"step", s.step},
                          {"what", s.what},
                          {"sql", s.sql},
                          {"lock", s.lock},
                          {"blocks", s.blocks},
                          {"may_wait", s.may_wait}});
  }
  nlohmann::json hooks = nlohmann::json::array();
  for (const auto& [hook, command] : report.hooks) hooks.push_back({{"hook", hook}, {"command", command}});
  nlohmann::json members = nlohmann::json::array();
  for (const auto& member : report.members) {
    members.push_back({{"table", member.table},
                       {"column", member.column},
                       {"key", member.key},
                       {"forward", member.forward},
                       {"carried", member.carried}});
  }
  return nlohmann::json{{"migration", report.name},
                        {"table", report.table},
                        {"mode", report.mode},
                        {"key", report.key},
                        {"forward", report.forward},
                        {"backward", report.backward},
                        {"one_way", report.one_way},
                        {"findings", findings(report.findings)},
                        {"refusals", findings(report.refusals)},
                        {"carried", report.carried},
                        {"hooks", hooks},
                        {"members", members},
                        {"statements", statements},
                        {"initialized", report.initialized},
                        {"phase", report.phase ? nlohmann::json(to_text(*report.phase)) : nlohmann::json()}}
      .dump();
}

}  // namespace crossfade

#include "registration.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/phases/phase_handler.hpp"
#include "crossfade/phases/preflight.hpp"
#include "crossfade/shadow/transform.hpp"
#include "crossfade/shadow/twins.hpp"

namespace crossfade {

std::string spec_hash(SqlSession& session, const Spec& spec) {
  return text_of(session.exec("SELECT encode(sha256(convert_to($1, 'UTF8')), 'hex')", {spec.canonical_text()})
                     .one("hash")[0]);
}

Registration register_spec(SqlSession& session, const SpecSource& source, const MigratorOptions& options) {
  Registration r;
  r.spec = parse_spec(source.text, source.file);
  StateStore store(session);
  r.row.id = store.new_id();
  r.row.name = r.spec.name;
  r.row.mode = r.spec.mode();
  r.row.spec_text = source.text;
  r.row.spec_hash = spec_hash(session, r.spec);
  r.row.operator_name = options.operator_name;
  r.row.system_identifier = session.identity().system_identifier;
  r.row.database_oid = session.identity().database_oid;
  r.row.timeline = session.identity().timeline;
  const GeneratedNames names(r.row.id);
  const auto table = read_table(session, r.spec.table);
  if (!table) {
    throw Error(ErrorCode::undefined_table,
                "there is no table " + r.spec.table.display() + " in this database",
                "check [migration] table; quote it there as SQL would", r.spec.table.display());
  }
  r.row.table_oid = table->oid;
  r.row.table = table->name;
  const auto& column = r.spec.columns.front();
  std::optional<KeyFacts> key;
  const auto* facts = table->column(column.name);
  key = choose_key(session, table->oid,
                   facts != nullptr ? std::vector<int>{facts->attnum} : std::vector<int>{});
  r.binding.column = bind_column(session, *table, column, names, r.findings);
  if (key) r.binding.key = *key;
  // A way back that was refused is not the same as none.
  const bool bound = !r.binding.column.forward.function.empty() &&
                     (r.binding.column.backward.has_value() || r.binding.column.one_way);
  for (auto& finding :
       preflight(session, r.spec, *table, key, bound ? &r.binding.column : nullptr, names, Phase::planned)) {
    r.findings.push_back(std::move(finding));
  }
  if (bound) r.ledger = take_inventory(session, *table, r.binding.column, r.findings);
  r.usable = bound && key.has_value();
  if (r.usable) r.row.binding = to_json(r.binding);
  return r;
}

namespace {

std::string describe(const Dependent& dependent) {
  switch (dependent.kind) {
    case DependentKind::not_null:
      return "NOT NULL of " + dependent.name + ": proved by a check, then set without a scan";
    case DependentKind::default_value:
      return fmt::format("default of {}: {} becomes {}", dependent.name, dependent.old_sql.value_or("none"),
                         dependent.new_sql.value_or("none"));
    case DependentKind::comment:
      return "comment on " + dependent.name;
    case DependentKind::index:
      return fmt::format("{}index {}: a twin is built CONCURRENTLY and takes the name at the switch",
                         dependent.unique ? "unique " : "", dependent.name);
  }
  return {};
}

// The crossings as they will be sent. The rows that they read exist in the caller's transaction, which ends
// in ROLLBACK.
void plan_statements(SqlSession& session, const Registration& r, PlanReport& report,
                     const std::function<SqlSession(const std::string&)>& connect) {
  CursorCache cache("");
  const std::atomic<bool> stop{false};
  std::atomic<bool> interruptible{false};
  PhaseEnv env{session, cache, connect, {}, r.spec.name, {}, stop, interruptible, {}};
  auto row = StateStore(session).get(r.row.id);
  const auto at = [&](Phase phase) {
    row.phase = phase;
    return migration_of(row);
  };
  const auto add = [&](Phase phase, std::string sql, std::string lock, bool waits) {
    if (!sql.empty()) report.statements.push_back({phase, std::move(sql), std::move(lock), waits});
  };
  const auto budget = fmt::format("ACCESS EXCLUSIVE on {}, at most {} ms a time, {} attempts", report.table,
                                  r.spec.lock_timeout.count(), r.spec.switch_attempts);
  const auto backfill = make_phase_handler(Phase::backfill)->enter(env, at(Phase::dry_run));
  add(Phase::backfill, backfill.statements, budget, true);
  const auto& column = r.binding.column;
  const auto names = physical_names(column, Phase::backfill);
  add(Phase::backfill,
      fmt::format("UPDATE ONLY {} t SET {} = {} WHERE <key range> AND <it differs>", r.row.table.sql(),
                  quote_identifier(names.new_column), call_sql(column.forward, names, "t")),
      "ROW EXCLUSIVE and row locks, a chunk at a time", false);
  const auto m = at(Phase::dual_write);
  for (const auto& dependent : r.ledger.carried) {
    if (dependent.kind != DependentKind::index) continue;
    add(Phase::dual_write, create_twin_sql(session, m, r.row.table, dependent, true),
        "SHARE UPDATE EXCLUSIVE on " + report.table, false);
  }
  const auto compare = at(Phase::compare);
  add(Phase::switched, make_phase_handler(Phase::switched)->enter(env, compare).statements, budget, true);
  add(Phase::dropped, make_phase_handler(Phase::dropped)->enter(env, at(Phase::switched)).statements, budget,
      true);
}

}  // namespace

PlanReport plan_report(SqlSession& session, const Registration& r,
                       const std::function<SqlSession(const std::string&)>& connect) {
  PlanReport report;
  report.name = r.spec.name;
  report.table = r.row.table.display();
  report.mode = std::string(to_text(r.row.mode));
  report.findings = r.findings;
  report.refusals = unaccepted(r.findings, std::vector<Acceptance>{});
  for (const auto& column : r.binding.key.columns)
    report.key += (report.key.empty() ? "" : ", ") + column.name;
  report.forward = r.binding.column.forward.text;
  if (r.binding.column.backward) report.backward = r.binding.column.backward->text;
  report.one_way = r.binding.column.one_way;
  for (const auto& dependent : r.ledger.carried) report.carried.push_back(describe(dependent));
  if (r.usable && report.refusals.empty()) plan_statements(session, r, report, connect);
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
    statements.push_back(
        {{"phase", to_text(s.phase)}, {"sql", s.sql}, {"lock", s.lock}, {"may_wait", s.may_wait}});
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
                        {"statements", statements}}
      .dump();
}

}  // namespace crossfade

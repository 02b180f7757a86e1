#include "crossfade/core/state_store.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/state_schema.hpp"

namespace crossfade {

namespace {

// The table by the name that it has now. By its oid alone it is known only in the database where it got it.
constexpr const char* kSelect =
    "SELECT m.id, m.name, m.table_oid, m.schema_name, m.table_name,"
    " (SELECT ARRAY[n.nspname, c.relname]::text[] FROM pg_catalog.pg_class c"
    "  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    "  WHERE c.oid = m.table_oid AND c.relkind IN ('r', 'p') AND m.database_oid ="
    "   (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())),"
    " m.mode, m.spec_text, m.spec_hash, "
    "m.binding::text,"
    " m.phase, m.status, m.reason, m.epoch, m.token, m.mark, m.capture_xid, m.capture_high, m.last_write_xid,"
    " coalesce(m.fingerprint::text, ''), m.system_identifier, m.timeline, m.database_oid, m.operator, "
    "m.version,"
    " m.created_at, m.phase_since, m.stop_requested, coalesce(m.runner_pid, 0), coalesce(m.runner_host, ''),"
    " coalesce(m.runner_operator, ''), coalesce(m.lease_until::text, ''),"
    " coalesce(m.lease_until > clock_timestamp(), false), m.leader_id, m.shares_table"
    " FROM crossfade.migration m ";

template <class T>
T parsed(const std::optional<T>& value, const std::string& text, const char* what) {
  if (!value) {
    throw Error(ErrorCode::schema_version, fmt::format("the state holds the unknown {} '{}'", what, text),
                "use the version of crossfade that wrote it");
  }
  return *value;
}

MigrationRow row_of(const SqlResult::Row& row) {
  std::size_t at = 0;
  auto text = [&] { return text_of(row[at++]); };
  MigrationRow m;
  m.id.text = text();
  m.name = text();
  m.table_oid.value = static_cast<std::uint32_t>(int_of(row[at++]));
  m.registered_table.schema = text();
  m.registered_table.name = text();
  m.table = m.registered_table;
  if (const auto& now = row[at++]) {
    const auto names = parse_array(*now);
    m.table = {text_of(names.at(0)), text_of(names.at(1))};
  }
  m.mode = text() == "promote" ? Mode::promote : Mode::swap;
  m.spec_text = text();
  m.spec_hash = text();
  m.binding = text();
  const auto phase = text();
  m.phase = parsed(phase_from_text(phase), phase, "phase");
  const auto status = text();
  m.status = parsed(status_from_text(status), status, "status");
  m.reason = text();
  m.epoch.value = int_of(row[at++]);
  m.token.text = text();
  m.mark.text = text();
  m.capture_xid = row[at++];
  if (const auto& high = row[at++]) m.capture_high = parse_key(*high);
  m.last_write_xid = row[at++];
  m.fingerprint = text();
  m.system_identifier = text();
  m.timeline = text();
  m.database_oid = static_cast<std::uint32_t>(int_of(row[at++]));
  m.operator_name = text();
  m.version = text();
  m.created_at = text();
  m.phase_since = text();
  m.stop_requested = bool_of(row[at++]);
  m.runner_pid = static_cast<int>(int_of(row[at++]));
  m.runner_host = text();
  m.runner_operator = text();
  m.lease_until = text();
  m.lease_live = bool_of(row[at++]);
  if (const auto& leader = row[at++]) m.leader = MigrationId{*leader};
  m.shares_table = bool_of(row[at++]);
  return m;
}

constexpr const char* kOpen = "m.phase NOT IN ('dropped', 'rolled_back')";
// Members of a group are spoken of through their leader only.
constexpr const char* kNoMember = "m.leader_id IS NULL";

}  // namespace

MigrationRow StateStore::find(const std::string& name) {
  const auto found =
      session_.exec(fmt::format("{} WHERE m.name = $1 AND {} ORDER BY {} DESC, m.created_at DESC LIMIT 1",
                                kSelect, kNoMember, kOpen),
                    {name});
  if (!found.empty()) return row_of(found[0]);
  const auto known = session_.exec(
      "SELECT coalesce(string_agg(name, ', '), '') FROM (SELECT DISTINCT name FROM crossfade.migration"
      " WHERE phase NOT IN ('dropped', 'rolled_back') ORDER BY name LIMIT 10) m");
  const auto names = text_of(known[0][0]);
  throw Error(ErrorCode::unknown_migration, "there is no migration named '" + name + "'",
              names.empty() ? "start one with 'crossfade start SPEC'" : "known migrations: " + names, name);
}

// NO KEY UPDATE: a chunk that inserts a reject takes KEY SHARE on this row for the foreign key while it holds
// the table; FOR UPDATE would make it wait for a transition that waits for the table.
MigrationRow StateStore::get(const MigrationId& id, LockMode lock) {
  const auto found = session_.exec(
      fmt::format("{} WHERE m.id = $1{}", kSelect, lock == LockMode::for_update ? " FOR NO KEY UPDATE" : ""),
      {id.text});
  if (found.empty()) {
    throw Error(ErrorCode::unknown_migration, "there is no migration with id " + id.text,
                "see 'crossfade list'");
  }
  return row_of(found[0]);
}

std::optional<MigrationRow> StateStore::find_open(const std::string& name) {
  const auto found =
      session_.exec(fmt::format("{} WHERE m.name = $1 AND {} AND {}", kSelect, kNoMember, kOpen), {name});
  if (found.empty()) return std::nullopt;
  return row_of(found[0]);
}

std::optional<MigrationRow> StateStore::find_open_on(Oid table) {
  const auto found = session_.exec(fmt::format("{} WHERE m.table_oid = $1 AND {} LIMIT 1", kSelect, kOpen),
                                   {std::to_string(table.value)});
  if (found.empty()) return std::nullopt;
  return row_of(found[0]);
}

std::vector<MigrationRow> StateStore::list() {
  std::vector<MigrationRow> rows;
  for (const auto& row :
       session_.exec(fmt::format("{} WHERE {} ORDER BY m.created_at, m.id", kSelect, kNoMember)).rows) {
    rows.push_back(row_of(row));
  }
  return rows;
}

// Always in this order: two that lock the same group meet at the leader.
std::vector<MigrationRow> StateStore::group(const MigrationId& leader, LockMode lock) {
  std::vector<MigrationRow> rows{get(leader, lock)};
  for (const auto& row : session_
                             .exec(fmt::format("{} WHERE m.leader_id = $1 ORDER BY m.id{}", kSelect,
                                               lock == LockMode::for_update ? " FOR NO KEY UPDATE" : ""),
                                   {leader.text})
                             .rows) {
    rows.push_back(row_of(row));
  }
  return rows;
}

MigrationId StateStore::new_id() {
  return MigrationId{text_of(session_.exec("SELECT gen_random_uuid()").one("uuid")[0])};
}

void StateStore::insert(const MigrationRow& row, const Tuning& tuning) {
  session_.exec(
      "INSERT INTO crossfade.migration (id, name, table_oid, schema_name, table_name, mode, spec_text, "
      "spec_hash,"
      " binding, phase, status, system_identifier, database_oid, timeline, operator, version, leader_id,"
      " shares_table)"
      " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, 'planned', 'settled', $10, $11, $12, $13, $14, "
      "$15,"
      " $16)",
      {row.id.text, row.name, std::to_string(row.table_oid.value), row.table.schema, row.table.name,
       std::string(to_text(row.mode)), row.spec_text, row.spec_hash, row.binding, row.system_identifier,
       std::to_string(row.database_oid), row.timeline, row.operator_name, crossfade_version(),
       row.leader ? SqlValue(row.leader->text) : SqlValue(),
       std::string(row.shares_table ? "true" : "false")});
  for (const auto& key : tuning_keys()) {
    session_.exec(
        "INSERT INTO crossfade.tuning (migration_id, key, value, changed_by) VALUES ($1, $2, $3, $4)",
        {row.id.text, std::string(key.name), tuning_value(tuning, key.name), row.operator_name});
  }
}

Tuning StateStore::tuning(const MigrationId& id, const Tuning& defaults) {
  Tuning tuning = defaults;
  for (const auto& row :
       session_.exec("SELECT key, value FROM crossfade.tuning WHERE migration_id = $1", {id.text}).rows) {
    crossfade::set_tuning(tuning, text_of(row[0]), text_of(row[1]));
  }
  return tuning;
}

void StateStore::set_tuning(const MigrationId& id, std::string_view key, std::string_view value,
                            std::string_view who) {
  session_.exec(
      "INSERT INTO crossfade.tuning (migration_id, key, value, changed_by) VALUES ($1, $2, $3, $4)"
      " ON CONFLICT (migration_id, key) DO UPDATE SET value = excluded.value, changed_by = "
      "excluded.changed_by,"
      " changed_at = clock_timestamp()",
      {id.text, std::string(key), std::string(value), std::string(who)});
}

std::vector<TransitionRecord> StateStore::history(const MigrationId& id) {
  std::vector<TransitionRecord> records;
  for (const auto& row :
       session_
           .exec("SELECT number, from_phase, to_phase, event, operator, host, version, at, evidence::text"
                 " FROM crossfade.transition WHERE migration_id = $1 ORDER BY number",
                 {id.text})
           .rows) {
    records.push_back({int_of(row[0]), text_of(row[1]), text_of(row[2]), text_of(row[3]), text_of(row[4]),
                       text_of(row[5]), text_of(row[6]), text_of(row[7]), text_of(row[8])});
  }
  return records;
}

namespace {

// With the newest fifty stretches in which the pace controller held the sweep back, each in the phase that it
// fell into.
constexpr const char* kActions =
    "SELECT r.at, r.action, r.phase, r.operator, r.host, r.version, r.detail::text FROM ("
    "SELECT a.at, a.id, a.action, a.phase, a.operator, a.host, a.version, a.detail"
    " FROM crossfade.action a WHERE a.migration_id = $1::uuid"
    " UNION ALL (SELECT p.began_at, p.id, p.kind, t.to_phase, p.changed_by, t.host, t.version,"
    " jsonb_build_object('reason', p.reason, 'seconds',"
    " round(extract(epoch FROM coalesce(p.ended_at, clock_timestamp()) - p.began_at), 1))"
    " FROM crossfade.pause p CROSS JOIN LATERAL (SELECT c.to_phase, c.host, c.version"
    " FROM crossfade.transition c WHERE c.migration_id = p.migration_id AND c.at <= p.began_at"
    " ORDER BY c.number DESC LIMIT 1) t WHERE p.migration_id = $1::uuid AND p.kind <> 'operator'"
    " ORDER BY p.id DESC LIMIT 50)) r ORDER BY r.at, r.id";

}  // namespace

std::vector<ActionRecord> StateStore::actions(const MigrationId& id) {
  std::vector<ActionRecord> records;
  for (const auto& row : session_.exec(kActions, {id.text}).rows) {
    records.push_back({text_of(row[0]), text_of(row[1]), text_of(row[2]), text_of(row[3]), text_of(row[4]),
                       text_of(row[5]), text_of(row[6])});
  }
  return records;
}

void StateStore::record_action(const MigrationId& id, std::string_view action, std::string_view who,
                               std::string_view host, const std::string& detail) {
  session_.exec(
      "INSERT INTO crossfade.action (migration_id, action, phase, operator, host, version, detail)"
      " SELECT m.id, $2, m.phase, $3, $4, $5, $6::jsonb FROM crossfade.migration m WHERE m.id = $1",
      {id.text, std::string(action), std::string(who), std::string(host), crossfade_version(), detail});
}

std::vector<Acceptance> StateStore::acceptances(const MigrationId& id) {
  std::vector<Acceptance> accepted;
  for (const auto& row :
       session_
           .exec("SELECT finding, reason FROM crossfade.acceptance WHERE migration_id = $1 ORDER BY id",
                 {id.text})
           .rows) {
    accepted.push_back({text_of(row[0]), text_of(row[1])});
  }
  return accepted;
}

void StateStore::accept(const MigrationId& id, const Acceptance& acceptance, std::string_view who,
                        std::string_view host) {
  session_.exec(
      "INSERT INTO crossfade.acceptance (migration_id, finding, reason, operator, host) VALUES ($1, $2, $3, "
      "$4, $5)",
      {id.text, acceptance.id, acceptance.reason, std::string(who), std::string(host)});
}

bool StateStore::set_status(const MigrationId& id, Phase phase, Status from, Status to,
                            const std::string& reason) {
  return session_
             .exec(
                 "UPDATE crossfade.migration SET status = $4, reason = $5"
                 " WHERE id = $1 AND phase = $2 AND status = $3",
                 {id.text, std::string(to_text(phase)), std::string(to_text(from)), std::string(to_text(to)),
                  reason})
             .affected_rows == 1;
}

void StateStore::request_stop(const MigrationId& id, bool stop) {
  session_.exec("UPDATE crossfade.migration SET stop_requested = $2::boolean WHERE id = $1",
                {id.text, std::string(stop ? "true" : "false")});
}

void StateStore::stamp_last_write(const MigrationId& id) {
  session_.exec(
      "UPDATE crossfade.migration SET last_write_xid = pg_snapshot_xmax(pg_current_snapshot()) WHERE id = $1",
      {id.text});
}

std::string phase_change_sql(const PhaseChange& change) {
  std::string further;
  for (const auto& item : change.assignments) further += ", " + item;
  return fmt::format(
      "UPDATE crossfade.migration SET phase = {to}, status = {status}, reason = '', epoch = epoch + 1,"
      " phase_since = clock_timestamp(){further} WHERE id = {id};\n"
      "INSERT INTO crossfade.transition (migration_id, number, from_phase, to_phase, event, operator, host, "
      "version,"
      " evidence) SELECT {id}, coalesce(max(number), 0) + 1, {from}, {to}, {event}, {operator}, {host}, "
      "{version},"
      " {evidence}::jsonb FROM crossfade.transition WHERE migration_id = {id};\n",
      fmt::arg("to", quote_literal(to_text(change.to))),
      fmt::arg("from", quote_literal(to_text(change.from))),
      fmt::arg("status", quote_literal(to_text(change.status))), fmt::arg("further", further),
      fmt::arg("id", quote_literal(change.id.text) + "::uuid"),
      fmt::arg("event", quote_literal(change.event)),
      fmt::arg("operator", quote_literal(change.operator_name)), fmt::arg("host", quote_literal(change.host)),
      fmt::arg("version", quote_literal(crossfade_version())),
      fmt::arg("evidence", quote_literal(change.evidence)));
}

}  // namespace crossfade

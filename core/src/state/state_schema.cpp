#include "crossfade/core/state_schema.hpp"

#include <fmt/format.h>

#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {

constexpr const char* kTables = R"sql(
CREATE SCHEMA crossfade;
COMMENT ON SCHEMA crossfade IS 'state of crossfade, the reversible column migration';
CREATE TABLE crossfade.meta (
  key text PRIMARY KEY,
  value text NOT NULL
);
CREATE TABLE crossfade.migration (
  id uuid PRIMARY KEY,
  leader_id uuid REFERENCES crossfade.migration,
  shares_table boolean NOT NULL DEFAULT false,
  name text NOT NULL,
  table_oid oid NOT NULL,
  schema_name text NOT NULL,
  table_name text NOT NULL,
  mode text NOT NULL,
  spec_text text NOT NULL,
  spec_hash text NOT NULL,
  binding jsonb NOT NULL,
  phase text NOT NULL CHECK (phase IN ('planned', 'dry_run', 'backfill', 'dual_write', 'compare', 'switched',
                                       'dropped', 'rolled_back')),
  status text NOT NULL CHECK (status IN ('running', 'paused', 'settled', 'failed')),
  reason text NOT NULL DEFAULT '',
  epoch bigint NOT NULL DEFAULT 1,
  token uuid NOT NULL DEFAULT gen_random_uuid(),
  mark uuid NOT NULL DEFAULT gen_random_uuid(),
  capture_xid xid8,
  capture_blocks bigint,
  capture_relfilenode oid,
  capture_high text[],
  last_write_xid xid8,
  fingerprint jsonb,
  system_identifier text NOT NULL,
  database_oid oid NOT NULL,
  timeline text NOT NULL,
  operator text NOT NULL,
  version text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  phase_since timestamptz NOT NULL DEFAULT clock_timestamp(),
  stop_requested boolean NOT NULL DEFAULT false,
  runner_pid integer,
  runner_backend_start timestamptz,
  runner_host text,
  runner_operator text,
  runner_version text,
  lease_until timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX migration_open_name ON crossfade.migration (name)
  WHERE phase NOT IN ('dropped', 'rolled_back') AND leader_id IS NULL;
CREATE UNIQUE INDEX migration_open_table ON crossfade.migration (table_oid)
  WHERE phase NOT IN ('dropped', 'rolled_back') AND NOT shares_table;
CREATE INDEX migration_of_leader ON crossfade.migration (leader_id) WHERE leader_id IS NOT NULL;
CREATE TABLE crossfade.transition (
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  number bigint NOT NULL,
  from_phase text NOT NULL,
  to_phase text NOT NULL,
  event text NOT NULL,
  operator text NOT NULL,
  host text NOT NULL,
  version text NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  evidence jsonb NOT NULL,
  PRIMARY KEY (migration_id, number)
);
CREATE TABLE crossfade.action (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  action text NOT NULL,
  phase text NOT NULL,
  operator text NOT NULL,
  host text NOT NULL,
  version text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  detail jsonb NOT NULL
);
CREATE TABLE crossfade.acceptance (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  finding text NOT NULL,
  reason text NOT NULL,
  operator text NOT NULL,
  host text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE crossfade.tuning (
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  key text NOT NULL,
  value text NOT NULL,
  changed_by text NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (migration_id, key)
);
CREATE TABLE crossfade.pause (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  kind text NOT NULL,
  reason text NOT NULL,
  changed_by text NOT NULL,
  began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at timestamptz
);
CREATE INDEX pause_of_migration ON crossfade.pause (migration_id, id);
CREATE TABLE crossfade.pass (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  kind text NOT NULL CHECK (kind IN ('profile', 'backfill', 'catch_up', 'replay', 'redrive',
                                     'compare')),
  direction text NOT NULL DEFAULT 'forward' CHECK (direction IN ('forward', 'backward')),
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'ended', 'void')),
  began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at timestamptz,
  fingerprint jsonb,
  rows_read bigint NOT NULL DEFAULT 0,
  rows_written bigint NOT NULL DEFAULT 0,
  differences bigint NOT NULL DEFAULT 0,
  excepted bigint NOT NULL DEFAULT 0,
  sweep jsonb NOT NULL DEFAULT '{}',
  repairs bigint NOT NULL DEFAULT 0,
  result jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX pass_of_migration ON crossfade.pass (migration_id, id);
CREATE TABLE crossfade.unit (
  pass_id bigint NOT NULL REFERENCES crossfade.pass,
  number integer NOT NULL,
  relation oid NOT NULL,
  low text[],
  high text[] NOT NULL,
  range_by text NOT NULL DEFAULT 'key' CHECK (range_by IN ('key', 'block')),
  relfilenode oid,
  watermark text[],
  window_bounds text[],
  visits integer,
  visit integer,
  piece integer,
  within text[],
  done boolean NOT NULL DEFAULT false,
  rows_read bigint NOT NULL DEFAULT 0,
  rows_written bigint NOT NULL DEFAULT 0,
  rows_hot bigint NOT NULL DEFAULT 0,
  chunks bigint NOT NULL DEFAULT 0,
  lease_token uuid,
  lease_until timestamptz,
  lease_runner uuid,
  lease_pid integer,
  lease_backend_start timestamptz,
  split text CHECK (split IN ('wanted', 'refused')),
  PRIMARY KEY (pass_id, number)
) WITH (fillfactor = 40);
CREATE TABLE crossfade.leftover (
  pass_id bigint NOT NULL REFERENCES crossfade.pass,
  unit integer NOT NULL,
  key text[] NOT NULL,
  parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (pass_id, key)
);
CREATE TABLE crossfade.comparison (
  pass_id bigint NOT NULL REFERENCES crossfade.pass,
  number bigint NOT NULL,
  low text[],
  high text[],
  rows_read bigint NOT NULL,
  differences bigint NOT NULL,
  excepted bigint NOT NULL,
  result jsonb NOT NULL DEFAULT '{}',
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (pass_id, number)
);
CREATE TABLE crossfade.reject (
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  key text[] NOT NULL,
  sqlstate text NOT NULL,
  message text NOT NULL,
  state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at timestamptz,
  PRIMARY KEY (migration_id, key)
);
CREATE TABLE crossfade.misfit (
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  key text[] NOT NULL,
  direction text NOT NULL,
  sqlstate text NOT NULL,
  message text NOT NULL,
  state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'closed')),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  closed_at timestamptz,
  PRIMARY KEY (migration_id, key)
);
CREATE TABLE crossfade.reject_note (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL,
  direction text NOT NULL,
  key text[] NOT NULL,
  sqlstate text NOT NULL,
  message text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE crossfade.difference (
  pass_id bigint NOT NULL REFERENCES crossfade.pass,
  key text[] NOT NULL,
  old_hash text NOT NULL,
  new_hash text NOT NULL,
  sqlstate text,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  repaired_at timestamptz,
  PRIMARY KEY (pass_id, key)
);
CREATE TABLE crossfade.dependent (
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  number integer NOT NULL,
  kind text NOT NULL,
  name text NOT NULL,
  detail jsonb NOT NULL,
  builder uuid,
  PRIMARY KEY (migration_id, number)
);
CREATE TABLE crossfade.switch_attempt (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  to_phase text NOT NULL,
  attempt integer NOT NULL,
  outcome text NOT NULL,
  lock_wait_ms double precision,
  lock_held_ms double precision,
  waiting_sessions integer,
  longest_wait_ms double precision,
  total_wait_ms double precision,
  blockers jsonb NOT NULL DEFAULT '[]',
  transition bigint,
  at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE crossfade.request (
  migration_id uuid PRIMARY KEY REFERENCES crossfade.migration,
  token uuid NOT NULL,
  event text NOT NULL,
  to_phase text NOT NULL,
  operator text NOT NULL,
  host text NOT NULL,
  pid integer NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  give_up_at timestamptz,
  waits_for text NOT NULL DEFAULT '',
  attempt integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL,
  blockers jsonb NOT NULL DEFAULT '[]',
  cancelled_by text
) WITH (fillfactor = 50);
CREATE TABLE crossfade.pace (
  migration_id uuid PRIMARY KEY REFERENCES crossfade.migration,
  token uuid NOT NULL,
  state text NOT NULL CHECK (state IN ('running', 'throttled', 'paused', 'idle')),
  signal text NOT NULL DEFAULT '',
  reason text NOT NULL DEFAULT '',
  limit_rows_per_second bigint NOT NULL DEFAULT 0,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  starved_seconds bigint,
  signals jsonb NOT NULL DEFAULT '[]',
  at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE TABLE crossfade.worker (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  migration_id uuid NOT NULL REFERENCES crossfade.migration,
  host text NOT NULL,
  operator text NOT NULL,
  process_id integer NOT NULL,
  pid integer NOT NULL,
  backend_start timestamptz NOT NULL,
  version text NOT NULL,
  spec_hash text NOT NULL,
  threads integer NOT NULL,
  state text NOT NULL DEFAULT '',
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_seen timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
CREATE INDEX worker_of_migration ON crossfade.worker (migration_id);
GRANT USAGE ON SCHEMA crossfade TO PUBLIC;
)sql";

}  // namespace

std::string crossfade_version() { return CROSSFADE_VERSION; }

std::string schema_sql() {
  return std::string(kTables) + "INSERT INTO crossfade.meta (key, value) VALUES ('schema_version', '" +
         std::to_string(kSchemaVersion) + "'), ('installed_by', '" + crossfade_version() + "');\n";
}

SchemaPresence schema_presence(SqlSession& session) {
  // to_regclass answers NULL without USAGE too, but USAGE is granted to PUBLIC in the creating transaction.
  if (!session.exec("SELECT to_regclass('crossfade.meta')").one("regclass")[0]) return SchemaPresence::absent;
  auto found = session.exec("SELECT value FROM crossfade.meta WHERE key = 'schema_version'");
  const auto version = found.empty() ? 0 : int_of(found[0][0]);
  if (version == kSchemaVersion) return SchemaPresence::current;
  return version < kSchemaVersion ? SchemaPresence::older : SchemaPresence::newer;
}

namespace {
[[noreturn]] void refuse_version(SchemaPresence presence) {
  throw Error(
      ErrorCode::schema_version,
      std::string("schema crossfade was made by ") +
          (presence == SchemaPresence::newer ? "a newer" : "an older") + " version of crossfade than " +
          crossfade_version(),
      "use the version that made it, or finish the open migrations with it and run 'crossfade init --remove'",
      "crossfade");
}
}  // namespace

bool install_schema(SqlSession& session) {
  Transaction transaction(session);
  // Serialises two installers; released with the transaction.
  session.exec("SELECT pg_advisory_xact_lock(hashtext('crossfade'), hashtext('schema'))");
  const auto presence = schema_presence(session);
  if (presence == SchemaPresence::current) return false;
  if (presence != SchemaPresence::absent) refuse_version(presence);
  const auto rights =
      session
          .exec(
              "SELECT has_database_privilege(current_database(), 'CREATE'), quote_ident(current_database()),"
              " quote_ident(current_user)")
          .one("rights");
  if (!bool_of(rights[0])) {
    throw Error(
        ErrorCode::permission_denied,
        "role " + text_of(rights[2]) + " may not create schema crossfade in database " + text_of(rights[1]),
        "GRANT CREATE ON DATABASE " + text_of(rights[1]) + " TO " + text_of(rights[2]), text_of(rights[1]));
  }
  if (session.exec("SELECT 1 FROM pg_namespace WHERE nspname = 'crossfade'").size() > 0) {
    throw Error(ErrorCode::schema_in_use, "a schema named crossfade exists and is not this program's",
                "rename or drop that schema first", "crossfade");
  }
  session.script(schema_sql());
  transaction.commit();
  return true;
}

namespace {
// The rows are the role's that made the schema; to others the server's message would name one table of ours.
SchemaPresence presence_for_this_role(SqlSession& session) {
  try {
    return schema_presence(session);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::permission_denied || session.in_transaction()) throw;
    const auto who = session
                         .exec(
                             "SELECT quote_ident(pg_get_userbyid(n.nspowner)), quote_ident(current_user)"
                             " FROM pg_namespace n WHERE n.nspname = 'crossfade'")
                         .one("owner of schema crossfade");
    throw Error(
        ErrorCode::permission_denied,
        fmt::format("schema crossfade of this database belongs to role {}, and role {} may not read it",
                    text_of(who[0]), text_of(who[1])),
        fmt::format("run every command as one role, or GRANT {} TO {}", text_of(who[0]), text_of(who[1])),
        "crossfade")
        .with_sqlstate(error.sqlstate());
  }
}
}  // namespace

void require_schema(SqlSession& session) {
  const auto presence = presence_for_this_role(session);
  if (presence == SchemaPresence::current) return;
  if (presence != SchemaPresence::absent) refuse_version(presence);
  throw Error(ErrorCode::not_initialized, "this database has no schema crossfade", "run 'crossfade init'",
              "crossfade");
}

void remove_schema(SqlSession& session) {
  Transaction transaction(session);
  session.exec("SELECT pg_advisory_xact_lock(hashtext('crossfade'), hashtext('schema'))");
  if (schema_presence(session) == SchemaPresence::absent) return;
  session.exec("LOCK TABLE crossfade.migration IN ACCESS EXCLUSIVE MODE");
  const auto open = session
                        .exec(
                            "SELECT string_agg(DISTINCT name, ', ' ORDER BY name) FROM crossfade.migration"
                            " WHERE phase NOT IN ('dropped', 'rolled_back')")
                        .one("open");
  if (open[0]) {
    throw Error(ErrorCode::schema_in_use, "migrations are open: " + *open[0],
                "drop or roll them back first: crossfade list", "crossfade");
  }
  // CASCADE stays inside: an object of another schema that depends on ours is refused by name first.
  const auto foreign =
      session
          .exec(
              "SELECT string_agg(DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid), ', ')"
              " FROM pg_depend d JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND d.refobjid = p.oid"
              " WHERE p.pronamespace = 'crossfade'::regnamespace"
              " AND NOT (d.classid = 'pg_proc'::regclass AND EXISTS (SELECT 1 FROM pg_proc q WHERE q.oid = "
              "d.objid"
              "          AND q.pronamespace = 'crossfade'::regnamespace))")
          .one("foreign");
  if (foreign[0]) {
    throw Error(ErrorCode::schema_in_use, "other objects depend on schema crossfade: " + *foreign[0],
                "drop them first", "crossfade");
  }
  session.script("DROP SCHEMA crossfade CASCADE");
  transaction.commit();
}

}  // namespace crossfade

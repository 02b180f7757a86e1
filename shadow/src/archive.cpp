// Why the archive holds, row by row, the old value of the moment of the drop.
//
// - A trigger notes the key of every row that is inserted, deleted, or changes its key or its old value. It
//   only appends to a log without constraints: no writer waits for another one because of it, and none fails.
//   CREATE TRIGGER waited for all writers, so that whatever is not in the log was committed before the first
//   chunk's snapshot.
// - Chunks copy in key order, each in one statement without row locks. Whatever their snapshot does not show
//   is in the log.
// - Only when the end was reached is the log replayed: for each key the row in the archive goes, and what
//   the table has now comes. An entry that is seen is of a committed transaction, and the table is read by a
//   later statement, which sees at least that. What changes after it is noted again.
// - The drop replays the rest under ACCESS EXCLUSIVE, when nobody can write, and only if the rest is short.
// - One runner at a time: chunk and replay lock the archive against each other, and look at the token then. A
//   late chunk of a runner that was overtaken would bring back a row whose deletion was replayed.
// - TRUNCATE gives the table another storage, which the fingerprint shows, also under the lock of the drop:
//   the capture is made anew, and the archive with it.
// - A crash undoes the piece under way. Where the copying stands is the greatest key in the archive; that the
//   end was reached stands in the comment of the log.
#include "crossfade/shadow/archive.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/failpoint.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "fenced_ddl.hpp"

namespace crossfade {

namespace {

constexpr std::int64_t kChunk = 5000;  // rows; a fraction of a second
constexpr int kReplay = 5000;          // entries of the log in one transaction
constexpr int kShortLog = 500;         // entries left to the online part
constexpr int kLongestRest = 5000;     // entries that the drop replays under its lock
constexpr std::chrono::milliseconds kArchiveLock{5000};

std::string function_name(const Migration& m, std::string_view role) {
  return "crossfade." + quote_identifier(m.generated.function(role));
}
std::string log_name(const Migration& m) { return function_name(m, "archive_log"); }

// The value's column: as the migrated one, unless that is part of the key and there already.
std::string value_column(const Migration& m) {
  const bool in_key = std::ranges::any_of(
      m.binding.key.columns, [&](const auto& column) { return column.name == m.binding.column.name; });
  return in_key ? m.binding.column.retired_name : m.binding.column.name;
}

std::string key_list(const Migration& m, const std::string& alias) {
  std::string list;
  for (const auto& column : m.binding.key.columns)
    list += (list.empty() ? "" : ", ") + alias + quote_identifier(column.name);
  return list;
}

std::string columns_of_table(const Migration& m) {
  return fmt::format("{}, t.{}", key_list(m, "t."), quote_identifier(m.names.old_column));
}
std::string columns_of_archive(const Migration& m) {
  return fmt::format("{}, {}", key_list(m, ""), quote_identifier(value_column(m)));
}

std::string trigger_body(const Migration& m) {
  const auto seen = [&](const std::string& row) {
    return fmt::format("ROW({}, {}.{})", key_list(m, row + "."), row, quote_identifier(m.names.old_column));
  };
  const auto note = [&](const std::string& row) {
    return fmt::format("INSERT INTO {} (key) VALUES ({});", log_name(m), key_text_sql(m.binding.key, row));
  };
  return fmt::format(R"(BEGIN
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
    IF NOT pg_catalog.record_image_ne({new}, {old}) THEN
      RETURN NULL;
    END IF;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
    {note_old}
  END IF;
  IF TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
    {note_new}
  END IF;
  RETURN NULL;
END)",
                     fmt::arg("new", seen("NEW")), fmt::arg("old", seen("OLD")),
                     fmt::arg("note_old", note("OLD")), fmt::arg("note_new", note("NEW")));
}

std::string comment_text(const Migration& m, const QualifiedName& table) {
  return fmt::format(
      "Values of column {} of {} in its form before migration {} ({}), as they were when it was dropped; "
      "made by crossfade",
      display_identifier(m.binding.column.name), table.display(), m.row.name, m.row.id.text);
}

// The owner of the table has it, and nobody else may read it, whatever default privileges say.
std::string ownership_sql(const Migration& m, const QualifiedName& archive) {
  const auto body = fmt::format(R"(DECLARE
  grantee text;
  owner name := (SELECT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c
                 WHERE c.oid = {}::oid);
BEGIN
  FOR grantee IN SELECT DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE
      pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(x.grantee)) END
    FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) x
    WHERE c.oid = {}::regclass AND x.grantee <> c.relowner LOOP
    EXECUTE 'REVOKE ALL ON ' || {} || ' FROM ' || grantee;
  END LOOP;
  IF owner <> current_user THEN
    EXECUTE pg_catalog.format('ALTER TABLE %s OWNER TO %I', {}, owner);
  END IF;
END)",
                                m.row.table_oid.value, quote_literal(archive.sql()),
                                quote_literal(archive.sql()), quote_literal(archive.sql()));
  return fmt::format("DO {};\n", quote_literal(body));
}

std::string install_sql(const Migration& m, const QualifiedName& table) {
  const auto archive = archive_table(m, table);
  const auto trigger = quote_identifier(m.generated.trigger("archive"));
  return fmt::format(
      "CREATE TABLE {archive} AS SELECT {key}, t.{old} AS {value} FROM {table} t WITH NO DATA;\n"
      "ALTER TABLE {archive} ADD PRIMARY KEY ({bare});\n"
      "{ownership}"
      "COMMENT ON TABLE {archive} IS {comment};\n"
      "CREATE TABLE {log} (key text[] NOT NULL, taken boolean NOT NULL DEFAULT false);\n"
      "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
      "  SET search_path = pg_catalog, pg_temp SET \"DateStyle\" = 'ISO, YMD' SET \"IntervalStyle\" = "
      "'postgres'\n"
      "  SET \"TimeZone\" = 'UTC' SET extra_float_digits = 3 SET bytea_output = 'hex' AS {body};\n"
      "CREATE TRIGGER {trigger} AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION "
      "{function}();\n"
      "ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger};\n",
      fmt::arg("archive", archive.sql()), fmt::arg("key", key_list(m, "t.")),
      fmt::arg("bare", key_list(m, "")), fmt::arg("old", quote_identifier(m.names.old_column)),
      fmt::arg("value", quote_identifier(value_column(m))), fmt::arg("table", table.sql()),
      fmt::arg("ownership", ownership_sql(m, archive)),
      fmt::arg("comment", quote_literal(comment_text(m, table))), fmt::arg("log", log_name(m)),
      fmt::arg("function", function_name(m, "archive")), fmt::arg("body", quote_literal(trigger_body(m))),
      fmt::arg("trigger", trigger));
}

std::string copy_sql(const Migration& m, const QualifiedName& table, const std::string& low,
                     const std::string& high) {
  return fmt::format("INSERT INTO {} ({}) SELECT {} FROM {} t WHERE {} ON CONFLICT DO NOTHING;\n",
                     archive_table(m, table).sql(), columns_of_archive(m), columns_of_table(m),
                     rows_sql(m.binding.key, table), key_range_sql(m.binding.key, "t", low, high));
}

// Each key on its own through the index: the planner knows nothing of the log, and must not read the table
// for it while the table is locked.
std::string replay_sql(const Migration& m, const QualifiedName& table, int limit) {
  return fmt::format(
      "SET LOCAL enable_seqscan = off;\nSET LOCAL enable_material = off;\n"
      "UPDATE {log} SET taken = true WHERE ctid = ANY (ARRAY(SELECT ctid FROM {log} LIMIT {limit}));\n"
      "DELETE FROM {archive} WHERE ctid = ANY (ARRAY(SELECT a.ctid FROM (SELECT DISTINCT key FROM {log} "
      "WHERE "
      "taken) l CROSS JOIN LATERAL (SELECT t.ctid FROM {archive} t WHERE {equals} LIMIT 1) a));\n"
      "INSERT INTO {archive} ({columns}) SELECT a.* FROM (SELECT DISTINCT key FROM {log} WHERE taken) l"
      " CROSS JOIN LATERAL (SELECT {values} FROM {table} t WHERE {equals} LIMIT 1) a;\n"
      "DELETE FROM {log} WHERE taken;\n",
      fmt::arg("log", log_name(m)), fmt::arg("limit", limit),
      fmt::arg("archive", archive_table(m, table).sql()),
      fmt::arg("equals", key_equals_sql(m.binding.key, "t", "l.key")),
      fmt::arg("columns", columns_of_archive(m)), fmt::arg("values", columns_of_table(m)),
      fmt::arg("table", rows_sql(m.binding.key, table)));
}

std::string say_copied_sql(const Migration& m) {
  return fmt::format("COMMENT ON TABLE {} IS 'copied';\n", log_name(m));
}

std::string remove_trigger(const Migration& m, const QualifiedName& table) {
  return fmt::format("DROP TRIGGER IF EXISTS {} ON {};\n", quote_identifier(m.generated.trigger("archive")),
                     table.sql());
}

}  // namespace

QualifiedName archive_table(const Migration& m, const QualifiedName& table) {
  return {table.schema, m.generated.archive_table(table.name)};
}

ArchiveState archive_state(SqlSession& session, const Migration& m) {
  ArchiveState state;
  const auto log = session.exec(
      "SELECT to_regclass($1) IS NOT NULL, coalesce(obj_description(to_regclass($1), "
      "'pg_class'), '') = 'copied'",
      {log_name(m)});
  state.installed = bool_of(log[0][0]);
  if (!state.installed) return state;
  state.copied = bool_of(log[0][1]);
  state.log_is_short =
      bool_of(session
                  .exec(fmt::format("SELECT count(*) <= {} FROM (SELECT 1 FROM {} LIMIT {}) l", kShortLog,
                                    log_name(m), kShortLog + 1))
                  .one("log")[0]);
  return state;
}

void install_archive(SqlSession& session, const Migration& m, const QualifiedName& table,
                     std::chrono::milliseconds lock_timeout) {
  // The comparison that counts must begin after the triggers are there: it sees the fingerprint with them.
  run_fenced(session, m, table, "SHARE ROW EXCLUSIVE", TokenFence::held, lock_timeout,
             install_sql(m, table) +
                 fmt::format("UPDATE crossfade.migration SET fingerprint = {} WHERE id = {}::uuid;\n",
                             fingerprint_sql(m), quote_literal(m.row.id.text)));
}

bool archive_step(SqlSession& session, const Migration& m, const QualifiedName& table) {
  const auto archive = archive_table(m, table);
  const auto fenced = [&](const std::string& statements) {
    run_fenced(session, m, archive, "SHARE ROW EXCLUSIVE", TokenFence::read, kArchiveLock, statements);
  };
  if (!archive_state(session, m).copied) {
    const auto low = greatest_key(session, archive, m.binding.key);
    const auto high = nth_key(session, table, m.binding.key, {low, std::nullopt}, kChunk);
    const auto literal = [](const std::optional<Key>& key) {
      return key ? quote_literal(array_literal(*key)) + "::text[]" : std::string();
    };
    fenced(copy_sql(m, table, literal(low), literal(high)) + (high ? "" : say_copied_sql(m)));
    failpoint::hit("archive.chunk");
    return false;
  }
  fenced(replay_sql(m, table, kReplay));
  failpoint::hit("archive.replay");
  const auto state = archive_state(session, m);
  return state.copied && state.log_is_short;
}

std::string archive_recheck_sql(const Migration& m) {
  return fmt::format(
      "IF to_regclass({0}) IS NULL OR coalesce(obj_description(to_regclass({0}), 'pg_class'), '') <> 'copied'"
      " OR (SELECT count(*) > {1} FROM (SELECT 1 FROM {2} LIMIT {3}) l)"
      " THEN RAISE EXCEPTION USING ERRCODE = 'CF001', MESSAGE = 'too much changed since the archive was "
      "made'; "
      "END IF;\n",
      quote_literal(log_name(m)), kLongestRest, log_name(m), kLongestRest + 1);
}

std::string finish_archive_sql(const Migration& m, const QualifiedName& table) {
  return replay_sql(m, table, kLongestRest + 1) + remove_trigger(m, table) + remove_archive_log_sql(m);
}

std::string remove_archive_sql(const Migration& m, const QualifiedName& table) {
  return remove_trigger(m, table) + remove_archive_log_sql(m) +
         fmt::format("DROP TABLE IF EXISTS {};\n", archive_table(m, table).sql());
}

std::string remove_archive_log_sql(const Migration& m) {
  return fmt::format("DROP FUNCTION IF EXISTS {}();\nDROP TABLE IF EXISTS {};\n", function_name(m, "archive"),
                     log_name(m));
}

std::vector<Statement> archive_statements(const Migration& m, const QualifiedName& table) {
  const auto archive = archive_table(m, table).display();
  return {{"the archive of the old values, once the drop is asked for", install_sql(m, table),
           "SHARE ROW EXCLUSIVE on " + table.display(), Blocks::table, true},
          {"a chunk of it", copy_sql(m, table, "$1::text[]", "$2::text[]"),
           "ACCESS SHARE on " + table.display() + ", SHARE ROW EXCLUSIVE on " + archive},
          {"what was written meanwhile", replay_sql(m, table, kReplay),
           "ACCESS SHARE on " + table.display() + ", SHARE ROW EXCLUSIVE on " + archive}};
}

}  // namespace crossfade

#include "crossfade/shadow/rejects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "crossfade/core/error.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/transform.hpp"
#include "sweep_sql.hpp"

namespace crossfade {

namespace {

std::int64_t count_open(SqlSession& session, const MigrationId& id, std::string_view table) {
  return int_of(
      session
          .exec(fmt::format("SELECT count(*) FROM crossfade.{} WHERE migration_id = $1 AND state = 'open'",
                            table),
                {id.text})
          .one("count")[0]);
}

std::vector<RejectRow> list_open(SqlSession& session, const MigrationId& id, std::string_view table) {
  std::vector<RejectRow> rows;
  for (const auto& row :
       session
           .exec(fmt::format("SELECT key, sqlstate, message, at FROM crossfade.{}"
                             " WHERE migration_id = $1 AND state = 'open' ORDER BY at, key LIMIT 10000",
                             table),
                 {id.text})
           .rows) {
    rows.push_back({parse_key(text_of(row[0])), text_of(row[1]), text_of(row[2]), text_of(row[3])});
  }
  return rows;
}

struct Noted {
  std::string key, sqlstate, message;
  std::string notes;  // ids of the notes that this reading covers, as bigint[]
};

// Keys with an open row or an unread note, each once.
std::vector<Noted> noted(SqlSession& session, const MigrationId& id, std::string_view table,
                         std::string_view direction) {
  std::vector<Noted> rows;
  for (const auto& row :
       session
           .exec(fmt::format(
                     "SELECT key, (array_agg(sqlstate ORDER BY o))[1], (array_agg(message ORDER BY o))[1],"
                     " coalesce(array_agg(id) FILTER (WHERE id IS NOT NULL), '{{}}') FROM ("
                     " SELECT key, sqlstate, message, 0 AS o, id FROM crossfade.reject_note"
                     "  WHERE migration_id = $1 AND direction = $2"
                     " UNION ALL SELECT key, sqlstate, message, 1, NULL FROM crossfade.{}"
                     "  WHERE migration_id = $1 AND state = 'open') n GROUP BY key ORDER BY key",
                     table),
                 {id.text, std::string(direction)})
           .rows) {
    rows.push_back({text_of(row[0]), text_of(row[1]), text_of(row[2]), text_of(row[3])});
  }
  return rows;
}

// Exactly the notes that were read: one with a smaller number may commit later.
void drop_notes(SqlSession& session, const std::string& notes) {
  if (notes == "{}") return;
  session.exec_prepared("DELETE FROM crossfade.reject_note WHERE id = ANY ($1::bigint[])", {notes});
}

void set_open(SqlSession& session, const MigrationId& id, std::string_view table, std::string_view direction,
              const Noted& row) {
  const bool misfit = table == "misfit";
  SqlParams params{id.text, row.key, row.sqlstate, row.message};
  if (misfit) params.push_back(std::string(direction));
  session.exec_prepared(
      fmt::format(
          "INSERT INTO crossfade.{} (migration_id, key, sqlstate, message{}) VALUES ($1, $2::text[], $3,"
          " left($4, 500){}) ON CONFLICT (migration_id, key) DO UPDATE SET sqlstate = excluded.sqlstate,"
          " message = excluded.message, state = 'open', closed_at = NULL",
          table, misfit ? ", direction" : "", misfit ? ", $5" : ""),
      params);
}

void close(SqlSession& session, const MigrationId& id, std::string_view table, const std::string& key) {
  session.exec_prepared(fmt::format("UPDATE crossfade.{} SET state = 'closed', closed_at = clock_timestamp()"
                                    " WHERE migration_id = $1 AND key = $2::text[] AND state = 'open'",
                                    table),
                        {id.text, key});
}

std::pair<std::string, std::string> split_failure(const std::string& why) {
  return {why.substr(0, 5), why.size() > 6 ? why.substr(6) : std::string()};
}

}  // namespace

std::int64_t open_rejects(SqlSession& session, const MigrationId& id) {
  return count_open(session, id, "reject");
}
std::int64_t open_misfits(SqlSession& session, const MigrationId& id) {
  return count_open(session, id, "misfit");
}
std::vector<RejectRow> list_rejects(SqlSession& session, const MigrationId& id) {
  return list_open(session, id, "reject");
}
std::vector<RejectRow> list_misfits(SqlSession& session, const MigrationId& id) {
  return list_open(session, id, "misfit");
}

void record_reject(SqlSession& session, const MigrationId& id, const std::string& key, const Error& error) {
  set_open(session, id, "reject", "forward", {key, error.sqlstate(), error.message(), "{}"});
}

namespace {

// What the row behind a note is now: nullopt when it is gone.
struct RowState {
  std::string failure;  // empty when the expression works
  bool stale = false;   // it works, and the other side is not its result
};

std::optional<RowState> row_state(SqlSession& session, const std::string& sql, const std::string& key) {
  const auto found = session.exec_prepared(sql, {key});
  if (found.empty()) return std::nullopt;
  return RowState{text_of(found[0][0]), bool_of(found[0][1])};
}

// Row locks are waited for this long at most, while nothing is held.
constexpr std::chrono::milliseconds kRowWait{250};

}  // namespace

std::string reject_state_sql(const Migration& m, const QualifiedName& table, std::string_view key) {
  const auto& column = m.binding.column;
  const auto failure = try_call_sql(column.forward, m.names, "t");
  return fmt::format(
      "SELECT coalesce({0}, ''), CASE WHEN {0} IS NULL THEN {1} ELSE false END FROM {2} t WHERE {3}", failure,
      differs_sql(column.new_type, "t." + quote_identifier(m.names.new_column),
                  call_sql(column.forward, m.names, "t")),
      rows_sql(m.binding.key, table), key_equals_sql(m.binding.key, "t", key));
}

// Why the row is a misfit; empty when either direction holds.
std::string misfit_state_sql(const Migration& m, const QualifiedName& table, std::string_view key) {
  const auto& column = m.binding.column;
  return fmt::format(
      "SELECT CASE WHEN CASE WHEN {fwd_fails} IS NULL THEN NOT {fwd_differs} ELSE false END THEN '' WHEN "
      "{back_fails} IS NOT NULL THEN {back_fails}"
      " WHEN {back_differs} THEN '22000 the old value is not what the way back gives' ELSE {inexact} END"
      " FROM {table} t WHERE {equals}",
      fmt::arg("fwd_fails", "(" + try_call_sql(column.forward, m.names, "t") + ")"),
      fmt::arg("fwd_differs", differs_sql(column.new_type, "t." + quote_identifier(m.names.new_column),
                                          call_sql(column.forward, m.names, "t"))),
      fmt::arg("back_fails", column.backward ? "(" + try_call_sql(*column.backward, m.names, "t") + ")"
                                             : std::string("'0A000 there is no way back for this value'")),
      fmt::arg("back_differs", column.backward
                                   ? differs_sql(column.old_type, "t." + quote_identifier(m.names.old_column),
                                                 call_sql(*column.backward, m.names, "t"))
                                   : std::string("false")),
      // Neither side fails and the old value is what the way back gives, and yet forward does not lead to the
      // new one.
      fmt::arg("inexact", column.one_way || column.old_type == column.new_type
                              ? "''"
                              : "'22000 the old column cannot hold the value exactly'"),
      fmt::arg("table", rows_sql(m.binding.key, table)),
      fmt::arg("equals", key_equals_sql(m.binding.key, "t", key)));
}

Resolution resolve_rejects(SqlSession& session, const Migration& m, const QualifiedName& table,
                           const Token& token, const std::function<void()>& before_write) {
  Resolution resolution;
  const auto state_sql = reject_state_sql(m, table);
  const auto write = write_row_sql(m, table);
  bool told = false;
  session.set_lock_timeout(kRowWait);
  for (auto& row : noted(session, m.row.id, "reject", "forward")) {
    const auto state = row_state(session, state_sql, row.key);
    bool failing = state && !state->failure.empty();
    if (failing) std::tie(row.sqlstate, row.message) = split_failure(state->failure);
    if (state && state->stale) {
      if (!told) before_write();
      told = true;
      try {
        const auto written = session.exec_prepared(
            write, {m.row.id.text, token.text, std::string(to_text(m.row.phase)), m.row.mark.text, row.key});
        // Without the fence nothing was written: the row stays as it was, and so does its reject.
        failing = !bool_of(written.one("row")[0]);
        resolution.written += int_of(written[0][2]);
      } catch (const Error& error) {
        if (error.is_transient()) {
          resolution.complete = false;
          continue;
        }
        if (!error.is_data_error()) throw;
        failing = true;
        row.sqlstate = error.sqlstate();
        row.message = error.message();
      }
    }
    if (failing) {
      set_open(session, m.row.id, "reject", "forward", row);
    } else {
      close(session, m.row.id, "reject", row.key);
      ++resolution.closed;
    }
    drop_notes(session, row.notes);
  }
  session.set_lock_timeout(std::chrono::milliseconds(0));
  resolution.open = open_rejects(session, m.row.id);
  return resolution;
}

Resolution resolve_misfits(SqlSession& session, const Migration& m, const QualifiedName& table) {
  Resolution resolution;
  const auto fits = misfit_state_sql(m, table);
  for (const auto* direction : {"backward", "forward"}) {
    for (auto& row : noted(session, m.row.id, "misfit", direction)) {
      const auto found = session.exec_prepared(fits, {row.key});
      if (found.empty() || text_of(found[0][0]).empty()) {
        close(session, m.row.id, "misfit", row.key);
        ++resolution.closed;
      } else {
        std::tie(row.sqlstate, row.message) = split_failure(text_of(found[0][0]));
        set_open(session, m.row.id, "misfit", direction, row);
      }
      drop_notes(session, row.notes);
    }
  }
  resolution.open = open_misfits(session, m.row.id);
  return resolution;
}

std::int64_t misfits_now(SqlSession& session, const Migration& m) {
  constexpr std::size_t kMostKeys = 1000;
  const auto keys = session.exec(
      "SELECT key FROM crossfade.misfit WHERE migration_id = $1 AND state = 'open' UNION"
      " SELECT key FROM crossfade.reject_note WHERE migration_id = $1 AND direction = 'backward'",
      {m.row.id.text});
  const auto table = relation_name(session, m.row.table_oid);
  if (!table || keys.rows.size() > kMostKeys) return static_cast<std::int64_t>(keys.rows.size());
  const auto fits = misfit_state_sql(m, *table);
  return std::ranges::count_if(keys.rows, [&](const auto& row) {
    const auto found = session.exec_prepared(fits, {text_of(row[0])});
    return !found.empty() && !text_of(found[0][0]).empty();
  });
}

namespace {

// Empty: the note tells of nothing. The row is gone, or was never inserted, or is in order.
std::string why_sql(const Migration& m, const QualifiedName& table, NoteDirection direction,
                    std::string_view key) {
  if (direction == NoteDirection::backward) {
    return fmt::format("SELECT s.why FROM ({}) AS s (why)", misfit_state_sql(m, table, key));
  }
  return fmt::format("SELECT CASE WHEN s.stale THEN 'stale' ELSE s.why END FROM ({}) AS s (why, stale)",
                     reject_state_sql(m, table, key));
}

std::string_view word_of(NoteDirection direction) {
  return direction == NoteDirection::forward ? "forward" : "backward";
}

// More keys than this are not looked at in one go, neither before the lock nor under it.
constexpr int kMostKeysBefore = 1000;
constexpr int kMostKeysUnderLock = 200;

}  // namespace

void drop_empty_notes(SqlSession& session, const Migration& m, const QualifiedName& table,
                      NoteDirection direction) {
  const auto notes =
      session.exec(fmt::format("SELECT key, array_agg(id) FROM crossfade.reject_note WHERE migration_id = $1"
                               " AND direction = $2 GROUP BY key ORDER BY min(id) LIMIT {}",
                               kMostKeysBefore),
                   {m.row.id.text, std::string(word_of(direction))});
  const auto why = why_sql(m, table, direction, "$1::text[]");
  for (const auto& note : notes.rows) {
    const auto found = session.exec_prepared(why, {text_of(note[0])});
    if (found.empty() || text_of(found[0][0]).empty()) drop_notes(session, text_of(note[1]));
  }
}

// Key by key, so that each is one look into the index whatever the planner thinks of the notes.
std::string notes_are_empty_sql(const Migration& m, const QualifiedName& table, NoteDirection direction) {
  return fmt::format(
      R"(DECLARE
  cf_note record;
  cf_why text;
  cf_seen integer := 0;
BEGIN
  FOR cf_note IN SELECT DISTINCT n.key FROM crossfade.reject_note n
      WHERE n.migration_id = {id}::uuid AND n.direction = {direction} LOOP
    cf_seen := cf_seen + 1;
    cf_why := ({why});
    IF cf_seen > {most} OR cf_why <> '' THEN
      RAISE EXCEPTION USING ERRCODE = 'CF001',
        MESSAGE = 'a row that cannot be carried was written since the comparison';
    END IF;
  END LOOP;
END;
)",
      fmt::arg("id", quote_literal(m.row.id.text)), fmt::arg("direction", quote_literal(word_of(direction))),
      fmt::arg("why", why_sql(m, table, direction, "cf_note.key")), fmt::arg("most", kMostKeysUnderLock));
}

}  // namespace crossfade

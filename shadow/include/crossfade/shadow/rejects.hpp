// Rows that cannot be carried: rejects (forward, before the switch) and misfits (after it). Counted by query
// against the data, never by a counter; the triggers' notes are hints that are resolved here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/error.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct RejectRow {
  Key key;
  std::string sqlstate, message, at;
  std::string table = {};  // of a member of a group; empty: the migration's own
};

std::int64_t open_rejects(SqlSession& session, const MigrationId& id);
std::vector<RejectRow> list_rejects(SqlSession& session, const MigrationId& id);
std::int64_t open_misfits(SqlSession& session, const MigrationId& id);
std::vector<RejectRow> list_misfits(SqlSession& session, const MigrationId& id);
void record_reject(SqlSession& session, const MigrationId& id, const std::string& key, const Error& error);

// Looks at the row behind every note and every open reject (forward) or misfit (backward): gone or fine
// closes it, still failing keeps or opens it. Fine rows whose other side is stale are written, one per
// transaction, under the fence
// (`token` is the runner's). Returns how many stay open. Bounded: looks at no more than `most` rows per call;
// `complete` tells whether it saw all.
struct Resolution {
  std::int64_t open = 0, closed = 0, written = 0;
  bool complete = true;
};
// before_write is called once, before the first row is written.
Resolution resolve_rejects(SqlSession& session, const Migration& migration, const QualifiedName& table,
                           const Token& token, const std::function<void()>& before_write);
Resolution resolve_misfits(SqlSession& session, const Migration& switched, const QualifiedName& table);
// How many rows are misfits now, read from the rows behind what is open or noted. Writes nothing, so anybody
// may ask. Of more than a thousand each counts, looked at or not; so does each when the table is gone.
std::int64_t misfits_now(SqlSession& session, const Migration& switched);

// What is read to look at one row, `key` being its key as an expression of type text[]: how its expression
// fails and whether the other side is stale; how its value does not fit ('' when it does).
std::string reject_state_sql(const Migration& migration, const QualifiedName& table,
                             std::string_view key = "$1::text[]");
std::string misfit_state_sql(const Migration& switched, const QualifiedName& table,
                             std::string_view key = "$1::text[]");

enum class NoteDirection { forward, backward };
// A stream of notes that tell of nothing (ON CONFLICT DO NOTHING leaves one for a row that it does not
// insert) must not keep a gate shut. Deletes those whose row is gone or in order, and writes nothing else:
// the others stay for who may write the row.
void drop_empty_notes(SqlSession& session, const Migration& migration, const QualifiedName& table,
                      NoteDirection direction);
// PL/pgSQL for under the lock: a block that looks at the row behind each note that is left, and raises CF001
// for one that cannot be carried.
std::string notes_are_empty_sql(const Migration& migration, const QualifiedName& table,
                                NoteDirection direction);

}  // namespace crossfade

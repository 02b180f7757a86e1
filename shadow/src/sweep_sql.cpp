// The chunk: fence, unit, rows and watermark in one autocommit statement.
//
// Why a late chunk writes nothing. Every transition that ends or voids a sweep (switch, rollback, capture
// removal) holds ACCESS EXCLUSIVE on the table in the transaction that changes phase or token. The chunk
// takes ROW EXCLUSIVE when its statement is analysed, or re-acquires it before a cached plan is used, and
// only then takes the snapshot in which it reads the migration row. So either the chunk's lock came first and
// the transition waits for the chunk, or the transition came first and the chunk's snapshot shows another
// phase or token: the fence is empty, EXISTS is a one-time filter, and nothing is written. (Of a partitioned
// table the chunk locks its leaf, and a transition the table and every leaf.) The row is read
// plainly: FOR SHARE would deadlock with a transition, which locks the migration row before the table.
//
// Why the unit cannot be advanced twice. The unit row is locked with its lease token and the whole position
// (watermark, visit, piece, how far within it) from which this chunk began; a second execution (lost answer,
// replayed message, woken worker) finds another position and writes nothing. Rows and position commit
// together or not at all, which is also why the commit may be asynchronous: after a crash of the server both
// are gone together and the chunk is done again. The bounds of the pieces are in the unit row before the
// first chunk of the window, so whoever takes over goes on with the same pieces: one chunk is done twice at
// most.
//
// Why a window leaves no row out. Only the last visit counts, and it is the sweep without a window: its
// chunks tile the window from its start (the watermark) to its end, have no condition but the range, and move
// the watermark there when all are committed. A row version older than the capture that is in the range of
// such a chunk is in its snapshot, and is written, parked or rejected; one that came later, by an insert, an
// update or a moved key, passed the trigger. The visits before it write the same values in the same fence,
// earlier, and prove nothing: whether a row had the share of its visit does not matter. A row's share is the
// number of its line pointer, which no statement but a write of the row changes, and a rewrite of the table
// (VACUUM FULL, CLUSTER): a row that slips from a later share into an earlier one is left to the last visit.
// A deleted row is in no snapshot. A window that is given up is opened again from the watermark.
//
// Why blocks will do for bounds, in a backfill. A row version older than the capture lies in a block below
// the size that the table had then, and stays in it until it is updated, which passes the trigger, or
// deleted. A row that leaves the range while a chunk waits for it was updated by somebody else, so it needs
// nothing. Only a rewrite moves a version without a write; it gives the table another storage under ACCESS
// EXCLUSIVE. The chunk compares the storage with the unit's under its own lock on the table: while it runs
// there is no rewrite, and after one it writes nothing and says so, until the capture was made anew (the
// storage is part of its fingerprint). A replay goes by key: it must find what the triggers missed, wherever
// it lies.
//
// Why a concurrent writer never loses. At READ COMMITTED a row that changed after the snapshot is locked,
// re-read and re-tested: the new value is computed from the row as it is, in the server, never from something
// read earlier. A version written after the capture came through the trigger and is already right.
//
// Why a deleted row stays deleted. There is no INSERT in it.
#include "sweep_sql.hpp"

#include <fmt/format.h>

#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

namespace {

constexpr const char* kLow = "$17::text[]";
constexpr const char* kHigh = "$18::text[]";
// Balanced on every page, and cheap: the last two bytes of a tid are the number of the line pointer.
constexpr const char* kShare =
    "get_byte(tidsend(t.ctid), 5) % ${}::integer BETWEEN ${}::integer AND ${}::integer";

std::string block_range(std::string_view low, std::string_view high) {
  const auto tid = [](std::string_view bound) {
    return fmt::format("('(' || ({})[1] || ',0)')::tid", bound);
  };
  std::string sql;
  if (!low.empty()) sql = fmt::format("t.ctid >= {} AND ", tid(low));
  return sql + fmt::format("t.ctid < {}", tid(high));
}

// set_config(…, true) lasts for this statement's transaction only, so nothing leaks through a pooler.
constexpr const char* kFence =
    "fence AS MATERIALIZED ("
    " SELECT set_config('crossfade.sweep', $4::text, true) AS mark,"
    // For the functions of the user's triggers; our own names were resolved before it is set.
    " set_config('search_path', coalesce(nullif(current_setting('crossfade.search_path', true), ''),"
    " current_setting('search_path')), true) AS path, set_config('synchronous_commit', "
    "{commit}, true)"
    " AS asynchronous FROM crossfade.migration m"
    " WHERE m.id = $1::uuid AND m.token = $2::uuid AND m.phase = $3::text AND m.status {status})";

// A single row may be written in a settled or failed phase too (a retry, a repair); a paused one is left
// alone.
std::string fence(bool asynchronous, std::string_view status) {
  return fmt::format(kFence, fmt::arg("commit", asynchronous ? "'off'" : "'on'"), fmt::arg("status", status));
}

struct Pieces {
  std::string table, shadow, value, differs, range, key_text, failure;
};

Pieces pieces(const Migration& m, const QualifiedName& table, RangeBy by, std::string_view low,
              std::string_view high) {
  Pieces p;
  p.table = table.sql();
  p.shadow = quote_identifier(m.names.new_column);
  p.value = call_sql(m.binding.column.forward, m.names, "t");
  p.differs = differs_sql(m.binding.column.new_type, "t." + p.shadow, p.value);
  p.range = by == RangeBy::key ? key_range_sql(m.binding.key, "t", low, high) : block_range(low, high);
  p.key_text = key_text_sql(m.binding.key, "t");
  p.failure = try_call_sql(m.binding.column.forward, m.names, "t");
  return p;
}

// The counters are the backend's own and are not sent off within a statement: what they gain in it is its
// own. Rows are counted where all of them are taken, so each once; by blocks also those that an earlier visit
// made leave their page, which the last one finds no more.
constexpr const char* kTail =
    "hot AS MATERIALIZED (SELECT pg_stat_get_xact_tuples_hot_updated(s.relation) - s.hot AS n"
    " FROM slot s, (SELECT count(*) FROM written) w),"
    " advanced AS ("
    " UPDATE crossfade.unit u SET watermark = $12::text[], visit = $13::integer, piece = $14::integer,"
    " within = $15::text[], done = $16::boolean,"
    " window_bounds = CASE WHEN $13::integer IS NOT NULL THEN u.window_bounds END,"
    " visits = CASE WHEN $13::integer IS NOT NULL THEN u.visits END, chunks = u.chunks + 1,"
    " rows_read = u.rows_read + {read}, rows_written = u.rows_written + (SELECT count(*) FROM written),"
    " rows_hot = u.rows_hot + (SELECT n FROM hot),"
    " lease_until = clock_timestamp() + interval '15 s'"
    " WHERE u.pass_id = $5::bigint AND u.number = $6::integer AND EXISTS (SELECT FROM slot) RETURNING 1)"
    " SELECT EXISTS (SELECT FROM fence WHERE mark IS NOT NULL), EXISTS (SELECT FROM slot), (SELECT n FROM "
    "seen),"
    " (SELECT needed FROM seen), (SELECT count(*) FROM written), {parked}, {rejected},"
    " (SELECT count(*) FROM advanced), EXISTS (SELECT FROM calm), coalesce((SELECT n FROM hot), 0),"
    " EXISTS (SELECT FROM crossfade.unit u WHERE u.pass_id = $5::bigint AND u.number = $6::integer"
    " AND u.relfilenode <> pg_relation_filenode(u.relation))";

// The unit stands where four parameters say.
std::string stands_at(int first) {
  return fmt::format(
      "(u.watermark, u.visit, u.piece, u.within) IS NOT DISTINCT FROM"
      " (${}::text[], ${}::integer, ${}::integer, ${}::text[])",
      first, first + 1, first + 2, first + 3);
}

constexpr const char* kSlot =
    "slot AS MATERIALIZED ("
    " SELECT u.relation, pg_stat_get_xact_tuples_hot_updated(u.relation) AS hot"
    " FROM crossfade.unit u WHERE u.pass_id = $5::bigint"
    " AND u.number = $6::integer AND u.lease_token = $7::uuid AND {position}"
    " AND (u.relfilenode IS NULL OR u.relfilenode = pg_relation_filenode(u.relation))"
    " AND EXISTS (SELECT FROM fence WHERE mark IS NOT NULL) AND EXISTS (SELECT FROM calm) FOR UPDATE)";

// No lock of any session has been waited for longer than half of deadlock_timeout. Whoever waits longer may
// be in a cycle that our next row lock would close, and may reach its deadlock check while we live. A younger
// waiter reaches it only after statement_timeout (a quarter of deadlock_timeout) has ended us, and a waiter
// checks once: so in a cycle of any length with a chunk nobody is ever chosen as victim. It is asked inside
// the statement, before its first row lock, because a client may stall for any time between two statements.
constexpr const char* kCalm =
    "calm AS MATERIALIZED (SELECT WHERE NOT EXISTS (SELECT FROM pg_locks l WHERE NOT l.granted"
    " AND (l.waitstart IS NULL OR l.waitstart < clock_timestamp()"
    " - current_setting('deadlock_timeout')::interval / 2)))";
// The careful way waits for no row, so it closes no cycle.
constexpr const char* kAlwaysCalm = "calm AS MATERIALIZED (SELECT)";

}  // namespace

namespace {
// Reading the range a second time only to count costs as much as finding what to write. Where a share is
// taken by blocks nothing rests on it: whatever a visit left unwritten, and whatever a trigger swallows, the
// last one finds.
bool counts_rows(const ChunkForm& form) {
  return form.by == RangeBy::key || form.share == ChunkForm::Share::all;
}
}  // namespace

std::string chunk_sql(const Migration& m, const QualifiedName& table, const ChunkForm& form) {
  const bool low_is_open = form.low == ChunkForm::Low::open;
  const bool shared = form.share == ChunkForm::Share::one;
  const auto way = form.way;
  const auto p = pieces(m, table, form.by, low_is_open ? "" : kLow, kHigh);
  // Names $17 even when the range does not use it, so that the low bound is no matter of the parameters.
  const std::string range = p.range + (low_is_open ? fmt::format(" AND {} IS NULL", kLow) : "") +
                            (shared ? " AND " + fmt::format(kShare, 19, 20, 21) : "");
  const bool tolerant = way == ChunkWay::tolerant;
  // CASE fixes the order of evaluation: the expression is never called on a row on which it fails.
  const std::string needs =
      tolerant ? fmt::format("CASE WHEN {} IS NULL THEN {} ELSE false END", p.failure, p.differs) : p.differs;
  std::string sql = "WITH " + fence(!tolerant, "= 'running'") + ", " +
                    (way == ChunkWay::careful ? kAlwaysCalm : kCalm) + ", " +
                    fmt::format(kSlot, fmt::arg("position", stands_at(8))) + ", ";
  if (counts_rows(form)) {
    sql += fmt::format(
        "seen AS MATERIALIZED (SELECT count(*) AS n, count(*) FILTER (WHERE {}) AS needed FROM ONLY {} t"
        " WHERE {} AND EXISTS (SELECT FROM slot)), ",
        needs, p.table, range);
  }
  std::string parked = "0", rejected = "0";
  if (way == ChunkWay::careful) {
    // A row that changed between the snapshot and its lock has a version that the trigger wrote: its ctid is
    // not in our snapshot, the join misses it, and it needs nothing.
    sql += fmt::format(
        "free AS MATERIALIZED (SELECT t.ctid FROM ONLY {0} t WHERE {1} AND {2} AND EXISTS (SELECT FROM slot)"
        " FOR NO KEY UPDATE SKIP LOCKED), "
        "written AS (UPDATE ONLY {0} t SET {3} = {4} FROM free WHERE t.ctid = free.ctid RETURNING 1), "
        "parked AS (INSERT INTO crossfade.leftover (pass_id, unit, key) SELECT $5::bigint, $6::integer, {5}"
        " FROM ONLY {0} t WHERE {1} AND {2} AND EXISTS (SELECT FROM slot)"
        " AND NOT EXISTS (SELECT FROM free WHERE free.ctid = t.ctid) ON CONFLICT DO NOTHING RETURNING 1), ",
        p.table, range, needs, p.shadow, p.value, p.key_text);
    parked = "(SELECT count(*) FROM parked)";
  } else {
    sql += fmt::format(
        "written AS (UPDATE ONLY {} t SET {} = {} WHERE {} AND {} AND EXISTS (SELECT FROM slot) RETURNING "
        "1), ",
        p.table, p.shadow, p.value, range, needs);
  }
  if (!counts_rows(form))
    sql += "seen AS MATERIALIZED (SELECT count(*) AS n, count(*) AS needed FROM written), ";
  if (tolerant) {
    sql += fmt::format(
        "rejected AS (INSERT INTO crossfade.reject (migration_id, key, sqlstate, message)"
        " SELECT $1::uuid, b.key, left(b.why, 5), left(substr(b.why, 7), 500)"
        " FROM (SELECT {} AS key, {} AS why FROM ONLY {} t WHERE {} AND EXISTS (SELECT FROM slot)) b"
        " WHERE b.why IS NOT NULL ON CONFLICT (migration_id, key) DO UPDATE SET sqlstate = excluded.sqlstate,"
        " message = excluded.message, state = 'open', at = clock_timestamp(), closed_at = NULL RETURNING "
        "1), ",
        p.key_text, p.failure, p.table, range);
    rejected = "(SELECT count(*) FROM rejected)";
  }
  const std::string left = "(SELECT count(*) FROM written) - (SELECT n FROM hot)";
  const std::string read = !shared ? "(SELECT n FROM seen)" : (form.by == RangeBy::block ? left : "0");
  return sql + fmt::format(kTail, fmt::arg("parked", parked), fmt::arg("rejected", rejected),
                           fmt::arg("read", read));
}

namespace {

SqlValue nullable(const std::optional<Key>& key) { return key ? SqlValue(array_literal(*key)) : SqlValue(); }

// Absent without a window.
SqlValue place(int number) { return number > 0 ? SqlValue(std::to_string(number)) : SqlValue(); }

void append(SqlParams& params, const SweepPosition& at) {
  params.insert(params.end(),
                {nullable(at.watermark), place(at.visit), place(at.piece), nullable(at.within)});
}

}  // namespace

void append_share(SqlParams& params, const SweepPosition& at) {
  if (!at.takes_a_share()) return;
  const auto share = at.share();
  params.insert(params.end(),
                {std::to_string(share.modulus), std::to_string(share.first), std::to_string(share.last)});
}

SqlParams chunk_params(const ChunkOf& of, const ChunkStep& step) {
  SqlParams params{of.migration.text, of.token.text,           std::string(to_text(of.phase)),
                   of.mark.text,      std::to_string(of.pass), std::to_string(of.unit),
                   of.lease};
  append(params, step.before);
  append(params, step.after);
  params.insert(params.end(),
                {std::string(step.done ? "true" : "false"), nullable(step.low), array_literal(step.high)});
  append_share(params, step.before);
  return params;
}

// It writes no row, so it needs no fence: the lease token tells whose unit it is. Lost with a crash, it is
// done again.
std::string set_window_sql() {
  return fmt::format(
      "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS mark)"
      " UPDATE crossfade.unit u SET window_bounds = $8::text[], visits = $9::integer, visit = $10::integer,"
      " piece = $11::integer, within = NULL, lease_until = clock_timestamp() + interval '15 s' FROM quick"
      " WHERE u.pass_id = $1::bigint AND u.number = $2::integer AND u.lease_token = $3::uuid AND {}"
      " AND quick.mark IS NOT NULL RETURNING 1",
      stands_at(4));
}

SqlParams set_window_params(const ChunkOf& of, const SweepPosition& before, const SweepPosition& after) {
  SqlParams params{std::to_string(of.pass), std::to_string(of.unit), of.lease};
  append(params, before);
  std::vector<std::optional<std::string>> bounds;
  for (const auto& bound : after.window) bounds.emplace_back(array_literal(bound));
  params.insert(params.end(), {after.in_window() ? SqlValue(array_literal(bounds)) : SqlValue(),
                               place(after.visits), place(after.visit), place(after.piece)});
  return params;
}

std::string write_row_sql(const Migration& m, const QualifiedName& table, RowOf row) {
  const auto p = pieces(m, table, RangeBy::key, "", "");
  // By key alone: it may have moved to another partition.
  const auto rows = rows_sql(m.binding.key, table);
  const auto equals = key_equals_sql(m.binding.key, "t", "$5::text[]");
  const std::string fenced = "EXISTS (SELECT FROM fence WHERE mark IS NOT NULL)";
  std::string sql =
      fmt::format("WITH {}, written AS (UPDATE {} t SET {} = {} WHERE {} AND {} AND {} RETURNING 1)",
                  fence(false, "<> 'paused'"), rows, p.shadow, p.value, equals, p.differs, fenced);
  if (row == RowOf::leftover) {
    // Counted with its unit in the same commit: "the replay wrote nothing" must not miss a parked row.
    sql += fmt::format(
        ", counted AS (UPDATE crossfade.unit u SET rows_written = u.rows_written + (SELECT count(*) FROM "
        "written)"
        " WHERE u.pass_id = $6::bigint AND u.number = $7::integer AND {0}),"
        // A catch_up has no units: it counts in its own row.
        " looked_at AS (UPDATE crossfade.pass p SET rows_read = p.rows_read + 1, rows_written = "
        "p.rows_written + "
        "(SELECT count(*) FROM written) WHERE p.id = $6::bigint AND p.kind = 'catch_up' AND {0}),"
        " taken AS (DELETE FROM crossfade.leftover l WHERE l.pass_id = $6::bigint AND l.key = $5::text[] AND "
        "{0})",
        fenced);
  }
  return sql + fmt::format(" SELECT {}, (SELECT count(*) FROM {} t WHERE {}), (SELECT count(*) FROM written)",
                           fenced, rows, equals);
}

std::string differing_keys_sql(const Migration& m, const QualifiedName& table, const ChunkForm& form) {
  const bool low_is_open = form.low == ChunkForm::Low::open;
  const auto p = pieces(m, table, form.by, low_is_open ? "" : "$1::text[]", "$2::text[]");
  const auto share =
      form.share == ChunkForm::Share::one ? " AND " + fmt::format(kShare, 4, 5, 6) : std::string();
  const auto differs = form.way == ChunkWay::tolerant
                           ? fmt::format("CASE WHEN {} IS NULL THEN {} ELSE true END", p.failure, p.differs)
                           : p.differs;
  return fmt::format(
      "SELECT {} FROM ONLY {} t WHERE {} AND {}{} AND ($1::text[] IS NULL OR true) LIMIT $3::bigint",
      p.key_text, p.table, p.range, differs, share);
}

}  // namespace crossfade

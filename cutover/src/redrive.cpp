#include "redrive.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/key_sql.hpp"
#include "crossfade/shadow/units.hpp"

namespace crossfade {

namespace {

struct Bounds {
  SqlValue low, high;
  std::optional<Oid> relation;  // of a unit that was named
};

Bounds bounds_of_unit(SqlSession& session, const Migration& m, int number) {
  const auto pass = session.exec(
      "SELECT p.id, p.kind, (SELECT count(*) FROM crossfade.unit u WHERE u.pass_id = p.id)"
      " FROM crossfade.pass p WHERE p.migration_id = $1 AND p.kind IN ('backfill', 'replay')"
      " AND p.state <> 'void' ORDER BY p.id DESC LIMIT 1",
      {m.row.id.text});
  if (!pass.empty()) {
    const auto unit = session.exec(
        "SELECT u.low, u.high, u.relation FROM crossfade.unit u WHERE u.pass_id = $1::bigint"
        " AND u.number = $2::integer",
        {pass[0][0], std::to_string(number)});
    if (!unit.empty()) return {unit[0][0], unit[0][1], Oid{static_cast<std::uint32_t>(int_of(unit[0][2]))}};
  }
  throw Error(ErrorCode::unknown_unit,
              pass.empty() ? fmt::format("migration {} has no units", m.row.name)
                           : fmt::format("migration {} has no unit {}: its {} has units 1 to {}", m.row.name,
                                         number, text_of(pass[0][1]), text_of(pass[0][2])),
              "", m.row.name);
}

// The key as PostgreSQL spells it, which is how bounds are compared and shown.
std::string key_argument(SqlSession& session, const Migration& m, const std::string& text) {
  const auto& columns = m.binding.key.columns;
  const auto given = text.starts_with("{") ? text : array_literal(Key{{text}});
  std::string sql = "SELECT array_length($1::text[], 1), ARRAY[";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    sql += fmt::format("{}(($1::text[])[{}])::{}::text", i > 0 ? ", " : "", i + 1, columns[i].type_text);
  }
  const auto refuse = [&](const std::string& sqlstate) {
    std::string names;
    for (const auto& column : columns)
      names += (names.empty() ? "" : ", ") + column.name + " " + column.type_text;
    return Error(ErrorCode::unknown_unit,
                 fmt::format("the key of {} is ({}), which the given bound is not", m.row.table.display(),
                             names),
                 columns.size() > 1 ? "write a key of several columns as '{1,abc}'" : "",
                 m.row.table.display())
        .with_sqlstate(sqlstate);
  };
  try {
    const auto row = session.exec(sql + "]", {given}).one("key");
    if (row[0] && int_of(row[0]) == static_cast<std::int64_t>(columns.size())) return text_of(row[1]);
  } catch (const Error& error) {
    if (!error.is_data_error()) throw;
    throw refuse(error.sqlstate());
  }
  throw refuse("");
}

// Bounds exclude their low end: the greatest key before the one that was named.
SqlValue before(SqlSession& session, const Migration& m, const QualifiedName& table, const std::string& key) {
  const auto& facts = m.binding.key;
  const auto found = session.exec(
      fmt::format("SELECT {} FROM {} t WHERE {} AND NOT {} ORDER BY {} LIMIT 1", key_text_sql(facts, "t"),
                  rows_sql(facts, table), key_range_sql(facts, "t", "", "$1::text[]"),
                  key_equals_sql(facts, "t", "$1::text[]"), key_reverse_order_sql(facts, "t")),
      {key});
  return found.empty() ? SqlValue() : found[0][0];
}

Bounds bounds_of(SqlSession& session, const Migration& m, const QualifiedName& table,
                 const RedriveOptions& options) {
  Bounds bounds;
  if (options.unit) bounds = bounds_of_unit(session, m, *options.unit);
  if (options.from) bounds.low = before(session, m, table, key_argument(session, m, *options.from));
  if (options.to) bounds.high = key_argument(session, m, *options.to);
  return bounds;
}

// Of a partitioned table one for each leaf: the same bounds hold in all of them.
PassRow open_within(SqlSession& session, const Migration& m, const Bounds& bounds) {
  std::vector<Oid> relations;
  if (bounds.relation) {
    relations = {*bounds.relation};
  } else if (!m.binding.key.partitioned) {
    relations = {m.row.table_oid};
  } else {
    for (const auto& partition : read_partitions(session, m.row.table_oid)) {
      if (partition.leaf) relations.push_back(partition.oid);
    }
  }
  session.exec(
      "WITH p AS (INSERT INTO crossfade.pass (migration_id, kind) VALUES ($1, 'redrive') RETURNING id)"
      " INSERT INTO crossfade.unit (pass_id, number, relation, low, high)"
      " SELECT p.id, r.number, r.relation, $2::text[], $3::text[]"
      " FROM p, unnest($4::oid[]) WITH ORDINALITY AS r (relation, number)",
      {m.row.id.text, bounds.low, bounds.high, oid_array(relations)});
  return *newest_pass(session, m.row.id, "redrive");
}

}  // namespace

void check_redrive(SqlSession& session, const Migration& m, const QualifiedName& table,
                   const RedriveOptions& options) {
  bounds_of(session, m, table, options);
}

std::optional<PassRow> open_redrive(SqlSession& session, const Migration& m, const QualifiedName& table,
                                    const RedriveOptions& options) {
  const auto greatest = greatest_key(session, table, m.binding.key);
  if (!greatest) return std::nullopt;
  auto bounds = bounds_of(session, m, table, options);
  if (!options.unit && !options.to) bounds.high = array_literal(*greatest);
  // What is written is younger than any comparison so far: they are given up before the first such write, and
  // the switch needs a new one.
  void_passes(session, m.row.id, "compare");
  failpoint::hit("redrive.opening");
  const auto pass =
      options.all ? open_sweep_pass(session, m, table, "redrive", greatest) : open_within(session, m, bounds);
  failpoint::hit("redrive.opened");
  return pass;
}

void accept_replaced_functions(SqlSession& session, const Migration& m) {
  const auto now = read_fingerprint(session, m);
  const auto changes = fingerprint_changes(m.row.fingerprint, now);
  if (changes.empty()) return;
  const auto theirs = [](const std::string& change) {
    return change.starts_with("function ") && !change.starts_with("function crossfade.") &&
           change.ends_with(" was changed");
  };
  std::string all;
  for (const auto& change : changes) all += (all.empty() ? "" : ", ") + change;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::fingerprint_changed, fmt::format("{}: {}{}", m.row.table.display(), all, why),
                fmt::format("re-create the capture with 'crossfade recapture {}'", m.row.name),
                m.row.table.display());
  };
  if (!std::ranges::all_of(changes, theirs)) refuse("");
  // What the binding proved of the expression holds on only if the function keeps its promise.
  const auto loose = session.exec(
      "SELECT string_agg(c.oid::regprocedure::text, ', ') FROM jsonb_each_text($1::jsonb) b"
      " JOIN jsonb_each_text($2::jsonb) n ON n.key = b.key AND n.value <> b.value"
      " JOIN pg_catalog.pg_proc c ON c.oid = split_part(n.value, ':', 1)::oid"
      " WHERE b.key LIKE 'function %' AND c.provolatile <> 'i'",
      {m.row.fingerprint, now});
  if (loose[0][0]) refuse(fmt::format("; {} is not immutable any more", *loose[0][0]));
  session.exec("UPDATE crossfade.migration SET fingerprint = $2::jsonb WHERE id = $1 AND token = $3",
               {m.row.id.text, now, m.row.token.text});
}

std::optional<StepResult> Redriver::step(PhaseEnv& env, const Migration& m, std::chrono::milliseconds slice) {
  const auto pass = newest_pass(env.session, m.row.id, "redrive");
  if (!pass || pass->state != "running") {
    sweep_.end();
    return std::nullopt;
  }
  if (auto swept = sweep_.slice(env, m, *pass, slice); swept.kind != StepResult::Kind::settled) return swept;
  // Before the pass ends, as after a replay: who dies in between leaves it open, and it is stamped again.
  StateStore(env.session).stamp_last_write(m.row.id);
  const bool over = end_sweep_pass(env.session, pass->id);
  if (over) sweep_.end();
  return StepResult{StepResult::Kind::again, {}, std::chrono::milliseconds(over ? 0 : 50)};
}

}  // namespace crossfade

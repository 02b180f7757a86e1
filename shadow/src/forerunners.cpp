// A forerunner stands beside the constraint that it will become, over the other side of the same rows. What
// it says of a row is what the constraint says of it, as long as both sides of every row agree in both tables
// and no value changes by the conversion: then it refuses nothing that the constraint takes. Three things
// would still make a difference, and are met here:
//
// - Actions. It has those of the constraint (only an equal one is taken over), and whichever comes first does
//   the work of both, because the capture moves the other side with it. Coming first the forerunner would do
//   it by the side that is not the truth: SET DEFAULT would find the row unchanged and fail, and after the
//   switch a value that the old column cannot hold would be carried back as NULL. Triggers fire in the order
//   of their names, so its own are renamed to sort after those of every constraint.
// - SET CONSTRAINTS by name. Where the constraint is DEFERRABLE, the forerunner waits for the end of the
//   transaction, whatever the application says of the constraint. It becomes what the constraint is in the
//   switch.
// - MATCH FULL over several columns, on the way back: a value that the old column cannot hold fails its write
//   instead of becoming a misfit, as with the proof of NOT NULL (twins.hpp).
//
// It is made at the last moment, when the switch is asked for and nothing else stands in its way: the
// referred table has two action triggers more for each leaf as long as they stand.
//
// A leaf that is detached takes its forerunner along: it belongs to no leaf then, and is dropped by the next
// step. One that comes has none, which the gate and the block under the lock see.
#include "crossfade/shadow/forerunners.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/error.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "fenced_ddl.hpp"
#include "forerunner_catalog.hpp"

namespace crossfade {

namespace {

// Both tables in one order, each for half of the wait: together they may close a cycle, as in the switch.
void run_with_both(SqlSession& session, const Migration& m, const QualifiedName& leaf,
                   const QualifiedName& partner, std::chrono::milliseconds lock_timeout,
                   const std::string& statements) {
  const auto wait = std::max(wait_with_locks(session, lock_timeout) / 2, std::chrono::milliseconds(1));
  std::vector<std::string> both;
  for (const auto& row : session
                             .exec("SELECT DISTINCT t.name, t.name::regclass::oid FROM unnest(ARRAY[$1, $2])"
                                   " t (name) ORDER BY 2",
                                   {leaf.sql(), partner.sql()})
                             .rows)
    both.push_back(text_of(row[0]));
  const auto lock =
      fmt::format("{}LOCK TABLE {} IN ACCESS EXCLUSIVE MODE;\n", calm_or_miss_sql(), fmt::join(both, ", "));
  run_fenced_after(session, m, lock, TokenFence::held, wait, statements);
}

std::string add_sql(const Forerunner& f, const QualifiedName& leaf) {
  return fmt::format("ALTER TABLE {} ADD CONSTRAINT {} {} NOT VALID;\n", leaf.sql(), quote_identifier(f.name),
                     f.words);
}

// PostgreSQL calls them RI_ConstraintTrigger_a_1234.
std::string let_constraint_go_first_sql(const Forerunner& f, const QualifiedName& leaf) {
  const auto body = fmt::format(
      R"sql(DECLARE
  action record;
BEGIN
  FOR action IN SELECT t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_constraint k
      ON k.oid = t.tgconstraint WHERE k.conrelid = {}::pg_catalog.regclass AND k.conname = {}
      AND t.tgrelid = k.confrelid AND t.tgname LIKE 'RI\_ConstraintTrigger\_a\_%' LOOP
    EXECUTE pg_catalog.format('ALTER TRIGGER %I ON %s RENAME TO %I', action.tgname, {},
      pg_catalog.replace(action.tgname::text, '_a_', '_a_~'));
  END LOOP;
END)sql",
      quote_literal(leaf.sql()), quote_literal(f.name), quote_literal(f.partner_name.sql()));
  return fmt::format("DO {};\n", quote_literal(body));
}

std::string validate_sql(const Forerunner& f, const QualifiedName& leaf) {
  return fmt::format("ALTER TABLE {} VALIDATE CONSTRAINT {};\n", leaf.sql(), quote_identifier(f.name));
}

std::string drop_sql(const StandingKey& one) {
  return fmt::format("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {};\n", one.table.sql(),
                     quote_identifier(one.name));
}

// Whoever waited for the referred table has his turn before the next leaf asks for it.
constexpr std::chrono::milliseconds kBetweenLeaves{10};

void make_one(SqlSession& session, const Migration& m, const Forerunner& f, const KeyLeaf& leaf,
              std::chrono::milliseconds lock_timeout) {
  if (!leaf.has) {
    run_with_both(session, m, leaf.name, f.partner_name, lock_timeout,
                  add_sql(f, leaf.name) + let_constraint_go_first_sql(f, leaf.name));
    failpoint::hit("forerunner.step");
    std::this_thread::sleep_for(kBetweenLeaves);
  }
  // Reads the leaf and holds up nobody.
  run_fenced(session, m, leaf.name, "SHARE UPDATE EXCLUSIVE", TokenFence::read, lock_timeout,
             validate_sql(f, leaf.name));
  failpoint::hit("forerunner.step");
}

}  // namespace

bool make_forerunners(SqlSession& session, const Migration& m, const Ledger& ledger,
                      std::chrono::milliseconds lock_timeout, std::chrono::milliseconds slice) {
  const auto until = std::chrono::steady_clock::now() + slice;
  bool moved = false;
  for (const auto& f : forerunners_of(session, m, ledger)) {
    const auto leaves = leaves_of(session, f);
    if (const auto strays = standing(session, {f.name}, &leaves); !strays.empty()) {
      const auto& stray = strays.front();
      run_with_both(session, m, stray.table, stray.partner, lock_timeout, drop_sql(stray));
      return false;
    }
    for (const auto& leaf : leaves) {
      if (leaf.valid) continue;
      if (std::chrono::steady_clock::now() >= until) return false;
      try {
        make_one(session, m, f, leaf, lock_timeout);
      } catch (const Error& error) {
        // After something was done it is no miss: the attempts are counted anew.
        if (!moved || !(error.is_lock_not_available() || error.is_query_canceled())) throw;
        return false;
      }
      moved = true;
    }
  }
  return !moved;
}

std::vector<std::string> missing_forerunners(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<std::string> words;
  for (const auto& f : forerunners_of(session, m, ledger)) {
    const auto leaves = leaves_of(session, f);
    const auto left = std::ranges::count_if(leaves, [](const KeyLeaf& leaf) { return !leaf.valid; });
    if (left > 0) {
      words.push_back(
          fmt::format("foreign key {} is not proved over the other column for {} of {} partitions",
                      display_identifier(f.constraint), left, leaves.size()));
    }
    for (const auto& stray : standing(session, {f.name}, &leaves)) {
      words.push_back(fmt::format("constraint {} of table {}, which was detached, is to be dropped",
                                  display_identifier(stray.name), stray.table.display()));
    }
  }
  return words;
}

std::string forerunners_proof_sql(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::string sql;
  for (const auto& f : forerunners_of(session, m, ledger)) {
    sql += fmt::format(
        "{}NOT EXISTS (SELECT 1 FROM {} p WHERE p.leaf AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint"
        " k WHERE {} AND k.convalidated))",
        sql.empty() ? "" : " AND ", partition_tree_sql(fmt::format("{}::oid", f.table.value)),
        is_forerunner_sql(f, "p.relid"));
  }
  return sql;
}

std::string forerunners_become_sql(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::string sql;
  for (const auto& f : forerunners_of(session, m, ledger)) {
    if (!f.deferrable || f.deferred) continue;
    const auto body = fmt::format(
        R"sql(DECLARE
  one record;
BEGIN
  FOR one IN SELECT n.nspname, c.relname FROM {} p JOIN pg_catalog.pg_constraint k ON {}
      JOIN pg_catalog.pg_class c ON c.oid = p.relid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %I.%I ALTER CONSTRAINT %I DEFERRABLE INITIALLY IMMEDIATE',
      one.nspname, one.relname, {});
  END LOOP;
END)sql",
        partition_tree_sql(fmt::format("{}::oid", f.table.value)), is_forerunner_sql(f, "p.relid"),
        quote_literal(f.name));
    sql += fmt::format("DO {};\n", quote_literal(body));
  }
  return sql;
}

std::vector<Oid> locked_with_forerunners(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<Oid> tables;
  for (const auto& f : forerunners_of(session, m, ledger)) {
    tables.push_back(f.partner);
    if (f.table == m.row.table_oid) continue;
    for (const auto& leaf : leaves_of(session, f)) tables.push_back(leaf.oid);
  }
  return tables;
}

bool forerunners_begun(SqlSession& session, const Migration& m, const Ledger& ledger) {
  return !standing(session, forerunner_names(m, ledger), nullptr).empty();
}

bool drop_one_forerunner(SqlSession& session, const Migration& m, const Ledger& ledger,
                         std::chrono::milliseconds lock_timeout) {
  const auto left = standing(session, forerunner_names(m, ledger), nullptr);
  if (left.empty()) return true;
  run_with_both(session, m, left.front().table, left.front().partner, lock_timeout, drop_sql(left.front()));
  return false;
}

std::string drop_forerunners_sql(const Migration& m, const Ledger& ledger) {
  const auto names = forerunner_names(m, ledger);
  if (names.empty()) return {};
  const auto body = fmt::format(
      R"sql(DECLARE
  one record;
BEGIN
  FOR one IN SELECT n.nspname, c.relname, k.conname FROM pg_catalog.pg_constraint k
      JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conname = ANY ({}::text[]) ORDER BY c.oid LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %I.%I DROP CONSTRAINT %I', one.nspname, one.relname, one.conname);
  END LOOP;
END)sql",
      quote_literal(array_literal(names)));
  return fmt::format("DO {};\n", quote_literal(body));
}

std::vector<Statement> forerunner_statements(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<Statement> list;
  const bool back = new_column_is_public(m.row.phase);
  const std::string when = back ? "only before a way back: " : "";
  for (const auto& f : forerunners_of(session, m, ledger)) {
    for (const auto& leaf : leaves_of(session, f)) {
      const auto both = fmt::format("ACCESS EXCLUSIVE on {} and {}, in short attempts", leaf.name.display(),
                                    f.partner_name.display());
      list.push_back({fmt::format("{}foreign key {} on partition {}, over the other column", when,
                                  display_identifier(f.constraint), leaf.name.display()),
                      add_sql(f, leaf.name) + let_constraint_go_first_sql(f, leaf.name), both, Blocks::table,
                      true});
      list.push_back({"and for every row of it", validate_sql(f, leaf.name),
                      "SHARE UPDATE EXCLUSIVE on " + leaf.name.display(), Blocks::nothing, false});
      list.push_back(
          {back ? "only after a way back that was given up" : "only before a way back to dual_write",
           drop_sql({leaf.name, f.partner_name, f.name}), both, Blocks::table, true});
    }
  }
  return list;
}

}  // namespace crossfade

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
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/lock_attempts.hpp"
#include "crossfade/core/state_store.hpp"
#include "fenced_ddl.hpp"

namespace crossfade {

namespace {

// One foreign key with what its forerunners say.
struct Forerunner {
  std::string constraint;  // whose it is
  std::string name;        // of the forerunner on each leaf
  Oid table, partner;
  QualifiedName partner_name;
  std::string words;              // FOREIGN KEY … as far as NOT VALID
  std::string columns, referred;  // text[] literals, in order
  bool deferrable = false, deferred = false;
};

struct Leaf {
  Oid oid;
  QualifiedName name;
  bool has = false, valid = false;
};

// The column that is to bear the name next, by table and name. All of a group are in one phase.
using Successors = std::map<std::pair<Oid, std::string>, std::string>;

Successors successors_of(SqlSession& session, const Migration& m) {
  Successors successors;
  for (auto& row : StateStore(session).group(m.row.leader.value_or(m.row.id))) {
    const auto other = migration_of(std::move(row));
    const auto& column = other.binding.column;
    const auto names = physical_names(column, m.row.phase);
    successors[{other.row.table_oid, column.name}] =
        new_column_is_public(m.row.phase) ? names.old_column : names.new_column;
  }
  return successors;
}

std::vector<std::string> renamed(const Successors& successors, Oid table, const SqlValue& columns) {
  std::vector<std::string> names;
  for (const auto& column : parse_array(text_of(columns))) {
    const auto found = successors.find({table, column.value_or("")});
    names.push_back(found == successors.end() ? column.value_or("") : found->second);
  }
  return names;
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const auto& name : names) quoted.push_back(quote_identifier(name));
  return fmt::format("{}", fmt::join(quoted, ", "));
}

std::string array_of(const std::vector<std::string>& names) {
  return array_literal(std::vector<std::optional<std::string>>(names.begin(), names.end()));
}

// PostgreSQL 14 has no column confdelsetcols.
constexpr const char* kConstraint = R"sql(
SELECT k.confrelid, n.nspname, c.relname,
  ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY x (number, place) JOIN pg_attribute a
    ON a.attrelid = k.conrelid AND a.attnum = x.number ORDER BY x.place),
  ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY x (number, place) JOIN pg_attribute a
    ON a.attrelid = k.confrelid AND a.attnum = x.number ORDER BY x.place),
  ARRAY(SELECT a.attname::text FROM jsonb_array_elements_text(nullif(to_jsonb(k) -> 'confdelsetcols', 'null'))
    WITH ORDINALITY x (number, place) JOIN pg_attribute a ON a.attrelid = k.conrelid
    AND a.attnum = x.number::int2 ORDER BY x.place),
  CASE k.confmatchtype WHEN 'f' THEN ' MATCH FULL' ELSE '' END,
  CASE k.confupdtype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL'
    WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END,
  CASE k.confdeltype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL'
    WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END,
  k.condeferrable, k.condeferred
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conrelid = $1::oid AND k.conname = $2)sql";

std::vector<Forerunner> forerunners_of(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<Forerunner> all;
  std::optional<Successors> successors;
  for (const auto& entry : ledger.carried) {
    if (!entry.leafwise || entry.kind != DependentKind::foreign_key) continue;
    Forerunner f;
    f.constraint = entry.referring ? entry.constraint : entry.name;
    f.name = m.generated.twin(f.constraint);
    f.table = entry.referring.value_or(m.row.table_oid);
    const auto found = session.exec(kConstraint, {std::to_string(f.table.value), f.constraint});
    // That it is gone is told by the ledger.
    if (found.empty()) continue;
    if (!successors) successors = successors_of(session, m);
    const auto& row = found[0];
    f.partner = Oid{static_cast<std::uint32_t>(int_of(row[0]))};
    f.partner_name = {text_of(row[1]), text_of(row[2])};
    const auto columns = renamed(*successors, f.table, row[3]);
    const auto referred = renamed(*successors, f.partner, row[4]);
    const auto set = renamed(*successors, f.table, row[5]);
    f.columns = array_of(columns);
    f.referred = array_of(referred);
    f.deferrable = bool_of(row[9]);
    f.deferred = bool_of(row[10]);
    f.words = fmt::format("FOREIGN KEY ({}) REFERENCES {} ({}){} ON UPDATE {} ON DELETE {}{}{}",
                          quoted_list(columns), f.partner_name.sql(), quoted_list(referred), text_of(row[6]),
                          text_of(row[7]), text_of(row[8]),
                          set.empty() ? "" : fmt::format(" ({})", quoted_list(set)),
                          f.deferrable ? " DEFERRABLE INITIALLY DEFERRED" : "");
    all.push_back(std::move(f));
  }
  return all;
}

// Of pg_constraint k: it is a forerunner on the relation that `leaf` gives.
std::string is_forerunner_sql(const Forerunner& f, const std::string& leaf) {
  const auto names = [](const char* key, const char* relation) {
    return fmt::format(
        "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest(k.{0}) WITH ORDINALITY x (number, place)"
        " JOIN pg_catalog.pg_attribute a ON a.attrelid = k.{1} AND a.attnum = x.number ORDER BY x.place)",
        key, relation);
  };
  return fmt::format(
      "k.conrelid = {} AND k.contype = 'f' AND k.conname = {} AND k.conparentid = 0 AND k.confrelid = {}::oid"
      " AND {} = {}::text[] AND {} = {}::text[]",
      leaf, quote_literal(f.name), f.partner.value, names("conkey", "conrelid"), quote_literal(f.columns),
      names("confkey", "confrelid"), quote_literal(f.referred));
}

std::vector<Leaf> leaves_of(SqlSession& session, const Forerunner& f) {
  std::vector<Leaf> leaves;
  for (const auto& row :
       session
           .exec(fmt::format("SELECT p.relid, n.nspname, c.relname, k.oid IS NOT NULL,"
                             " coalesce(k.convalidated, false) FROM {} p JOIN pg_class c ON c.oid = p.relid"
                             " JOIN pg_namespace n ON n.oid = c.relnamespace"
                             " LEFT JOIN pg_constraint k ON {} WHERE p.leaf ORDER BY p.relid",
                             partition_tree_sql(fmt::format("{}::oid", f.table.value)),
                             is_forerunner_sql(f, "p.relid")))
           .rows) {
    leaves.push_back({Oid{static_cast<std::uint32_t>(int_of(row[0]))},
                      {text_of(row[1]), text_of(row[2])},
                      bool_of(row[3]),
                      bool_of(row[4])});
  }
  return leaves;
}

// A constraint of the name, wherever it is.
struct Standing {
  QualifiedName table, partner;
  std::string name;
};

// $1 names. Those that the switch made parts of the table's constraint have another name by then.
constexpr const char* kStanding = R"sql(
SELECT n.nspname, c.relname, pn.nspname, p.relname, k.conname, k.conrelid FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conname = ANY ($1::text[])
ORDER BY k.conrelid, k.conname)sql";

std::vector<std::optional<std::string>> names_of(const Migration& m, const Ledger& ledger) {
  std::set<std::string> names;
  for (const auto& entry : ledger.carried) {
    if (entry.leafwise && entry.kind == DependentKind::foreign_key)
      names.insert(m.generated.twin(entry.referring ? entry.constraint : entry.name));
  }
  return {names.begin(), names.end()};
}

// Those of the names of `m`; without `leaves`: only those that stand on none of them.
std::vector<Standing> standing(SqlSession& session, const std::vector<std::optional<std::string>>& names,
                               const std::vector<Leaf>* leaves) {
  std::vector<Standing> all;
  if (names.empty()) return all;
  for (const auto& row : session.exec(kStanding, {array_literal(names)}).rows) {
    const Oid table{static_cast<std::uint32_t>(int_of(row[5]))};
    const auto here = [&](const Leaf& leaf) { return leaf.oid == table && leaf.has; };
    if (leaves != nullptr && std::ranges::any_of(*leaves, here)) continue;
    all.push_back({{text_of(row[0]), text_of(row[1])}, {text_of(row[2]), text_of(row[3])}, text_of(row[4])});
  }
  return all;
}

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

std::string drop_sql(const Standing& one) {
  return fmt::format("ALTER TABLE {} DROP CONSTRAINT IF EXISTS {};\n", one.table.sql(),
                     quote_identifier(one.name));
}

}  // namespace

bool forerunner_step(SqlSession& session, const Migration& m, const Ledger& ledger,
                     std::chrono::milliseconds lock_timeout) {
  for (const auto& f : forerunners_of(session, m, ledger)) {
    const auto leaves = leaves_of(session, f);
    if (const auto strays = standing(session, {f.name}, &leaves); !strays.empty()) {
      const auto& stray = strays.front();
      run_with_both(session, m, stray.table, stray.partner, lock_timeout, drop_sql(stray));
      return false;
    }
    for (const auto& leaf : leaves) {
      if (leaf.valid) continue;
      if (leaf.has) {
        // Reads the leaf and holds up nobody.
        run_fenced(session, m, leaf.name, "SHARE UPDATE EXCLUSIVE", TokenFence::read, lock_timeout,
                   validate_sql(f, leaf.name));
      } else {
        run_with_both(session, m, leaf.name, f.partner_name, lock_timeout,
                      add_sql(f, leaf.name) + let_constraint_go_first_sql(f, leaf.name));
      }
      failpoint::hit("forerunner.step");
      return false;
    }
  }
  return true;
}

std::vector<std::string> missing_forerunners(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<std::string> words;
  for (const auto& f : forerunners_of(session, m, ledger)) {
    const auto leaves = leaves_of(session, f);
    const auto left = std::ranges::count_if(leaves, [](const Leaf& leaf) { return !leaf.valid; });
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
  return !standing(session, names_of(m, ledger), nullptr).empty();
}

bool drop_one_forerunner(SqlSession& session, const Migration& m, const Ledger& ledger,
                         std::chrono::milliseconds lock_timeout) {
  const auto left = standing(session, names_of(m, ledger), nullptr);
  if (left.empty()) return true;
  run_with_both(session, m, left.front().table, left.front().partner, lock_timeout, drop_sql(left.front()));
  return false;
}

std::string drop_forerunners_sql(const Migration& m, const Ledger& ledger) {
  const auto names = names_of(m, ledger);
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

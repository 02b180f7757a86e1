#include "group.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "crossfade/core/catalog.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/foreign_keys.hpp"

namespace crossfade {

std::vector<Migration> load_group(SqlSession& session, const MigrationId& leader, LockMode lock) {
  std::vector<Migration> group;
  for (auto& row : StateStore(session).group(leader, lock)) group.push_back(migration_of(std::move(row)));
  return group;
}

std::vector<Oid> tables_of(SqlSession& session, const std::vector<Migration>& group) {
  std::vector<Oid> tables;
  for (const auto& m : group) {
    for (const auto table : tree_of(session, m.row.table_oid)) {
      if (std::ranges::find(tables, table) == tables.end()) tables.push_back(table);
    }
  }
  return tables;
}

namespace {

// The attribute that bears the column's name now; 0 when the table or the column is gone.
int public_attnum(SqlSession& session, const Migration& m) {
  const auto found = session.exec(
      "SELECT attnum FROM pg_attribute WHERE attrelid = $1::oid AND attname = $2 AND NOT attisdropped",
      {std::to_string(m.row.table_oid.value), m.binding.column.name});
  return found.empty() ? 0 : static_cast<int>(int_of(found[0][0]));
}

bool carries(SqlSession& session, const std::vector<Migration>& group, const ForeignKeyColumn& key) {
  return std::ranges::any_of(group, [&](const Migration& m) {
    const auto beside = load_ledger(session, m.row.id);
    if (std::ranges::any_of(beside.carried, [&](const Dependent& entry) {
          return entry.referring == key.table && entry.constraint == key.constraint;
        }))
      return true;
    if (m.row.table_oid != key.table || m.binding.column.name != key.column) return false;
    const auto ledger = load_ledger(session, m.row.id);
    return std::ranges::any_of(ledger.carried, [&](const Dependent& entry) {
      return entry.kind == DependentKind::foreign_key && entry.name == key.constraint;
    });
  });
}

}  // namespace

namespace {

std::vector<Blocker> uncarried_keys(PhaseEnv& env, const std::vector<Migration>& group, const Migration& m) {
  std::vector<Blocker> blockers;
  if (!m.binding.column.follows_foreign_keys) return blockers;
  const bool switched = new_column_is_public(m.row.phase);
  for (const auto& key : referring_to(env.session, m.row.table_oid, public_attnum(env.session, m))) {
    if (carries(env.session, group, key)) continue;
    blockers.push_back(
        {ErrorCode::finding_refused,
         fmt::format("dependent_changed: foreign key {} of table {} refers to column {} and was "
                     "added since {}",
                     display_identifier(key.constraint), key.name.display(),
                     display_identifier(m.binding.column.name),
                     switched ? "the switch" : "the migration planned for it"),
         "dependent_changed",
         switched ? "drop it, and add it again after the way back"
                  : "drop it and add it again after the migration, or roll back to planned and "
                    "start again"});
  }
  return blockers;
}

}  // namespace

std::vector<Blocker> group_blockers(PhaseEnv& env, const std::vector<Migration>& group, Event event) {
  std::vector<Blocker> blockers;
  for (const auto& m : group) {
    const auto phase = group.front().row.phase;
    if (m.row.phase != phase) {
      throw Error(ErrorCode::internal_error,
                  fmt::format("the migration of {} is in {} and the one that it follows in {}",
                              m.row.table.display(), to_text(m.row.phase), to_text(phase)),
                  "report this", m.row.name);
    }
    if (event == Event::advance && m.row.leader && m.row.status != Status::settled) {
      blockers.push_back(of_member(
          m,
          {ErrorCode::not_ready,
           fmt::format("the work of phase {} is {}", to_text(m.row.phase), to_text(m.row.status)), "", ""}));
    }
    // On the other ways back no name moves and no key is taken away.
    if (event == Event::rollback && !new_column_is_public(phase)) continue;
    for (auto& blocker : uncarried_keys(env, group, m)) blockers.push_back(of_member(m, std::move(blocker)));
  }
  return blockers;
}

Blocker of_member(const Migration& m, Blocker blocker) {
  if (m.row.leader) blocker.text = m.row.table.display() + ": " + blocker.text;
  return blocker;
}

std::vector<std::string> in_lock_order(SqlSession& session, const std::vector<std::string>& relations) {
  std::vector<std::optional<std::string>> names(relations.begin(), relations.end());
  std::vector<std::string> ordered;
  for (const auto& row : session
                             .exec("SELECT min(r.name) FROM unnest($1::text[]) AS r (name)"
                                   " GROUP BY r.name::regclass::oid ORDER BY r.name::regclass::oid",
                                   {array_literal(names)})
                             .rows) {
    ordered.push_back(text_of(row[0]));
  }
  return ordered;
}

}  // namespace crossfade

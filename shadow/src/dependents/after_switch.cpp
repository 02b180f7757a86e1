// What others hung on the new column between the switch and now: the way back would take it away without a
// word.
#include <fmt/format.h>

#include <algorithm>

#include "reading.hpp"

namespace crossfade {

namespace {

// A reference is told by its identity, an entry of the ledger by its name.
bool is_that(const Reference& reference, const Dependent& entry, const QualifiedName& table) {
  const auto& identity = reference.identity;
  const auto bare = display_identifier(entry.name);
  return identity == entry.name || identity == fmt::format("{} on {}", bare, table.display()) ||
         identity == QualifiedName{table.schema, entry.name}.display() ||
         (!entry.schema.empty() && identity == QualifiedName{entry.schema, entry.name}.display()) ||
         identity == fmt::format("{} in publication {}", table.display(), bare);
}

// The definition now; empty for kinds that are not compared.
std::string definition_of(SqlSession& session, const Reference& reference) {
  const SqlParams oid{std::to_string(reference.oid)};
  if (reference.kind == ReferenceKind::view)
    return text_of(session.exec("SELECT pg_get_viewdef($1::oid)", oid).one("view")[0]);
  if (reference.kind == ReferenceKind::function)
    return text_of(session.exec("SELECT pg_get_functiondef($1::oid)", oid).one("function")[0]);
  return {};
}

}  // namespace

std::vector<Finding> added_since_switch(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<Finding> findings;
  const auto found = session.exec(
      "SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = $2 AND NOT "
      "a.attisdropped",
      {std::to_string(m.row.table_oid.value), m.names.new_column});
  const auto table = relation_name(session, m.row.table_oid);
  if (found.empty() || !table) return findings;
  for (const auto& reference : read_references(
           session, m.row.table_oid, static_cast<int>(int_of(found[0][0])), own_suffix(m.binding.column))) {
    if (reference.kind == ReferenceKind::own_default || reference.kind == ReferenceKind::not_null) continue;
    // Whether it has a member is asked of the group.
    if (reference.from_elsewhere && m.binding.column.follows_foreign_keys) continue;
    const auto entry = std::ranges::find_if(
        ledger.carried, [&](const Dependent& e) { return is_that(reference, e, *table); });
    const bool known = entry != ledger.carried.end();
    if (known && entry->create_sql.find(definition_of(session, reference)) != std::string::npos) continue;
    findings.push_back({Severity::refuse, "dependent_added", reference.identity,
                        fmt::format("{} was {} since the switch; the way back would take that away.",
                                    reference.description, known ? "changed" : "hung on the new column"),
                        "Undo it, and do it again after the way back."});
  }
  return findings;
}

}  // namespace crossfade

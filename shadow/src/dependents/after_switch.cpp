// What others hung on the new column between the switch and now: the way back would take it away without a
// word.
#include <fmt/format.h>

#include <algorithm>

#include "reading.hpp"

namespace crossfade {

namespace {

bool is_of_kind(DependentKind kind, ReferenceKind reference) {
  switch (reference) {
    case ReferenceKind::index:
      return kind == DependentKind::index;
    case ReferenceKind::constraint:
      return kind == DependentKind::unique_constraint || kind == DependentKind::check ||
             kind == DependentKind::foreign_key;
    case ReferenceKind::trigger:
      return kind == DependentKind::trigger;
    case ReferenceKind::view:
      return kind == DependentKind::view;
    case ReferenceKind::rule:
      return kind == DependentKind::rule;
    case ReferenceKind::policy:
      return kind == DependentKind::policy;
    case ReferenceKind::statistics:
      return kind == DependentKind::statistics;
    case ReferenceKind::function:
      return kind == DependentKind::sql_function;
    case ReferenceKind::sequence:
      return kind == DependentKind::sequence || kind == DependentKind::identity;
    case ReferenceKind::publication:
      return kind == DependentKind::publication;
    case ReferenceKind::own_default:
    case ReferenceKind::not_null:
    case ReferenceKind::materialised_view:
    case ReferenceKind::generated_column:
    case ReferenceKind::own_generation:
    case ReferenceKind::partition_key:
    case ReferenceKind::unknown:
      break;
  }
  return false;
}

// What lies beside the table is entered by its identity, the rest by its bare name. (The identity of what is
// published shows names without quotes.)
bool is_that(const Reference& reference, const Dependent& entry) {
  if (!is_of_kind(entry.kind, reference.kind)) return false;
  if (entry.kind == DependentKind::statistics)
    return reference.identity == QualifiedName{entry.schema, entry.name}.display();
  return reference.identity == entry.name || (!reference.name.empty() && reference.name == entry.name);
}

// A rule of a view comes and goes with the view, and tells of a change as part of it.
bool belongs_to_view(SqlSession& session, const Reference& reference, const Ledger& ledger) {
  if (reference.kind != ReferenceKind::rule) return false;
  const auto view = session
                        .exec(
                            "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_rewrite w"
                            " JOIN pg_class c ON c.oid = w.ev_class JOIN pg_namespace n ON n.oid ="
                            " c.relnamespace WHERE w.oid = $1::oid",
                            {std::to_string(reference.oid)})
                        .one("rule");
  return std::ranges::any_of(ledger.carried, [&](const Dependent& entry) {
    return entry.kind == DependentKind::view && entry.name == text_of(view[0]);
  });
}

// $1 oid, $2 transaction of the switch, which made or replaced the object. Its words cannot tell: over
// another type PostgreSQL gives others.
constexpr const char* kViewIsOfTheSwitch = R"sql(
SELECT NOT EXISTS (SELECT 1 FROM (
  SELECT xmin FROM pg_class WHERE oid = $1::oid
  UNION ALL SELECT xmin FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0
  UNION ALL SELECT xmin FROM pg_attrdef WHERE adrelid = $1::oid
  UNION ALL SELECT xmin FROM pg_rewrite WHERE ev_class = $1::oid
  UNION ALL SELECT xmin FROM pg_trigger WHERE tgrelid = $1::oid
  UNION ALL SELECT xmin FROM pg_description WHERE classoid = 'pg_class'::regclass AND objoid = $1::oid) s
  WHERE xmin::text <> $2::xid8::xid::text))sql";

constexpr const char* kFunctionIsOfTheSwitch =
    "SELECT p.xmin::text = $2::xid8::xid::text OR position(pg_get_functiondef(p.oid) IN $3) > 0"
    " FROM pg_proc p WHERE p.oid = $1::oid";

// The transaction of the newest switch.
std::string switch_xid(SqlSession& session, const Migration& m) {
  const auto found = session.exec(
      "SELECT xid FROM crossfade.transition WHERE migration_id = $1 AND from_phase = 'compare' AND to_phase ="
      " 'switched' ORDER BY number DESC LIMIT 1",
      {m.row.id.text});
  return found.empty() ? "0" : text_of(found[0][0]);
}

// Kinds that are not compared count as they were: the way back makes nothing of theirs anew.
bool is_unchanged(SqlSession& session, const Reference& reference, const Dependent& entry,
                  const std::string& xid) {
  const auto oid = std::to_string(reference.oid);
  if (reference.kind == ReferenceKind::view)
    return bool_of(session.exec(kViewIsOfTheSwitch, {oid, xid}).one("view")[0]);
  if (reference.kind == ReferenceKind::function)
    return bool_of(session.exec(kFunctionIsOfTheSwitch, {oid, xid, entry.create_sql}).one("function")[0]);
  return true;
}

}  // namespace

std::vector<Finding> added_since_switch(SqlSession& session, const Migration& m, const Ledger& ledger) {
  std::vector<Finding> findings;
  const auto found = session.exec(
      "SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = $2 AND NOT "
      "a.attisdropped",
      {std::to_string(m.row.table_oid.value), m.names.new_column});
  if (found.empty()) return findings;
  const auto xid = switch_xid(session, m);
  for (const auto& reference : read_references(
           session, m.row.table_oid, static_cast<int>(int_of(found[0][0])), own_suffixes(m.binding.column))) {
    if (reference.kind == ReferenceKind::own_default || reference.kind == ReferenceKind::not_null) continue;
    // Whether it has a member is asked of the group.
    if (reference.from_elsewhere && m.binding.column.follows_foreign_keys) continue;
    if (belongs_to_view(session, reference, ledger)) continue;
    const auto entry =
        std::ranges::find_if(ledger.carried, [&](const Dependent& e) { return is_that(reference, e); });
    const bool known = entry != ledger.carried.end();
    if (known && is_unchanged(session, reference, *entry, xid)) continue;
    findings.push_back({Severity::refuse, "dependent_added", reference.identity,
                        fmt::format("{} was {} since the switch; the way back would take that away.",
                                    reference.description, known ? "changed" : "hung on the new column"),
                        "Undo it, and do it again after the way back."});
  }
  for (const auto& reference :
       partition_references(session, m.row.table_oid, m.names.new_column, own_suffixes(m.binding.column))) {
    findings.push_back({Severity::refuse, "dependent_added", reference.identity,
                        fmt::format("{} was hung on the new column of a partition since the switch; the way "
                                    "back would take that away.",
                                    reference.description),
                        "Undo it, and do it again after the way back."});
  }
  return findings;
}

std::vector<Finding> hanging_on_old_column(SqlSession& session, const Migration& m) {
  std::vector<Finding> findings;
  const auto& column = m.binding.column;
  // A plan asks before there is an old column.
  const auto retired = session.exec(
      "SELECT 1 FROM pg_attribute WHERE attrelid = $1::oid AND attnum = $2::int2 AND attname = $3",
      {std::to_string(m.row.table_oid.value), std::to_string(column.old_attnum), column.retired_name});
  if (retired.empty()) return findings;
  for (const auto& reference :
       read_references(session, m.row.table_oid, column.old_attnum, own_suffixes(column))) {
    if (reference.kind == ReferenceKind::own_default || reference.kind == ReferenceKind::not_null) continue;
    findings.push_back({Severity::refuse, "old_column_in_use", reference.identity,
                        fmt::format("{} hangs on the old column {}, which is to be dropped.",
                                    reference.description, display_identifier(m.names.old_column)),
                        "Drop it, or make it again so that it names the new column."});
  }
  for (const auto& reference :
       partition_references(session, m.row.table_oid, m.names.old_column, own_suffixes(column))) {
    findings.push_back({Severity::refuse, "old_column_in_use", reference.identity,
                        fmt::format("{} hangs on the old column {} of a partition, which is to be dropped.",
                                    reference.description, display_identifier(m.names.old_column)),
                        "Drop it, or make it again so that it names the new column."});
  }
  return findings;
}

}  // namespace crossfade

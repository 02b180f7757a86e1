#include <fmt/format.h>

#include "checks.hpp"
#include "crossfade/core/catalog.hpp"

namespace crossfade::checks {

namespace {

// One unit of the sweep at least for each leaf, and the state holds no more units than this.
constexpr std::int64_t kMostPartitions = 10'000;

// The sweep writes to the leaves themselves, so what is asked of a table is asked of each of them.
constexpr const char* kPartitions = R"sql(
SELECT c.oid::regclass::text, c.relkind, c.relpersistence, coalesce(m.amname, ''), c.reloftype <> 0,
  c.relnatts,
  pg_has_role(c.relowner, 'USAGE'), quote_ident(pg_get_userbyid(c.relowner)),
  has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE'),
  has_schema_privilege(c.relnamespace, 'USAGE') AND has_schema_privilege(c.relnamespace, 'CREATE'),
  c.relnamespace::regnamespace::text, row_security_active(c.oid),
  (SELECT string_agg(quote_ident(w.rulename), ', ') FROM pg_rewrite w
    WHERE w.ev_class = c.oid AND w.ev_type IN ('2', '3') AND w.ev_enabled <> 'D')
FROM {} p JOIN pg_class c ON c.oid = p.relid LEFT JOIN pg_am m ON m.oid = c.relam ORDER BY 1)sql";

void judge(const Context& context, const SqlResult::Row& row) {
  const auto partition = text_of(row[0]), kind = text_of(row[1]), owner = text_of(row[7]);
  const auto refuse = [&](const char* id, const std::string& what, const std::string& hint) {
    context.refuse(id, partition, fmt::format("Partition {} {}.", partition, what), hint);
  };
  if (kind != "r" && kind != "p") {
    return refuse("relation_kind", kind == "f" ? "is a foreign table" : "is not an ordinary table",
                  "Detach it for the time of the migration.");
  }
  if (text_of(row[2]) != "p")
    refuse("unlogged_table", "is unlogged: a crash empties it, and the state would not know",
           "ALTER TABLE … SET LOGGED first.");
  if (kind == "r" && text_of(row[3]) != "heap")
    refuse("relation_kind", fmt::format("uses the access method {}", text_of(row[3])),
           "Migrate heap tables.");
  if (bool_of(row[4]))
    refuse("relation_kind", "is of a composite type and takes no column",
           "Detach it from the type first: ALTER TABLE … NOT OF.");
  if (int_of(row[5]) >= 1600)
    refuse("relation_kind", "has no room for a further column, dropped ones included",
           "Rewrite it to lose the dropped columns.");
  const auto role = context.role();
  if (!bool_of(row[6]))
    refuse("missing_privilege", fmt::format("belongs to {}, not to role {}", owner, role),
           fmt::format("Run as the owner of all partitions, or GRANT {} TO {};", owner, role));
  if (!bool_of(row[8]))
    refuse("missing_privilege", fmt::format("may not be read and updated by role {}", role),
           fmt::format("GRANT SELECT, UPDATE ON {} TO {};", partition, role));
  if (!bool_of(row[9]))
    refuse("missing_privilege",
           fmt::format("lies in schema {}, in which role {} may not create", text_of(row[10]), role),
           fmt::format("GRANT USAGE, CREATE ON SCHEMA {} TO {};", text_of(row[10]), role));
  if (bool_of(row[11]))
    refuse("row_security", fmt::format("has row-level security that applies to role {}", role),
           "ALTER TABLE … NO FORCE ROW LEVEL SECURITY for the time of the migration, or use a role with "
           "BYPASSRLS.");
  if (row[12])
    refuse("update_rule", fmt::format("has rules that rewrite writes: {}", *row[12]),
           "Replace them by triggers, or disable them: ALTER TABLE … DISABLE RULE ….");
}

}  // namespace

void partitions(const Context& context) {
  if (context.table.kind != "p") return;
  const auto found =
      context.session.exec(fmt::format(kPartitions, partition_tree_sql("$1::oid")), {context.table_oid()});
  for (const auto& row : found.rows) judge(context, row);
  const auto table = context.table_text();
  if (found.rows.size() > kMostPartitions) {
    context.refuse("not_supported_yet", table,
                   fmt::format("Table {} has {} partitions; {} are the most.", table, found.rows.size(),
                               kMostPartitions),
                   "Detach partitions, or merge them.");
  }
  const auto pending = context.session.exec(
      "SELECT i.inhrelid::regclass::text FROM pg_inherits i WHERE to_jsonb(i) ->> 'inhdetachpending' = 'true'"
      " AND (i.inhparent = $1::oid OR i.inhparent IN (SELECT p.relid FROM " +
          partition_tree_sql("$1::oid") + " p)) ORDER BY 1",
      {context.table_oid()});
  for (const auto& row : pending.rows) {
    context.refuse("relation_kind", text_of(row[0]),
                   fmt::format("Partition {} is only half detached.", text_of(row[0])),
                   "Finish it: ALTER TABLE … DETACH PARTITION … FINALIZE.");
  }
  if (context.spec.archive == Archive::table) {
    context.refuse("not_supported_yet", "[drop] archive",
                   fmt::format("Table {} is partitioned; an archive of it is not made yet.", table),
                   "Leave out archive, and copy the old values yourself before the drop.");
  }
}

}  // namespace crossfade::checks

// What can be found when a builder died: no part (the index on the table is the intent), a part that is not
// valid, a valid part that is not attached, an attached one. Attaching the last part makes the index valid,
// in the same statement. ATTACH takes ACCESS EXCLUSIVE on the part, which every plan of a query on the
// partition opens: so it is tried as politely as a table lock.
#include "partition_twins.hpp"

#include <fmt/format.h>

#include <optional>

#include "crossfade/core/catalog.hpp"
#include "fenced_ddl.hpp"

namespace crossfade {

namespace {

struct Part {
  IndexBuild build;
  QualifiedName above;  // the index to which it is attached
};

// $1 index of the table that is its model, $2 the twin of it; one row for each partition, the upper ones
// first.
constexpr const char* kParts = R"sql(
WITH RECURSIVE olds (oid, relation) AS (
  SELECT i.indexrelid, i.indrelid FROM pg_index i WHERE i.indexrelid = to_regclass($1)
  UNION ALL SELECT i.indexrelid, i.indrelid FROM olds JOIN pg_inherits h ON h.inhparent = olds.oid
    JOIN pg_index i ON i.indexrelid = h.inhrelid),
twins (oid, relation) AS (
  SELECT i.indexrelid, i.indrelid FROM pg_index i WHERE i.indexrelid = to_regclass($2)
  UNION ALL SELECT i.indexrelid, i.indrelid FROM twins JOIN pg_inherits h ON h.inhparent = twins.oid
    JOIN pg_index i ON i.indexrelid = h.inhrelid)
SELECT p.relid, n.nspname, c.relname, p.leaf, o.relname, t.oid IS NOT NULL, p.parentid,
  an.nspname, a.relname
FROM {} p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN olds ON olds.relation = p.relid JOIN pg_class o ON o.oid = olds.oid
LEFT JOIN twins t ON t.relation = p.relid
JOIN olds u ON u.relation = p.parentid JOIN pg_class a ON a.oid = u.oid
JOIN pg_namespace an ON an.oid = a.relnamespace
ORDER BY p.level, p.relid)sql";

enum class Which { missing, all };

std::vector<Part> parts_of(SqlSession& session, const Migration& m, const IndexBuild& whole, Which which) {
  const QualifiedName model{whole.table.schema, whole.entry->name};
  std::vector<Part> parts;
  for (const auto& row :
       session
           .exec(fmt::format(kParts, partition_tree_sql(fmt::format("{}::oid", whole.relation.value))),
                 {model.sql(), whole.index().sql()})
           .rows) {
    if (which == Which::missing && bool_of(row[5])) continue;
    Part part;
    part.build = whole;
    part.build.relation = Oid{static_cast<std::uint32_t>(int_of(row[0]))};
    part.build.table = {text_of(row[1]), text_of(row[2])};
    part.build.only = !bool_of(row[3]);
    part.build.name = m.generated.twin(text_of(row[4]));
    part.above = int_of(row[6]) == whole.relation.value
                     ? whole.index()
                     : QualifiedName{text_of(row[7]), m.generated.twin(text_of(row[8]))};
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string attach_sql(const Part& part) {
  return fmt::format("ALTER INDEX {} ATTACH PARTITION {};\n", part.above.sql(), part.build.index().sql());
}

// The lock first, the token after it, as everywhere: late it is undone.
void attach(SqlSession& session, const Migration& m, const Part& part,
            std::chrono::milliseconds lock_timeout) {
  run_fenced_after(session, m, attach_sql(part), TokenFence::held, lock_timeout, "");
}

}  // namespace

void complete_one_part(SqlSession& session, const Migration& m, const IndexBuild& whole,
                       std::chrono::milliseconds lock_timeout) {
  const auto missing = parts_of(session, m, whole, Which::missing);
  if (missing.empty()) {
    // A partition without its part was detached: nothing makes the index valid any more.
    return run_fenced(session, m, whole.table, "ACCESS EXCLUSIVE", TokenFence::held, lock_timeout,
                      drop_build_sql(whole) + "\n");
  }
  const auto& part = missing.front();
  const auto state = state_of(session, part.build);
  if (state == BuildState::absent) {
    if (!is_being_built(session, part.build)) build_one(session, m, part.build, lock_timeout);
  } else if (state == BuildState::broken && !part.build.only) {
    drop_leftover(session, m, part.build, lock_timeout);
  } else {
    attach(session, m, part, lock_timeout);
  }
}

bool next_part_is_built(SqlSession& session, const Migration& m, const IndexBuild& whole) {
  const auto missing = parts_of(session, m, whole, Which::missing);
  return !missing.empty() && !missing.front().build.only &&
         state_of(session, missing.front().build) == BuildState::absent;
}

std::string drop_loose_parts_sql(const Migration& m) {
  const auto suffix = "_" + m.row.id.short_hex();
  const auto body = fmt::format(
      "DECLARE\n  part record;\nBEGIN\n"
      "  FOR part IN SELECT n.nspname, c.relname FROM {} p JOIN pg_catalog.pg_index i ON i.indrelid = "
      "p.relid\n"
      "      JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid AND NOT c.relispartition\n"
      "      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace\n"
      "      WHERE pg_catalog.right(c.relname::text, {}) = {} LOOP\n"
      "    EXECUTE pg_catalog.format('DROP INDEX %I.%I', part.nspname, part.relname);\n  END LOOP;\nEND",
      partition_tree_sql(fmt::format("{}::oid", m.row.table_oid.value)), suffix.size(),
      quote_literal(suffix));
  return fmt::format("DO {};\n", quote_literal(body));
}

std::vector<Statement> part_statements(SqlSession& session, const Migration& m, const IndexBuild& whole) {
  std::vector<Statement> list{{in_words(whole) + ", without its parts", create_build_sql(session, whole),
                               "SHARE on " + whole.table.display() + " alone, in short attempts",
                               Blocks::table, true}};
  for (const auto& part : parts_of(session, m, whole, Which::all)) {
    const auto& table = part.build.table;
    list.push_back({"its part on " + table.display(), create_build_sql(session, part.build),
                    part.build.only ? "SHARE on " + table.display() + " alone, in short attempts"
                                    : "SHARE UPDATE EXCLUSIVE on " + table.display(),
                    part.build.only ? Blocks::table : Blocks::nothing, true});
    list.push_back({"which becomes part of it", attach_sql(part),
                    "ACCESS EXCLUSIVE on the part, in short attempts", Blocks::table, true});
  }
  return list;
}

}  // namespace crossfade

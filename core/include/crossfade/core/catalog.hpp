// Facts read from pg_catalog. Objects are addressed by oid and attnum once resolved; names are for people and
// for SQL.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/ids.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade {

struct ColumnFacts {
  int attnum = 0;
  std::string name;
  Oid type;
  std::string type_text;  // format_type with modifier, schema-qualified unless in pg_catalog
  int typmod = -1;
  bool not_null = false;
  std::optional<std::string> default_text;  // pg_get_expr under search_path = pg_catalog
  std::string identity, generated;          // as in pg_attribute; empty when neither
  bool default_collation = true;            // attcollation is the type's own
  std::optional<std::string> comment;
  // Per-column settings that differ from what a new column of the type gets, in words ("statistics target",
  // …).
  std::vector<std::string> settings;
};

struct TableFacts {
  Oid oid;
  QualifiedName name;
  std::string kind, persistence;  // relkind, relpersistence
  std::uint32_t relfilenode = 0;
  std::string owner;
  bool may_alter = false;  // the current role is the owner or a member of it
  bool row_security = false, force_row_security = false;
  bool is_partition = false, has_children = false, has_parents = false;
  double estimated_rows = 0;
  std::int64_t bytes = 0;
  std::vector<ColumnFacts> columns;  // live ones, by attnum
  const ColumnFacts* column(std::string_view name) const;
};

struct KeyColumn {
  int attnum = 0;
  std::string name, type_text;
  std::string collation;  // quoted and qualified; empty when the type is not collatable
  // As the index has it, or all turned round, so that the first column ascends: it is read either way.
  bool descending = false, nulls_first = false;
  std::string type_after = {};  // from the switch on, of a column that is migrated itself; empty: type_text
  bool operator==(const KeyColumn&) const = default;
};

// An order of the whole table: a unique, valid, immediate, non-partial btree index over NOT NULL columns.
struct KeyFacts {
  Oid index;
  std::string index_name;
  bool primary = false;
  std::vector<KeyColumn> columns;
  bool partitioned = false;  // of a partitioned table: the order is one over the rows of all its leaves
};

// A type as it is resolved by PostgreSQL from its text. Throws spec_bad_value naming the text.
struct TypeFacts {
  Oid oid, base;
  std::string text;       // canonical, with modifier
  std::string base_text;  // without modifier, domains resolved
  int typmod = -1;        // of the type or, for a domain, of its base
  bool is_domain = false, is_array = false, collatable = false;
  bool is_composite_or_pseudo = false;
};

// nullopt when there is no such relation. Throws permission_denied when the schema may not be used.
std::optional<TableFacts> read_table(SqlSession& session, const QualifiedName& name);
std::optional<TableFacts> read_table(SqlSession& session, Oid oid);

// The best key that reads none of `excluded` (attnums): the primary key first. nullopt when there is none.
std::optional<KeyFacts> choose_key(SqlSession& session, Oid table, const std::vector<int>& excluded);

TypeFacts resolve_type(SqlSession& session, const std::string& text);

// A partition at any depth below a partitioned table. Leaves have rows, the others have partitions.
struct PartitionFacts {
  Oid oid, parent;
  QualifiedName name;
  bool leaf = false;
};
// A parenthesised query of them: relid, parentid, level (from 1), leaf. `table` is an SQL expression. From
// the catalog alone: pg_partition_tree() would wait for whoever holds a partition. One whose detachment is
// pending does not count.
std::string partition_tree_sql(const std::string& table);
// In the order of their oids; none for an ordinary table.
std::vector<PartitionFacts> read_partitions(SqlSession& session, Oid table);
// The table and its partitions at any depth, by oid.
std::vector<Oid> tree_of(SqlSession& session, Oid table);

// The current name of a relation; nullopt when it is gone.
std::optional<QualifiedName> relation_name(SqlSession& session, Oid oid);

}  // namespace crossfade

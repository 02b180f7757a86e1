// What the reader of each kind of dependent gets and what it may ask. One file per kind; none of them writes
// anything that is not undone with the clone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "references.hpp"

namespace crossfade {

// A temporary copy of the table, empty, in which the migrated column has its new form under its own name and
// the old column its retired name, and so has each column that moves together with it: the table as it will
// be after the switch. PostgreSQL judges there whether an object can be made again, and says there how a
// definition reads over the new column. Undone with the object, so that nobody else ever sees it.
class Clone {
 public:
  Clone(SqlSession& session, const TableFacts& table, const ColumnBinding& column);

  // "pg_temp"."t".
  const std::string& sql() const { return sql_; }
  // PostgreSQL's objection to the statement; nullopt when it has none. The statement is undone.
  std::optional<std::string> objection(const std::string& statement) const;
  // Makes an object by `statement` and answers what `reading` then gives, with the new column called by its
  // shadow name and the old one by its own: the definition over the shadow. Undone. Throws what PostgreSQL
  // says when the statement fails.
  std::string over_shadow(const std::string& statement, const std::string& reading) const;
  // The same over the old column, as it reads after the switch: by its retired name.
  std::string over_retired(const std::string& statement, const std::string& reading) const;

 private:
  // Of every column that moves.
  void rename(std::string ColumnBinding::*from, std::string ColumnBinding::*to) const;

  SqlSession& session_;
  std::vector<const ColumnBinding*> columns_;  // in the order of the table
  std::string sql_;
  Savepoint undone_;
};

class Reading {
 public:
  Reading(SqlSession& session, const TableFacts& table, const ColumnFacts& facts, const ColumnBinding& column,
          std::vector<Finding>& findings);

  SqlSession& session;
  const TableFacts& table;
  const ColumnFacts& facts;
  const ColumnBinding& column;
  std::vector<Finding>& findings;
  Ledger ledger;

  const std::string& object() const { return object_; }  // the column, as SQL shows it
  Dependent& carry(DependentKind kind, std::string name);
  // dependent_not_carried for what `reference` names; `why` continues the sentence after a colon.
  void refuse(const Reference& reference, const std::string& why);
  void refuse(const std::string& object, const std::string& message, const std::string& hint);
  // A conversion that keeps every value, in both directions, by proof: what is stated of the old value holds
  // of the new one.
  bool keeps_values() const;
  // The collation of its own that the new column takes over; empty when it has none.
  const std::string& collation() const { return collation_; }
  const Clone& clone();
  // The old columns that move together, as an array of their numbers.
  std::string moving_attnums() const;
  // Of an object that stands on the column of that number and on no earlier one that moves: what its entry is
  // carried by. Each object has exactly one such column, which is the same in every ledger and every phase.
  std::string carried_by(std::int64_t first_attnum) const;
  // The role may act as `role`: it is that role or a member of it.
  bool acts_as(const std::string& role);

 private:
  std::string object_, collation_;
  std::optional<Clone> clone_;
};

// Its words hold a cast of the column that was implicit over the old type and would narrow the new one; says
// which. Of a view on a view, whose tree has the column under another number, any column of the old type
// counts.
enum class InTree { by_number, by_type };
std::optional<std::string> hidden_narrowing(Reading& reading, ReferenceKind kind, std::uint32_t oid,
                                            InTree in_tree = InTree::by_number);

// PostgreSQL refused what it was asked, as opposed to a failure on the way to it.
bool is_answer(const Error& error);

// Each reads one reference and either carries it or refuses it.
void take_index(Reading& reading, const Reference& reference);
void take_index_constraint(Reading& reading, const Reference& reference);  // UNIQUE, PRIMARY KEY
void take_constraint(Reading& reading, const Reference& reference);
void take_statistics(Reading& reading, const Reference& reference);
void take_policy(Reading& reading, const Reference& reference);
void take_rule(Reading& reading, const Reference& reference);
void take_trigger(Reading& reading, const Reference& reference);
void take_function(Reading& reading, const Reference& reference);
void take_sequence(Reading& reading, const Reference& reference);
void take_publication(Reading& reading, const Reference& reference);
// These read for themselves what the column has.
void take_settings(Reading& reading);
void take_column_grants(Reading& reading);
// Of a partitioned table: refuses what a partition has of its own.
void take_partitions(Reading& reading);
// The parts of a partitioned index that differ from it in options, tablespace, comment or use; nullopt for
// none.
std::optional<std::string> own_index_parts(SqlSession& session, std::uint32_t index);
// The views on the column and those on them, in the order in which they can be made again.
void take_views(Reading& reading, const std::vector<Reference>& references);

// Grants as statements, in an order in which each grantor was granted before, and what takes them back.
struct Grant {
  std::string privilege, grantee, grantor;  // the grantee as SQL shows it; the grantor as it is called
  bool grantable = false;
};
struct GrantStatements {
  std::string grant, revoke;
  std::string missing_role;  // a grantor as which this role cannot act: there are no statements then
};
// `columns` is "" or " (b)"; `relation` as SQL shows it.
GrantStatements grant_statements(Reading& reading, std::vector<Grant> grants, const std::string& owner,
                                 const std::string& columns, const std::string& relation);
// `acl` is an expression of type aclitem[], with `from` as its FROM clause.
std::vector<Grant> read_grants(SqlSession& session, const std::string& acl, const std::string& from,
                               const SqlParams& params);

// COMMENT ON <what> IS <text>; empty without a text.
std::string comment_sql(const std::string& what, const SqlValue& text);

}  // namespace crossfade

// From a spec to a bound migration: what `plan` shows and `start` stores, by the same code.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/finding.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

struct Registration {
  MigrationRow row;
  Spec spec;
  Binding binding;
  Ledger ledger;
  std::vector<Finding> findings;
  bool usable = false;               // bound and keyed: the row can be inserted; so are the members
  std::vector<Acceptance> accepted;  // stored ones, of a migration that was started already
  std::vector<std::string> sent;     // statements of start that make something, in order
  // With follow_foreign_keys: one for each column that refers to the migrated one. Their findings are among
  // those of the leader.
  std::vector<Registration> members;
};

// Resolves, binds and inspects, in the caller's transaction (which `plan` rolls back). Creates the expression
// functions.
Registration register_spec(SqlSession& session, const SpecSource& source, const MigratorOptions& options);

// Inserts the migration, its members and their ledgers. Requires: usable. Throws table_has_migration naming
// the table and the migration that is open on it.
void require_free_tables(SqlSession& session, const Registration& registration);
void insert_registration(SqlSession& session, const Registration& registration);

// sha256 of the canonical text, by the server.
std::string spec_hash(SqlSession& session, const Spec& spec);

// Of a migration that is open: what start stored, and the findings of now as long as a gate asks for them.
Registration stored_registration(SqlSession& session, const MigrationRow& row);

PlanReport plan_report(SqlSession& session, const Registration& registration,
                       const std::function<SqlSession(const std::string&)>& connect);

}  // namespace crossfade

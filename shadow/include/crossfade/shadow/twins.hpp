// Twins: the successors of indexes and NOT NULL on the new column, built online in dual_write; and what a way
// back builds again on the old one.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/statements.hpp"

namespace crossfade {

enum class BuildSet {
  twins,  // until the switch: the twins, and the spares of constraints over the old column
  owed,   // phase switched: what the switch took off the old column for good, and the way back needs again
};

// Brings every twin into being, one bounded step per call; idempotent, restartable at any instruction.
//
// CREATE INDEX CONCURRENTLY runs outside a transaction. Its name is generated from the migration's id, so
// that a leftover of a dead builder is recognised; an invalid one is dropped and built again only under SHARE
// UPDATE EXCLUSIVE on the table, which a living builder conflicts with.
class TwinBuilder {
 public:
  TwinBuilder(const Migration& migration, QualifiedName table, Ledger ledger, BuildSet set = BuildSet::twins);
  // True when every one is valid. Does one thing otherwise (drops a leftover, builds one index, adds or
  // validates one check). Short locks are taken with lock_timeout; a miss throws an Error with
  // is_lock_not_available(), and a unique index that finds duplicates one with SQLSTATE 23505, whose leftover
  // the next step drops. Throws superseded when another runner has the migration.
  bool step(SqlSession& session, std::chrono::milliseconds lock_timeout);
  // The next step is CREATE INDEX CONCURRENTLY, which holds up nobody and itself waits for whom it must.
  bool builds_next(SqlSession& session) const;
  // What is missing, in words.
  std::vector<std::string> missing(SqlSession& session) const;
  // The NOT NULL of the new column was proved by a validated check, so that the switch needs no scan.
  bool not_null_check_valid(SqlSession& session) const;

 private:
  bool one_step(SqlSession& session, std::chrono::milliseconds lock_timeout);

  Migration migration_;
  QualifiedName table_;
  Ledger ledger_;
  BuildSet set_;
};

// dual_write proves NOT NULL of the new column by a check, so that the switch sets it at once.
bool not_null_is_proved_before_switch(const ColumnBinding& column);

// How far an index build on the table has come, as the server tells it: "building index: scanning table, 40
// %"; nullopt when none is at work.
std::optional<std::string> build_progress(SqlSession& session, Oid table);

// Removes twins and checks: rollback of dual_write. Under the table lock.
std::string drop_twins_sql(const Migration& migration, const QualifiedName& table, const Ledger& ledger);

// After a switch in either direction: a constraint that was carried NOT VALID and is to be valid; nullopt
// when none is left. VALIDATE reads the table under SHARE UPDATE EXCLUSIVE, which holds up neither readers
// nor writers.
struct Unvalidated {
  QualifiedName table;  // the migrated one, or one that refers to it
  std::string constraint;
};
std::optional<Unvalidated> next_unvalidated(SqlSession& session, const Migration& migration,
                                            const QualifiedName& table, const Ledger& ledger);
void validate_constraint(SqlSession& session, const Migration& migration, const Unvalidated& unvalidated,
                         std::chrono::milliseconds lock_timeout);

// Phase switched: something of BuildSet::owed is there, valid or not. From then on a write whose old value it
// refuses fails.
bool owed_indexes_begun(SqlSession& session, const Migration& switched, const QualifiedName& table,
                        const Ledger& ledger);
// Before a switch: which index of each leaf becomes its constraint, for the unique constraints of a
// partitioned table. `set` says over which column.
void find_leaf_indexes(SqlSession& session, const Migration& migration, BuildSet set, Ledger& ledger);
// All of them are valid, as a condition without parameters for the block under the lock; empty when there are
// none.
std::string owed_indexes_proof_sql(SqlSession& session, const Migration& switched, const QualifiedName& table,
                                   const Ledger& ledger);
// What a way back that was given up left, begun or ended.
void drop_owed_indexes(SqlSession& session, const Migration& switched, const QualifiedName& table,
                       const Ledger& ledger, std::chrono::milliseconds lock_timeout);
// For `plan`.
std::vector<Statement> owed_statements(SqlSession& session, const Migration& switched,
                                       const QualifiedName& table, const Ledger& ledger);

// What the planner must know before the first query on the new column: its statistics, and those of the twins
// of statistics objects, which are made only where all of their columns are read together.
std::string analyze_sql(SqlSession& session, const Migration& migration, const QualifiedName& table,
                        const Ledger& ledger);

// For `plan`: what dual_write sends, in order; what settles a switch in the phase of `migration`.
std::vector<Statement> twin_statements(SqlSession& session, const Migration& migration,
                                       const QualifiedName& table, const Ledger& ledger);
std::vector<Statement> settling_statements(const Migration& migration, const QualifiedName& table,
                                           const Ledger& ledger);

// A plain reading: settle_not_null has nothing left to do.
bool not_null_is_settled(SqlSession& session, const Migration& migration, const std::string& column);

// Before a switch back that needs it (needs_not_null): the old column is proved NOT NULL by a validated
// check. From its first step on a value that the old column cannot hold fails the write instead of becoming a
// misfit, which would forbid the way back for good. True when it is valid.
bool prove_old_not_null(SqlSession& session, const Migration& migration, const QualifiedName& table,
                        std::chrono::milliseconds lock_timeout);
bool old_not_null_is_proved(SqlSession& session, const Migration& migration);
// The same as a condition without parameters, for the block under the lock.
std::string old_not_null_proof_sql(const Migration& migration);
// What a way back that was given up left, begun or ended.
bool old_not_null_has_proof(SqlSession& session, const Migration& migration);
void drop_old_not_null_proof(SqlSession& session, const Migration& migration, const QualifiedName& table,
                             std::chrono::milliseconds lock_timeout);

// After a switch in either direction: NOT NULL that was carried as a NOT VALID check becomes real (VALIDATE,
// SET NOT NULL without a scan, check dropped). `column` is the physical name. True when nothing is left to
// do.
bool settle_not_null(SqlSession& session, const Migration& migration, const QualifiedName& table,
                     const std::string& column, std::chrono::milliseconds lock_timeout);

}  // namespace crossfade

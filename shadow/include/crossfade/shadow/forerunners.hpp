// Foreign keys of partitioned tables on their way to the other column. PostgreSQL adds one to a partitioned
// table only with a scan of every partition, unless the partition has an equal one that is valid: that one it
// takes over. So each leaf gets a forerunner, online: the same foreign key over the columns that are to bear
// the names next. The switch, in either direction, adds the constraint to the table, which takes them over.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/statements.hpp"

namespace crossfade {

// Works for about `slice`: adds the forerunner of a leaf NOT VALID and validates it, or drops one that
// belongs to no leaf any more. True when every leaf has its own, valid. Requires: the work of the phase is
// settled for every migration of the group, so that both sides of every row agree. Throws an Error with
// is_lock_not_available() for a miss before anything was done.
bool make_forerunners(SqlSession& session, const Migration& migration, const Ledger& ledger,
                      std::chrono::milliseconds lock_timeout, std::chrono::milliseconds slice);
// What is missing for the next switch in either direction, in words.
std::vector<std::string> missing_forerunners(SqlSession& session, const Migration& migration,
                                             const Ledger& ledger);
// The same as a condition without parameters for the block under the lock; empty when there are none.
std::string forerunners_proof_sql(SqlSession& session, const Migration& migration, const Ledger& ledger);
// Under the lock, before the constraints of the tables go: those that wait for the end of the transaction
// become what their constraint is.
std::string forerunners_become_sql(SqlSession& session, const Migration& migration, const Ledger& ledger);

// The tables to which they refer, and what refers beside the table of `migration`: what a step locks with it.
std::vector<Oid> locked_with_forerunners(SqlSession& session, const Migration& migration,
                                         const Ledger& ledger);

// One of them is there, valid or not.
bool forerunners_begun(SqlSession& session, const Migration& migration, const Ledger& ledger);
// Drops one; true when none is left.
bool drop_one_forerunner(SqlSession& session, const Migration& migration, const Ledger& ledger,
                         std::chrono::milliseconds lock_timeout);
// All that are left, in a transaction that has the tables locked; empty when the ledger asks for none.
std::string drop_forerunners_sql(const Migration& migration, const Ledger& ledger);

// For `plan`: as the partitions are now.
std::vector<Statement> forerunner_statements(SqlSession& session, const Migration& migration,
                                             const Ledger& ledger);

}  // namespace crossfade

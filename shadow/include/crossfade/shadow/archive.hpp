// [drop] archive = "table": for each row the old value as it was when the old column was dropped, beside the
// key, in a table of its own. Built while the application writes, once the drop is asked for and nothing but
// the archive stands in its way.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "crossfade/core/catalog.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"
#include "crossfade/shadow/statements.hpp"

namespace crossfade {

QualifiedName archive_table(const Migration& migration, const QualifiedName& table);

struct ArchiveState {
  bool installed = false;  // table, log and triggers are there
  bool copied = false;     // every row was copied once; what changed since is in the log
  bool log_is_short = false;
};
ArchiveState archive_state(SqlSession& session, const Migration& migration);

// Makes the table, the log of keys and the triggers that fill it, and takes the fingerprint anew. Waits for
// every writer of the table, at most `lock_timeout`; throws is_lock_not_available() for a miss.
void install_archive(SqlSession& session, const Migration& switched, const QualifiedName& table,
                     std::chrono::milliseconds lock_timeout);
// A chunk of rows, or of the log. True when everything was copied and the log is short.
bool archive_step(SqlSession& session, const Migration& switched, const QualifiedName& table);

// Under the lock of the drop: PL/pgSQL that raises CF001 unless the rest can be copied in no time.
std::string archive_recheck_sql(const Migration& switched);
// The rest of the log, and away with all but the table.
std::string finish_archive_sql(const Migration& switched, const QualifiedName& table);
// Takes everything away, if it is there: on the way back, and when the capture is made anew.
std::string remove_archive_sql(const Migration& switched, const QualifiedName& table);
// What is left of it when the table is gone.
std::string remove_archive_log_sql(const Migration& migration);

// For the plan.
std::vector<Statement> archive_statements(const Migration& switched, const QualifiedName& table);

}  // namespace crossfade

// dropped: triggers, functions, what was taken off and the old column go in one transaction. No CASCADE,
// ever. What came to hang on the old column is told by name before anything is locked; DROP COLUMN would fail
// for a view of it and take an index or a constraint along. Under the lock it must still be so, and nothing
// that the last comparison rests on may have changed.
#include "handlers.hpp"

#include <fmt/format.h>

#include "crossfade/shadow/archive.hpp"
#include "crossfade/shadow/capture.hpp"
#include "crossfade/shadow/dependents.hpp"
#include "crossfade/shadow/transform.hpp"

namespace crossfade {

StepResult DroppedHandler::step(PhaseEnv&, const Migration&, std::chrono::milliseconds) {
  return {StepResult::Kind::settled, {}, {}};
}

std::vector<Blocker> DroppedHandler::exit_blockers(PhaseEnv&, const Migration&) { return {}; }

Crossing DroppedHandler::enter(PhaseEnv& env, const Migration& m) {
  const auto table = current_table(env.session, m);
  // The mark is read before the list: what comes after it changes the mark.
  const auto mark = text_of(env.session.exec("SELECT " + dependents_mark_sql(m)).one("mark")[0]);
  if (const auto hanging = old_column_blockers(env, m); !hanging.empty()) throw error_of(hanging, m.row.name);
  Crossing crossing;
  crossing.locks_table = true;
  crossing.recheck = comparison_recheck_sql(env, m, CompareDirection::backward) +
                     raise_unless(fmt::format("{} = {}", dependents_mark_sql(m), quote_literal(mark)),
                                  "something that hangs on the old column was added or changed");
  const bool archived = m.spec.archive == Archive::table;
  if (archived) {
    // A plan asks before it is there.
    if (archive_state(env.session, m).installed) crossing.also_locks = {archive_table(m, table).sql()};
    crossing.recheck += archive_recheck_sql(m);
  }
  crossing.statements =
      (archived ? finish_archive_sql(m, table) : std::string()) + remove_capture_sql(m, table) +
      fmt::format("ALTER TABLE {} DROP COLUMN {};\n", table.sql(), quote_identifier(m.names.old_column)) +
      drop_functions_sql(m.binding.column);
  crossing.assignments = {"fingerprint = NULL"};
  crossing.evidence = text_of(env.session
                                  .exec("SELECT json_build_object('table_bytes', pg_table_size($1::oid), "
                                        "'index_bytes', pg_indexes_size($1::oid),"
                                        " 'dead_tuples', (SELECT s.n_dead_tup FROM pg_stat_all_tables s "
                                        "WHERE s.relid = $1::oid))::text",
                                        {std::to_string(m.row.table_oid.value)})
                                  .one("bloat")[0]);
  return crossing;
}

Crossing DroppedHandler::leave_back(PhaseEnv&, const Migration&) { return {}; }

}  // namespace crossfade

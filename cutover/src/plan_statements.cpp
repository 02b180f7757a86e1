#include "plan_statements.hpp"

#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "crossfade/shadow/archive.hpp"
#include "crossfade/shadow/profile.hpp"
#include "crossfade/shadow/statements.hpp"
#include "crossfade/shadow/transform.hpp"
#include "crossfade/shadow/twins.hpp"
#include "transition.hpp"

namespace crossfade {

namespace {

class Planner {
 public:
  Planner(PhaseEnv& env, const Registration& registration)
      : env_(env),
        registration_(registration),
        now_(StateStore(env.session).get(registration.row.id)),
        table_(current_table(env.session, at(now_.phase))) {}

  std::vector<PlannedStatement> take() {
    add_start();
    work(Phase::dry_run, dry_run_statements(env_.session, at(Phase::dry_run), table_));
    for (const auto& check : collision_checks(env_.session, at(Phase::dry_run), table_)) {
      if (check.sql.empty()) continue;  // proved one-to-one
      add(Phase::dry_run, "work",
          {"rows that would collide under unique index " + check.index +
               ": sorts the whole table once, and may take long",
           check.sql, "ACCESS SHARE on " + table_.display(), Blocks::nothing, false});
    }
    cross(Phase::backfill, "enter", at(Phase::dry_run), entered(Phase::backfill, Phase::dry_run));
    work(Phase::backfill, sweep_statements(at(Phase::backfill), table_));
    cross(Phase::backfill, "rollback", at(Phase::backfill), left(Phase::backfill));
    const auto dual_write = at(Phase::dual_write);
    work(Phase::dual_write, twin_statements(env_.session, dual_write, table_, registration_.ledger));
    cross(Phase::dual_write, "rollback", dual_write, left(Phase::dual_write));
    add_compare();
    add_switched();
    cross(Phase::dropped, "enter", at(Phase::switched), entered(Phase::dropped, Phase::switched));
    return std::move(list_);
  }

 private:
  Migration at(Phase phase) const {
    auto row = now_;
    row.phase = phase;
    return migration_of(std::move(row));
  }
  Crossing entered(Phase phase, Phase from) { return make_phase_handler(phase)->enter(env_, at(from)); }
  Crossing left(Phase phase) { return make_phase_handler(phase)->leave_back(env_, at(phase)); }

  void add(Phase phase, const char* step, Statement statement) {
    list_.push_back({phase, step, std::move(statement.what), std::move(statement.sql),
                     std::move(statement.lock), std::string(to_text(statement.blocks)), statement.may_wait});
  }
  void work(Phase phase, const std::vector<Statement>& statements) {
    for (const auto& statement : statements) add(phase, "work", statement);
  }

  // One transaction, sent as one message with the phase row and COMMIT.
  void cross(Phase phase, const char* step, const Migration& m, const Crossing& crossing) {
    if (crossing.statements.empty()) return;
    const auto table = table_.display();
    add(phase, step,
        {"the lock, and what must still hold under it",
         lock_and_recheck_sql(m, crossing, table_, m.spec.lock_timeout),
         fmt::format(
             "ACCESS EXCLUSIVE on {}, at most {} ms a time, {} attempts, the first ones without waiting",
             table, m.spec.lock_timeout.count(), m.spec.switch_attempts),
         Blocks::table, true});
    add(phase, step,
        {"what changes, in the same transaction", crossing.statements,
         fmt::format("under that ACCESS EXCLUSIVE on {}", table), Blocks::table, false});
  }

  void add_start() {
    // What probes is undone before the next statement, and lies in pg_temp.
    for (const auto& sql : registration_.sent) {
      const bool probes = sql.find("CREATE FUNCTION") == std::string::npos && !sql.starts_with("GRANT");
      add(Phase::planned, "start",
          {probes ? "PostgreSQL judges it on a copy without rows; undone at once" : "the bound expression",
           sql, probes ? "ACCESS SHARE on " + table_.display() + " at most" : "none on the table",
           Blocks::nothing, false});
    }
    add(Phase::planned, "rollback",
        {"the bound expressions", drop_functions_sql(registration_.binding.column), "none on the table",
         Blocks::nothing, false});
  }

  void add_compare() {
    const auto m = at(Phase::compare);
    work(Phase::compare, settling_statements(m, table_, registration_.ledger));
    work(Phase::compare, sweep_statements(m, table_));
    work(Phase::compare, comparison_statements(m, table_, CompareDirection::forward));
  }

  void add_switched() {
    const auto before = at(Phase::compare);
    const bool proved = not_null_is_proved_before_switch(before.binding.column);
    cross(Phase::switched, "enter", before,
          switch_crossing(env_, before, read_dependent_marks(env_.session, before), proved));
    const auto m = at(Phase::switched);
    work(Phase::switched, settling_statements(m, table_, registration_.ledger));
    work(Phase::switched, comparison_statements(m, table_, CompareDirection::backward));
    if (m.spec.archive == Archive::table) work(Phase::switched, archive_statements(m, table_));
    cross(Phase::switched, "recapture", m, recapture_crossing(env_, m));
    cross(Phase::switched, "rollback", m, left(Phase::switched));
  }

  PhaseEnv& env_;
  const Registration& registration_;
  const MigrationRow now_;
  const QualifiedName table_;
  std::vector<PlannedStatement> list_;
};

}  // namespace

std::vector<PlannedStatement> planned_statements(PhaseEnv& env, const Registration& registration) {
  return Planner(env, registration).take();
}

}  // namespace crossfade

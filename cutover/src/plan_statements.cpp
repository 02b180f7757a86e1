#include "plan_statements.hpp"

#include <fmt/format.h>

#include "crossfade/core/catalog.hpp"
#include "crossfade/shadow/archive.hpp"
#include "crossfade/shadow/collisions.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "crossfade/shadow/profile.hpp"
#include "crossfade/shadow/statements.hpp"
#include "crossfade/shadow/transform.hpp"
#include "crossfade/shadow/twins.hpp"
#include "transition.hpp"

namespace crossfade {

namespace {

// One migration of the group.
struct Part {
  const Registration& registration;
  MigrationRow now;
  QualifiedName table;

  Migration at(Phase phase) const {
    auto row = now;
    row.phase = phase;
    return migration_of(std::move(row));
  }
};

class Planner {
 public:
  Planner(PhaseEnv& env, const Registration& registration) : env_(env) {
    add_part(registration);
    for (const auto& member : registration.members) add_part(member);
  }

  std::vector<PlannedStatement> take() {
    for (const auto& part : parts_) add_start(part);
    each(Phase::dry_run, [&](const Part& part) {
      return dry_run_statements(env_.session, part.at(Phase::dry_run), part.table);
    });
    for (const auto& part : parts_) {
      add_collision_checks(Phase::dry_run, part, ComparedValue::forward,
                           "rows that would collide under unique index ");
    }
    enter(Phase::backfill, Phase::dry_run);
    each(Phase::backfill,
         [&](const Part& part) { return sweep_statements(part.at(Phase::backfill), part.table); });
    leave(Phase::backfill);
    each(Phase::dual_write, [&](const Part& part) {
      return twin_statements(env_.session, part.at(Phase::dual_write), part.table, part.registration.ledger);
    });
    leave(Phase::dual_write);
    for (const auto& part : parts_) add_compare(part);
    add_switched();
    enter(Phase::dropped, Phase::switched);
    return std::move(list_);
  }

 private:
  void add_part(const Registration& registration) {
    auto row = StateStore(env_.session).get(registration.row.id);
    auto table = current_table(env_.session, migration_of(row));
    parts_.push_back({registration, std::move(row), std::move(table)});
  }

  void add(Phase phase, const char* step, Statement statement) {
    list_.push_back({phase, step, std::move(statement.what), std::move(statement.sql),
                     std::move(statement.lock), std::string(to_text(statement.blocks)), statement.may_wait});
  }
  void work(Phase phase, const std::vector<Statement>& statements) {
    for (const auto& statement : statements) add(phase, "work", statement);
  }
  void each(Phase phase, const std::function<std::vector<Statement>(const Part&)>& statements) {
    for (const auto& part : parts_) work(phase, statements(part));
  }

  void enter(Phase phase, Phase from) {
    cross(phase, "enter", from,
          [&](const Migration& m) { return make_phase_handler(phase)->enter(env_, m); });
  }
  void leave(Phase phase) {
    cross(phase, "rollback", phase,
          [&](const Migration& m) { return make_phase_handler(phase)->leave_back(env_, m); });
  }

  // One transaction for all of the group, sent as one message with the phase rows and COMMIT.
  void cross(Phase phase, const char* step, Phase from,
             const std::function<Crossing(const Migration&)>& crossing_of) {
    std::vector<Migration> group;
    std::vector<Crossing> crossings;
    std::string tables;
    for (const auto& part : parts_) {
      group.push_back(part.at(from));
      crossings.push_back(crossing_of(group.back()));
      if (tables.find(part.table.display()) == std::string::npos)
        tables += (tables.empty() ? "" : ", ") + part.table.display();
    }
    const auto changes = under_lock_sql(crossings);
    if (changes.empty()) return;
    const auto& spec = group.front().spec;
    add(phase, step,
        {"the lock, and what must still hold under it",
         lock_and_recheck_sql(env_.session, group, crossings, spec.lock_timeout),
         fmt::format(
             "ACCESS EXCLUSIVE on {}, at most {} ms a time, {} attempts, the first ones without waiting",
             tables, spec.lock_timeout.count(), spec.switch_attempts),
         Blocks::table, true});
    add(phase, step,
        {"what changes, in the same transaction", changes,
         fmt::format("under that ACCESS EXCLUSIVE on {}", tables), Blocks::table, false});
  }

  void add_start(const Part& part) {
    // What probes is undone before the next statement, and lies in pg_temp.
    for (const auto& sql : part.registration.sent) {
      const bool probes = sql.find("CREATE FUNCTION") == std::string::npos && !sql.starts_with("GRANT");
      add(Phase::planned, "start",
          {probes ? "PostgreSQL judges it on a copy without rows; undone at once" : "the bound expression",
           sql, probes ? "ACCESS SHARE on " + part.table.display() + " at most" : "none on the table",
           Blocks::nothing, false});
    }
    add(Phase::planned, "rollback",
        {"the bound expressions", drop_functions_sql(part.registration.binding.column), "none on the table",
         Blocks::nothing, false});
  }

  void add_collision_checks(Phase phase, const Part& part, ComparedValue value, const std::string& what) {
    for (const auto& check : collision_checks(env_.session, part.at(phase), part.table, value)) {
      if (check.sql.empty()) continue;  // proved one-to-one
      add(phase, "work",
          {what + check.index + ": sorts the whole table once, and may take long", check.sql,
           "ACCESS SHARE on " + part.table.display(), Blocks::nothing, false});
    }
  }

  void add_compare(const Part& part) {
    const auto m = part.at(Phase::compare);
    work(Phase::compare, settling_statements(m, part.table, part.registration.ledger));
    work(Phase::compare, sweep_statements(m, part.table));
    work(Phase::compare, comparison_statements(m, part.table, CompareDirection::forward));
    work(Phase::compare, forerunner_statements(env_.session, m, part.registration.ledger));
  }

  void add_switched() {
    cross(Phase::switched, "enter", Phase::compare, [&](const Migration& m) {
      const bool proved = not_null_is_proved_before_switch(m.binding.column);
      return switch_crossing(env_, m, read_dependent_marks(env_.session, m), proved);
    });
    for (const auto& part : parts_) {
      const auto m = part.at(Phase::switched);
      work(Phase::switched, settling_statements(m, part.table, part.registration.ledger));
      add_collision_checks(Phase::switched, part, ComparedValue::old,
                           "only before a way back: rows whose old values collide under unique index ");
      work(Phase::switched, owed_statements(env_.session, m, part.table, part.registration.ledger));
      work(Phase::switched, forerunner_statements(env_.session, m, part.registration.ledger));
      work(Phase::switched, comparison_statements(m, part.table, CompareDirection::backward));
      if (m.spec.archive == Archive::table) work(Phase::switched, archive_statements(m, part.table));
    }
    cross(Phase::switched, "recapture", Phase::switched,
          [&](const Migration& m) { return recapture_crossing(env_, m); });
    leave(Phase::switched);
  }

  PhaseEnv& env_;
  std::vector<Part> parts_;
  std::vector<PlannedStatement> list_;
};

}  // namespace

std::vector<PlannedStatement> planned_statements(PhaseEnv& env, const Registration& registration) {
  return Planner(env, registration).take();
}

}  // namespace crossfade

// A whole life cycle under a live application, with an oracle: what the table holds is what the twin holds,
// and what the other side holds is what the spec says, at any snapshot.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "crossfade/cutover/migrator.hpp"
#include "support/application_session.hpp"
#include "support/live_writers.hpp"

namespace crossfade::test {

struct LifecycleScenario {
  std::string spec;             // TOML
  std::string setup;            // the table and its rows; run as the owner, search_path public
  std::string twin_setup = {};  // what the twin needs to hold every value that will be written
  LiveTable live;
  // The oracle's own words for the expressions: of {old} as it is before the switch, and of {new} as after
  // it.
  std::string forward, backward;
  // A condition on {new} that holds for values that cannot be carried back; empty: there are none.
  std::string misfit = {};
  std::vector<Acceptance> accept = {};           // at start
  std::vector<Acceptance> accept_rollback = {};  // of the switch back, after it was refused without
  std::vector<LiveOperation> operations = standard_operations();
  LiveOptions writers = {};
  std::string writer_dsn = {};  // empty: as the owner
  std::string redis = {};
};

// A spec and an application for public.t (id, b, n) with an integer b that becomes wider; its setup is
// missing.
LifecycleScenario integer_scenario(const std::string& from = "integer", const std::string& to = "bigint");

// All that the catalog says of a table and its schema, a line each, sorted; without attribute numbers and
// oids.
std::vector<std::string> describe_catalog(ApplicationSession& session, const std::string& table);

class Lifecycle {
 public:
  // Installs the schema, makes the table and its twin, and starts the application.
  Lifecycle(std::string dsn, LifecycleScenario scenario);
  ~Lifecycle();

  // Plans and registers; phase planned.
  void start();
  // To `phase` and settled, whatever "not yet" is answered on the way.
  void advance_to(Phase phase);
  // One phase back, or to `phase`.
  void roll_back();
  void roll_back_to(Phase phase);
  // Stops a sweep between two chunks, and rolls back to dry_run from another thread.
  void roll_back_in_the_middle_of_the_sweep();
  // Compares table and twin, and the two sides; throws std::runtime_error that shows some of what differs.
  void check();

  // start, and for every phase: there, one back, there again; with misfits between switched and compare. Then
  // back to rolled_back and the catalog as before.
  void walk_there_and_back();
  // From wherever it is to dropped; the application ends, and the catalog is as before but for the column.
  void finish();

  Migrator& migrator() { return *migrator_; }
  LiveWriters& writers() { return *writers_; }
  ApplicationSession& owner() { return owner_; }
  const std::string& name() const { return name_; }
  StatusReport status() { return migrator_->status(name_); }
  std::string shadow_column();  // its physical name; empty when there is none
  // That the catalog is what it was before the start, and that nothing of crossfade is left in it.
  void check_restored();

 private:
  std::string step_check_sql(Phase phase);
  std::string twin_check_sql(Phase phase);
  void roll_back_from_switched();
  void make_misfits();

  std::string dsn_, name_;
  LifecycleScenario scenario_;
  ApplicationSession owner_;
  std::unique_ptr<Migrator> migrator_;
  std::vector<std::string> before_;
  bool ever_switched_ = false;
  std::unique_ptr<LiveWriters> writers_;
};

}  // namespace crossfade::test

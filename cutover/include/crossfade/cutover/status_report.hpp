// What `status` answers: where are we, is it moving, what is it waiting for, how do I go back, what would I
// lose. Computed when asked; nothing of it is stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/phase.hpp"
#include "crossfade/core/phase_request.hpp"
#include "crossfade/core/worker_rows.hpp"

namespace crossfade {

struct StatusReport {
  std::string migration, id, table, mode;
  std::string registered_table;  // the table's name at start, which differs from `table` after a rename
  Phase phase = Phase::planned;
  Status status = Status::settled;
  std::string reason;  // why failed or paused; empty otherwise
  std::int64_t epoch = 0;
  std::string since, operator_name, version;
  std::string runner;  // "operator on host, backend pid N" while one holds the lease; empty otherwise
  std::string pass;    // kind of the pass at hand; empty when there is none
  struct Units {
    std::int64_t total = 0, done = 0;
  } units;
  struct Rows {
    std::int64_t done = 0, written = 0, estimated = 0;
  } rows;
  // How a sweep goes through the table, and why; absent when none is at hand.
  struct Sweep {
    std::string order, order_reason;  // key or physical
    int interleave = 1;               // visits of the newest window; 1: swept without windows
    std::string interleave_reason;    // empty before the first decision
    std::optional<double> hot_ratio;  // of the rows written, those that stayed on their page
  };
  std::optional<Sweep> sweep;
  std::int64_t set_aside = 0;  // rows that the sweep found locked and that are still to be written
  // Who holds a unit now, by PostgreSQL; what it says of itself, by Redis: absent when that is unknown.
  struct Worker {
    int pid = 0;  // of its backend
    int unit = 0;
    std::optional<double> rate_rows_per_second;
    std::optional<std::string> since;
    std::optional<std::int64_t> process;  // the id of its process, when it is not the runner's
  };
  std::vector<Worker> workers;
  std::vector<WorkerRow> processes;  // that joined with `work`; the runner is not among them
  double rate_rows_per_second = 0;
  std::optional<std::pair<std::int64_t, std::int64_t>> eta_seconds;
  struct Signal {  // of the pace
    std::string name, value;
    std::optional<std::string> limit;
    std::optional<double> pressure;  // value over limit; absent: it cannot be read
  };
  struct Pace {
    std::int64_t limit_rows_per_second = 0;  // in force: of the tuning or of the controller
    std::string state = "idle";
    std::optional<std::string> reason;
    std::optional<std::string> since;             // when the controller took this state
    std::optional<std::int64_t> starved_seconds;  // of a pause that outlasts the work that is left
    std::vector<Signal> signals;
  } pace;
  std::int64_t rejects = 0;
  std::optional<std::int64_t> differences;  // of the newest full pass; absent until one has ended
  std::int64_t excepted = 0, misfits = 0;
  struct Comparison {  // the one that `differences` is of
    std::string ended_at;
    double age_seconds = 0;
  };
  std::optional<Comparison> comparison;
  std::optional<std::string> drop_from;  // the end of the soak, in switched
  std::optional<std::string> archive;    // the table of the old values, once it is there
  std::vector<std::string> warnings;     // what will be in the way if nobody does anything about it
  struct Next {
    std::optional<Phase> phase;
    bool ready = false;
    std::vector<std::string> waiting_for;
  } next;
  struct Rollback {
    std::optional<Phase> phase;
    bool possible = false;
    std::optional<std::string> loses;
    std::vector<std::string> refused_for;  // why it is not possible
    std::vector<std::string> does_first;   // why it compares again before it goes back
  } rollback;
  struct Commands {
    std::string next, rollback;
    std::string rejects, misfits, diffs;  // what shows them; empty when there are none
    std::string recapture;                // empty unless the capture was changed
  } commands;
  struct Switch {
    std::int64_t attempts = 0;
    std::optional<double> lock_held_ms, lock_wait_ms;
    std::int64_t sessions_waited = 0;
    std::optional<double> longest_wait_ms;  // of a session that waited for one of the attempts
  } switched;
  std::optional<PhaseRequest> request;  // a phase change that somebody asked for and that has not come yet
  // The columns that follow (follow_foreign_keys), each with the counts of its own table; the counts above
  // are those of all together.
  std::vector<StatusReport> members;
  std::string column;  // of a member
  std::string redis = "absent";
  std::string strategy;  // how live writes are answered, in one sentence
};

// One JSON object, keys as in docs/cli.md; stable.
std::string to_json(const StatusReport& report);

}  // namespace crossfade

// What `plan` answers: what would be moved, what stands in the way, and every statement of every phase.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crossfade/core/finding.hpp"
#include "crossfade/core/phase.hpp"

namespace crossfade {

// A statement of a phase with what it locks.
struct PlannedStatement {
  Phase phase;
  std::string step;  // start, enter, work, rollback or recapture
  std::string what;  // in a few words
  std::string sql;   // several when they are one transaction; parameters as $1, …
  std::string lock;
  std::string blocks;     // nothing, rows (writers of the rows in hand) or table (its readers and writers)
  bool may_wait = false;  // for a lock that writers hold
};

struct PlanReport {
  std::string name, table, mode, key;
  std::string forward, backward;  // deparsed; backward empty when there is none
  bool one_way = false;
  std::vector<Finding> findings;     // all of them
  std::vector<Finding> refusals;     // those that stop `start`
  std::vector<std::string> carried;  // the ledger, in words
  // The columns that follow it (follow_foreign_keys), each with its own key and ledger.
  struct Member {
    std::string table, column, key, forward;
    std::vector<std::string> carried;
  };
  std::vector<Member> members;
  std::vector<std::pair<std::string, std::string>> hooks;  // before_<phase> or after_<phase>, command
  std::vector<PlannedStatement> statements;
  bool initialized = true;     // schema crossfade is there
  std::optional<Phase> phase;  // of the open migration, when the spec was started already
};
std::string to_json(const PlanReport& report);

}  // namespace crossfade

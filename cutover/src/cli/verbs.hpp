// The verbs: what each is given, and what runs it. The answer is printed; the result is the exit status.
// Expected refusals and failures are thrown as Error.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "acceptance.hpp"
#include "command.hpp"

namespace crossfade::cli {

struct InitArguments {
  bool remove = false;
  bool yes = false;  // confirms remove
};
int run_init(const Command& command, const InitArguments& arguments);
int run_adopt(const Command& command);

struct PlanArguments {
  std::string spec;  // a path
  bool sql = false;
  AcceptArguments accept;
};
// Exit status 3 when a refusal is left that --accept does not cover.
int run_plan(const Command& command, const PlanArguments& arguments);

struct StartArguments {
  std::string spec;
  AcceptArguments accept;
};
int run_start(const Command& command, const StartArguments& arguments);

inline constexpr const char* kWaitEndlessly = "endless";
struct NextArguments {
  std::string name, until, confirm;
  std::string wait;  // a duration; kWaitEndlessly: --wait alone; empty: not given
  AcceptArguments accept;
};
int run_next(const Command& command, const NextArguments& arguments);

struct RollbackArguments {
  std::string name, to;
  AcceptArguments accept;
};
int run_rollback(const Command& command, const RollbackArguments& arguments);

struct StatusArguments {
  std::string name;  // empty: every open migration
  bool watch = false;
};
int run_status(const Command& command, const StatusArguments& arguments);
int run_list(const Command& command);

struct NameArguments {
  std::string name;
};
int run_history(const Command& command, const NameArguments& arguments);
int run_misfits(const Command& command, const NameArguments& arguments);
int run_recapture(const Command& command, const NameArguments& arguments);
int run_resume(const Command& command, const NameArguments& arguments);

struct PauseArguments {
  std::string name, reason;
};
int run_pause(const Command& command, const PauseArguments& arguments);

struct TuneArguments {
  std::string name;
  std::vector<std::string> settings;  // KEY=VALUE; none: show them
};
int run_tune(const Command& command, const TuneArguments& arguments);

struct CompareArguments {
  std::string name;
  bool all = false;
};
// Exit status 4 when rows differ.
int run_compare(const Command& command, const CompareArguments& arguments);

struct DiffsArguments {
  std::string name;
  bool repair = false, show_values = false;
};
int run_diffs(const Command& command, const DiffsArguments& arguments);

struct RejectsArguments {
  std::string name;
  bool retry = false, show_values = false;
};
int run_rejects(const Command& command, const RejectsArguments& arguments);

struct WorkArguments {
  std::string name;
  int workers = 0;
};
int run_work(const Command& command, const WorkArguments& arguments);

struct RedriveArguments {
  std::string name;
  std::optional<int> unit;
  bool all = false;
  std::optional<std::string> from, to;
};
int run_redrive(const Command& command, const RedriveArguments& arguments);

int run_findings(const Command& command);

enum class MachineForm { text, dot, mermaid, markdown };
int run_machine(const Command& command, MachineForm form);

}  // namespace crossfade::cli

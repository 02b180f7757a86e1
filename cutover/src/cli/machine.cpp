// machine: the transition table.
#include <cstdlib>

#include "crossfade/cutover/machine.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

std::string rendering(MachineForm form) {
  switch (form) {
    case MachineForm::text:
      return machine_text();
    case MachineForm::dot:
      return machine_dot();
    case MachineForm::mermaid:
      return machine_mermaid();
    case MachineForm::markdown:
      return machine_markdown();
  }
  std::abort();
}

}  // namespace

int run_machine(const Command& command, MachineForm form) {
  if (!command.output.json()) {
    command.output.print(rendering(form));
    return 0;
  }
  Json rows = Json::array();
  for (const TransitionRow& row : transition_table()) {
    rows.push_back({{"from", to_text(row.from)},
                    {"event", to_text(row.event)},
                    {"to", row.to ? Json(to_text(*row.to)) : Json()},
                    {"guard", text_or_null(row.guard)},
                    {"action", text_or_null(row.action)}});
  }
  command.output.object({{"transitions", rows}});
  return 0;
}

}  // namespace crossfade::cli

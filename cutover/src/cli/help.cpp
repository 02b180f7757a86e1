#include "help.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "crossfade/cutover/machine.hpp"

namespace crossfade::cli {

namespace {

struct VerbHelp {
  std::string_view verb, examples, more;
};

constexpr std::string_view kAccepting =
    "--accept overrides one finding and takes one --reason; both are kept in the history.\n"
    "crossfade findings tells which findings may be accepted.\n";

constexpr VerbHelp kHelp[] = {
    {"init", "  crossfade init\n  crossfade init --remove --yes\n",
     "The schema crossfade lies in the migrated database, so that state and effect commit together.\n"},
    {"adopt", "  crossfade adopt\n",
     "Needed once after a restore, a clone or a failover; until then only status works.\n"},
    {"plan",
     "  crossfade plan spec.toml\n  crossfade plan spec.toml --sql\n  crossfade plan spec.toml --json | jq "
     ".refusals\n",
     "Ends with status 3 when start would refuse.\n"},
    {"start",
     "  crossfade start spec.toml\n"
     "  crossfade start spec.toml --accept foreign_dependents --reason \"views are ours\"\n",
     kAccepting},
    {"next",
     "  crossfade next accounts_balance_bigint\n"
     "  crossfade next accounts_balance_bigint --until switched\n"
     "  crossfade next accounts_balance_bigint --until switched --wait=2h\n"
     "  crossfade next accounts_balance_bigint --confirm accounts_balance_bigint\n",
     kAccepting},
    {"rollback",
     "  crossfade rollback accounts_balance_bigint\n"
     "  crossfade rollback accounts_balance_bigint --to rolled_back\n",
     kAccepting},
    {"status",
     "  crossfade status\n  crossfade status accounts_balance_bigint --watch\n"
     "  crossfade status accounts_balance_bigint --json | jq -r .phase\n",
     "Without NAME: every open migration.\n"},
    {"list", "  crossfade list\n  crossfade list --json | jq -r '.[].id'\n", ""},
    {"history", "  crossfade history accounts_balance_bigint\n", ""},
    {"pause", "  crossfade pause accounts_balance_bigint --reason \"month-end closing\"\n",
     "The runner stops after its chunk and waits; triggers keep both sides in step. Where the work is done\n"
     "already, next does not enter the next phase until resume. A phase change that waits (next --wait, "
     "lock\n"
     "attempts) is cancelled.\n"},
    {"resume", "  crossfade resume accounts_balance_bigint\n", ""},
    {"tune",
     "  crossfade tune accounts_balance_bigint\n"
     "  crossfade tune accounts_balance_bigint rows_per_second=2000 workers=4\n",
     "Without KEY=VALUE: all keys. In force within two seconds, within one with Redis.\n"},
    {"work",
     "  crossfade work accounts_balance_bigint\n  crossfade work accounts_balance_bigint --workers 8\n",
     "Takes units of the sweep that another host's next runs, and waits while nobody runs it. Ends with\n"
     "status 0 when the phase has nothing to sweep any more. Kill it whenever you like.\n"},
    {"compare", "  crossfade compare accounts_balance_bigint\n  crossfade compare --all\n",
     "Ends with status 4 when rows differ.\n"},
    {"diffs",
     "  crossfade diffs accounts_balance_bigint\n  crossfade diffs accounts_balance_bigint --show-values\n"
     "  crossfade diffs accounts_balance_bigint --repair\n",
     "A repaired row counts as verified only after another full comparison.\n"},
    {"rejects",
     "  crossfade rejects accounts_balance_bigint --show-values\n"
     "  crossfade rejects accounts_balance_bigint --retry\n",
     "Correct the rows in the table, then --retry.\n"},
    {"misfits", "  crossfade misfits accounts_balance_bigint\n", ""},
    {"redrive",
     "  crossfade redrive accounts_balance_bigint --unit 7\n"
     "  crossfade redrive accounts_balance_bigint --from 1000 --to 2000\n"
     "  crossfade redrive accounts_balance_bigint --all\n",
     "Writes the rows that differ and no others; comparisons are void. --from and --to are included.\n"},
    {"recapture", "  crossfade recapture accounts_balance_bigint\n",
     "After somebody changed a trigger or function of the capture; sweeps and compares again.\n"},
    {"findings", "  crossfade findings\n", ""},
    {"machine", "  crossfade machine\n  crossfade machine --dot | dot -Tsvg >machine.svg\n", ""},
    {"completion",
     "  source <(crossfade completion bash)\n"
     "  crossfade completion zsh >\"${fpath[1]}/_crossfade\"\n"
     "  crossfade completion fish >~/.config/fish/completions/crossfade.fish\n",
     ""},
};

constexpr std::string_view kGate =
    "The gate is what has to be true for that change, docs/phases.md has it phase by phase; crossfade "
    "status\n"
    "shows what is missing for it now.\n";

// "  planned    -> dry_run      when settled and gate"
std::string legal_changes(Event event) {
  std::string text;
  for (const TransitionRow& row : transition_table()) {
    if (row.event != event || !row.to) continue;
    text += fmt::format("  {:<10} -> {:<11} when {}\n", to_text(row.from), to_text(*row.to), row.guard);
  }
  return text;
}

}  // namespace

std::string main_footer() {
  return "Examples:\n"
         "  export CROSSFADE_DSN='host=/run/postgresql dbname=app'\n"
         "  crossfade init && crossfade plan spec.toml && crossfade start spec.toml\n"
         "  crossfade next accounts_balance_bigint --until switched\n"
         "\n"
         "The connection comes from --dsn, else CROSSFADE_DSN, else from libpq's own environment, service "
         "and\n"
         "password file. A password in it is refused: other users of the host could see it.\n"
         "\n"
         "Exit status: 0 done, 2 usage or spec, 3 refused or not yet, 4 failed, 5 server unavailable,\n"
         "6 busy or superseded, 7 outcome unknown, 130 interrupted.\n";
}

std::string verb_footer(std::string_view verb) {
  const auto* help = std::ranges::find(kHelp, verb, &VerbHelp::verb);
  if (help == std::end(kHelp)) std::abort();
  std::string text = fmt::format("Examples:\n{}", help->examples);
  if (verb == "next") text += fmt::format("\nWhere it leads:\n{}{}", legal_changes(Event::advance), kGate);
  if (verb == "rollback")
    text += fmt::format("\nWhere it leads:\n{}{}", legal_changes(Event::rollback), kGate);
  if (verb == "machine") text += fmt::format("\n{}", kGate);
  if (!help->more.empty()) text += fmt::format("\n{}", help->more);
  text +=
      "\nOptions of every verb: --dsn, --redis, --json, -v, -q, --log-file, --operator, --id and others;\n"
      "see crossfade --help.\n";
  return text;
}

}  // namespace crossfade::cli

#include "app.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "completion.hpp"
#include "crossfade/core/failpoint.hpp"
#include "crossfade/core/state_schema.hpp"
#include "crossfade/core/tuning.hpp"
#include "help.hpp"
#include "verbs.hpp"

namespace crossfade::cli {

namespace {

using Run = std::function<int(const Command&)>;

// Where the parser writes. Outlives the parser: the chosen action holds it.
struct Arguments {
  Globals globals;
  bool list_failpoints = false;
  InitArguments init;
  PlanArguments plan;
  StartArguments start;
  NextArguments next;
  RollbackArguments rollback;
  StatusArguments status;
  NameArguments name;  // of all verbs that take nothing else
  PauseArguments pause;
  TuneArguments tune;
  CompareArguments compare;
  DiffsArguments diffs;
  RejectsArguments rejects;
  RedriveArguments redrive;
  WorkArguments work;
  bool dot = false, mermaid = false, markdown = false;
  std::string shell;
};

class Parser {
 public:
  Parser();
  Invocation parse(std::vector<std::string> words);

 private:
  CLI::App* add_verb(const std::string& name, const std::string& group, const std::string& description,
                     Run run);
  CLI::App* add_named_verb(const std::string& name, const std::string& group, const std::string& description,
                           std::string& target, Run run);
  void add_accept(CLI::App* verb, AcceptArguments& target);
  void add_globals();
  void add_setup_verbs();
  void add_moving_verbs();
  void add_watching_verbs();
  void add_steering_verbs();
  void add_checking_verbs();
  void add_reference_verbs();
  CommandModel model() const;
  Error usage_error_of(const CLI::ParseError& failure) const;
  Error unexpected(const std::vector<std::string>& words) const;

  std::shared_ptr<Arguments> args_ = std::make_shared<Arguments>();
  CLI::App app_{"Moves a column of a live PostgreSQL table to a new form, reversibly.", "crossfade"};
  Run run_;
};

Parser::Parser() {
  app_.fallthrough();
  // Whether a verb is missing is told below, in our words; more than one is never taken.
  app_.require_subcommand(0, 1);
  app_.get_formatter()->column_width(28);
  app_.get_formatter()->label("SUBCOMMAND", "VERB");
  app_.footer(main_footer());
  app_.set_version_flag("--version", "crossfade " + crossfade_version(), "Print the version");
  add_globals();
  add_setup_verbs();
  add_moving_verbs();
  add_watching_verbs();
  add_steering_verbs();
  add_checking_verbs();
  add_reference_verbs();
}

void Parser::add_globals() {
  Globals& globals = args_->globals;
  app_.add_option("--dsn", globals.dsn,
                  "libpq connection string or URI, without a password [env CROSSFADE_DSN]")
      ->type_name("TEXT");
  app_.add_option("--redis", globals.redis, "redis://HOST[:PORT][/DB] or unix:///PATH [env CROSSFADE_REDIS]")
      ->type_name("URL");
  app_.add_option("--read-dsn", globals.read_dsn,
                  "A standby on which dry run and comparison read [env CROSSFADE_READ_DSN]")
      ->type_name("TEXT");
  app_.add_flag("--json", globals.json, "Answer in JSON on stdout, errors too");
  app_.add_flag("-v,--verbose", globals.verbosity, "Log what is done; -vv more");
  app_.add_flag("-q,--quiet", globals.quiet, "No progress, no notices");
  app_.add_option("--log-file", globals.log_file, "Append the log to a file instead of stderr")
      ->type_name("FILE");
  app_.add_option("--operator", globals.operator_name, "Who acts, for the history [the login]")
      ->type_name("NAME");
  app_.add_option("--id", globals.id, "The migration with this id instead of the newest of its name")
      ->type_name("UUID");
  app_.add_flag("--cancel-blockers", globals.cancel_blockers,
                "Cancel statements that stand in the way of a lock");
  app_.add_flag("--terminate-blockers", globals.terminate_blockers,
                "End sessions that stand in the way of a lock");
  app_.add_flag("--list-failpoints", args_->list_failpoints)->group("");
}

CLI::App* Parser::add_verb(const std::string& name, const std::string& group, const std::string& description,
                           Run run) {
  CLI::App* verb = app_.add_subcommand(name, description);
  verb->group(group);
  verb->footer(verb_footer(name));
  verb->callback([this, run = std::move(run)] { run_ = run; });
  return verb;
}

CLI::App* Parser::add_named_verb(const std::string& name, const std::string& group,
                                 const std::string& description, std::string& target, Run run) {
  CLI::App* verb = add_verb(name, group, description, std::move(run));
  verb->add_option("NAME", target, "Name of the migration")->type_name("")->required();
  return verb;
}

void Parser::add_accept(CLI::App* verb, AcceptArguments& target) {
  verb->add_option("--accept", target.ids, "Override this finding; each takes one --reason")
      ->type_name("ID")
      ->allow_extra_args(false);
  verb->add_option("--reason", target.reasons, "Why, for the history")
      ->type_name("TEXT")
      ->allow_extra_args(false);
}

void Parser::add_setup_verbs() {
  const std::string group = "Set up";
  CLI::App* init = add_verb("init", group, "Create or upgrade the schema crossfade",
                            [a = args_](const Command& c) { return run_init(c, a->init); });
  init->add_flag("--remove", args_->init.remove, "Drop the schema; refused while a migration is open");
  init->add_flag("--yes", args_->init.yes, "Remove it without asking");
  add_verb("adopt", group, "Accept state that moved with a restored or cloned database",
           [](const Command& c) { return run_adopt(c); });
}

void Parser::add_moving_verbs() {
  const std::string group = "Move";
  CLI::App* plan =
      add_verb("plan", group, "Show findings, what is carried, and every statement; changes nothing",
               [a = args_](const Command& c) { return run_plan(c, a->plan); });
  plan->add_option("SPEC", args_->plan.spec, "Spec file (TOML)")->type_name("")->required();
  plan->add_flag("--sql", args_->plan.sql, "Every statement with the lock it takes");
  add_accept(plan, args_->plan.accept);

  CLI::App* start = add_verb("start", group, "Register a migration: phase planned",
                             [a = args_](const Command& c) { return run_start(c, a->start); });
  start->add_option("SPEC", args_->start.spec, "Spec file (TOML)")->type_name("")->required();
  add_accept(start, args_->start.accept);

  CLI::App* next =
      add_named_verb("next", group, "Continue this phase, or enter the next one", args_->next.name,
                     [a = args_](const Command& c) { return run_next(c, a->next); });
  next->add_option("--until", args_->next.until, "Go on until this phase is settled")->type_name("PHASE");
  next->add_option("--confirm", args_->next.confirm, "Confirm by name what cannot be undone: dropped")
      ->type_name("NAME");
  next->add_flag(fmt::format("--wait{{{}}}", kWaitEndlessly), args_->next.wait,
                 "Wait, or wait at most so long (--wait=2h), for what time alone brings");
  add_accept(next, args_->next.accept);

  CLI::App* rollback =
      add_named_verb("rollback", group, "Go back one phase, or to an earlier one", args_->rollback.name,
                     [a = args_](const Command& c) { return run_rollback(c, a->rollback); });
  rollback->add_option("--to", args_->rollback.to, "Go back to this phase")->type_name("PHASE");
  add_accept(rollback, args_->rollback.accept);
}

void Parser::add_watching_verbs() {
  const std::string group = "Watch";
  CLI::App* status = add_verb("status", group, "Where it is, what it waits for, how to go on and back",
                              [a = args_](const Command& c) { return run_status(c, a->status); });
  status->add_option("NAME", args_->status.name, "Name of the migration; every open one without it")
      ->type_name("");
  status->add_flag("--watch", args_->status.watch, "Again every two seconds, until interrupted");
  add_verb("list", group, "Every migration of the database", [](const Command& c) { return run_list(c); });
  add_named_verb("history", group, "Every phase change and operator's act with who and when",
                 args_->name.name, [a = args_](const Command& c) { return run_history(c, a->name); });
}

void Parser::add_steering_verbs() {
  const std::string group = "Steer";
  CLI::App* pause = add_named_verb("pause", group, "Hold the work after the current chunk", args_->pause.name,
                                   [a = args_](const Command& c) { return run_pause(c, a->pause); });
  pause->add_option("--reason", args_->pause.reason, "Why; status shows it")->type_name("TEXT");
  add_named_verb("resume", group, "Let the work go on", args_->name.name,
                 [a = args_](const Command& c) { return run_resume(c, a->name); });
  CLI::App* tune = add_named_verb("tune", group, "Change how it runs, at any time", args_->tune.name,
                                  [a = args_](const Command& c) { return run_tune(c, a->tune); });
  tune->add_option("KEY=VALUE", args_->tune.settings, "Settings; all are taken or none")->type_name("");
  CLI::App* work = add_named_verb("work", group, "One more worker process, on any host", args_->work.name,
                                  [a = args_](const Command& c) { return run_work(c, a->work); });
  work->add_option("--workers", args_->work.workers, "Threads of this process [the tuning key workers]")
      ->type_name("N")
      ->check(CLI::Range(1, 64));
}

void Parser::add_checking_verbs() {
  const std::string group = "Check and mend";
  CLI::App* compare = add_verb("compare", group, "Run a full comparison now",
                               [a = args_](const Command& c) { return run_compare(c, a->compare); });
  compare->add_option("NAME", args_->compare.name, "Name of the migration")->type_name("");
  compare->add_flag("--all", args_->compare.all, "Every migration in compare or switched");

  CLI::App* diffs =
      add_named_verb("diffs", group, "Rows that the newest comparison found to differ", args_->diffs.name,
                     [a = args_](const Command& c) { return run_diffs(c, a->diffs); });
  diffs->add_flag("--repair", args_->diffs.repair, "Write the rows that differ");
  diffs->add_flag("--show-values", args_->diffs.show_values, "Both values instead of their hashes");

  CLI::App* rejects =
      add_named_verb("rejects", group, "Rows whose forward expression fails", args_->rejects.name,
                     [a = args_](const Command& c) { return run_rejects(c, a->rejects); });
  rejects->add_flag("--retry", args_->rejects.retry, "Look at them again and write those that are fine now");
  rejects->add_flag("--show-values", args_->rejects.show_values, "The messages too, which quote values");

  add_named_verb("misfits", group, "Live values that the other side cannot hold", args_->name.name,
                 [a = args_](const Command& c) { return run_misfits(c, a->name); });
  CLI::App* redrive = add_named_verb("redrive", group, "Sweep units again", args_->redrive.name,
                                     [a = args_](const Command& c) { return run_redrive(c, a->redrive); });
  redrive->add_option("--unit", args_->redrive.unit, "Number of the unit")->type_name("N");
  redrive->add_flag("--all", args_->redrive.all, "All units");
  redrive->add_option("--from", args_->redrive.from, "Keys from this one on")->type_name("KEY");
  redrive->add_option("--to", args_->redrive.to, "Keys up to this one")->type_name("KEY");
  add_named_verb("recapture", group, "Create the capture anew after a foreign change", args_->name.name,
                 [a = args_](const Command& c) { return run_recapture(c, a->name); });
}

MachineForm form_of(const Arguments& arguments) {
  if (arguments.dot) return MachineForm::dot;
  if (arguments.mermaid) return MachineForm::mermaid;
  return arguments.markdown ? MachineForm::markdown : MachineForm::text;
}

int run_completion(const Command& command, const CommandModel& model, const std::string& text) {
  const auto shell = shell_from_text(text);
  if (!shell) {
    throw Error(ErrorCode::usage_error, "completion takes bash, zsh or fish.",
                "crossfade completion --help shows where it goes.");
  }
  const std::string script = completion_script(model, *shell);
  if (command.output.json()) {
    command.output.object({{"shell", text}, {"script", script}});
  } else {
    command.output.print(script);
  }
  return 0;
}

void Parser::add_reference_verbs() {
  const std::string group = "Look up";
  add_verb("findings", group, "All finding ids with their meaning",
           [](const Command& c) { return run_findings(c); });
  CLI::App* machine = add_verb("machine", group, "The transition table",
                               [a = args_](const Command& c) { return run_machine(c, form_of(*a)); });
  auto* dot = machine->add_flag("--dot", args_->dot, "For Graphviz");
  auto* mermaid = machine->add_flag("--mermaid", args_->mermaid, "For Mermaid")->excludes(dot);
  machine->add_flag("--markdown", args_->markdown, "As a table of Markdown")
      ->excludes(dot)
      ->excludes(mermaid);
  CLI::App* completion =
      add_verb("completion", group, "Print a completion script", [](const Command&) { return 0; });
  completion->add_option("SHELL", args_->shell, "bash, zsh or fish")->type_name("")->required();
  completion->callback([this] {
    run_ = [a = args_, copy = model()](const Command& c) { return run_completion(c, copy, a->shell); };
  });
}

std::vector<OptionModel> options_of(const CLI::App& app) {
  std::vector<OptionModel> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_group().empty()) continue;
    OptionModel& model = options.emplace_back();
    for (const std::string& name : option->get_snames()) model.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) model.names.push_back("--" + name);
    model.description = option->get_description();
    model.takes_value = option->get_items_expected_max() > 0;
  }
  return options;
}

CommandModel Parser::model() const {
  CommandModel model{options_of(app_), {}};
  for (const CLI::App* verb : app_.get_subcommands(nullptr)) {
    VerbModel& entry = model.verbs.emplace_back();
    entry.name = verb->get_name();
    entry.description = verb->get_description();
    entry.options = options_of(*verb);
    // --help belongs to every verb and is among the options of the command.
    std::erase_if(entry.options, [](const OptionModel& option) { return option.names.back() == "--help"; });
    entry.takes_file = verb->get_option_no_throw("SPEC") != nullptr;
    if (entry.name == "completion") entry.words = {"bash", "zsh", "fish"};
    if (entry.name == "tune") {
      for (const TuningKey& key : tuning_keys()) entry.words.push_back(std::string(key.name) + "=");
    }
  }
  return model;
}

// A word of the command line that can be no piece of a connection string.
bool may_be_repeated(const std::string& word) {
  constexpr std::size_t kLongest = 40;
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !word.empty() && word.size() <= kLongest && std::ranges::all_of(word, harmless);
}

// Among equally near ones: with the same first letter, then of the same length.
std::string suggestion_for(const std::string& word, std::vector<std::string> known) {
  constexpr std::size_t kShortest = 3;
  const std::size_t first = word.find_first_not_of('-');
  if (!may_be_repeated(word) || first == std::string::npos || word.size() - first < kShortest) return {};
  const auto apart = [&](const std::string& other) {
    const std::size_t lengths = std::max(word.size(), other.size()) - std::min(word.size(), other.size());
    const bool same_start = first < other.size() && other[first] == word[first];
    return std::pair(!same_start, lengths);
  };
  std::ranges::stable_sort(known, {}, apart);
  const std::vector<std::string_view> views(known.begin(), known.end());
  const auto found = nearest(word, views);
  return found ? fmt::format("Did you mean \"{}\"?", *found) : std::string();
}

Error Parser::unexpected(const std::vector<std::string>& words) const {
  const CommandModel model = this->model();
  const auto chosen = app_.get_subcommands();
  std::string word = words.empty() ? std::string() : words.front();
  word = word.substr(0, word.find('='));
  const std::string shown = may_be_repeated(word) ? fmt::format(" \"{}\"", word) : std::string();
  std::string hint = chosen.empty()
                         ? "crossfade --help lists the verbs."
                         : fmt::format("crossfade {} --help shows what it takes.", chosen[0]->get_name());
  const auto say = [&](const std::string& message, const std::vector<std::string>& known) {
    if (const std::string suggestion = suggestion_for(word, known); !suggestion.empty()) hint = suggestion;
    return Error(ErrorCode::usage_error, message, hint);
  };
  std::vector<std::string> known;
  if (word.starts_with("-")) {
    const auto add = [&](const std::vector<OptionModel>& options) {
      for (const OptionModel& option : options)
        known.insert(known.end(), option.names.begin(), option.names.end());
    };
    add(model.options);
    if (!chosen.empty()) add(options_of(*chosen[0]));
    return say(fmt::format("There is no option{} here.", shown.empty() ? " of that form" : shown), known);
  }
  if (!chosen.empty()) return say(fmt::format("There is an argument{} too many.", shown), {});
  for (const VerbModel& verb : model.verbs) known.push_back(verb.name);
  return say(fmt::format("There is no verb{}.", shown.empty() ? " of that form" : shown), known);
}

// CLI11 repeats values in some of its messages: only those that cannot are passed on.
Error Parser::usage_error_of(const CLI::ParseError& failure) const {
  if (dynamic_cast<const CLI::ExtrasError*>(&failure) != nullptr) return unexpected(app_.remaining(true));
  const auto chosen = app_.get_subcommands();
  const std::string help =
      chosen.empty() ? "crossfade --help lists options and verbs."
                     : fmt::format("crossfade {} --help shows what it takes.", chosen[0]->get_name());
  const bool is_quotable = dynamic_cast<const CLI::RequiredError*>(&failure) != nullptr ||
                           dynamic_cast<const CLI::ArgumentMismatch*>(&failure) != nullptr ||
                           dynamic_cast<const CLI::ExcludesError*>(&failure) != nullptr;
  if (is_quotable) return {ErrorCode::usage_error, fmt::format("{}.", failure.what()), help};
  return {ErrorCode::usage_error, "An option has a value that it cannot take.", help};
}

int print_text(const Command& command, const std::string& text) {
  command.output.print(text);
  return 0;
}

int list_failpoints(const Command& command) {
  if (command.output.json()) {
    command.output.object({{"failpoints", failpoint::all()}});
    return 0;
  }
  for (const std::string& name : failpoint::all()) command.output.print(name + "\n");
  return 0;
}

int print_version(const Command& command) {
  if (!command.output.json()) return print_text(command, fmt::format("crossfade {}\n", crossfade_version()));
  command.output.object({{"version", crossfade_version()}});
  return 0;
}

std::string or_environment(const std::string& given, const char* variable) {
  const char* value = std::getenv(variable);
  return given.empty() && value != nullptr ? value : given;
}

Invocation Parser::parse(std::vector<std::string> words) {
  // What other programs understand: help, help VERB.
  if (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::ranges::reverse(words);  // as CLI11 wants them
  try {
    app_.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return {args_->globals, [text = app_.help()](const Command& c) { return print_text(c, text); }};
  } catch (const CLI::CallForVersion&) {
    return {args_->globals, print_version};
  } catch (const CLI::ParseError& failure) {
    throw usage_error_of(failure);
  }
  Globals globals = args_->globals;
  globals.dsn = or_environment(globals.dsn, "CROSSFADE_DSN");
  globals.read_dsn = or_environment(globals.read_dsn, "CROSSFADE_READ_DSN");
  globals.redis = or_environment(globals.redis, "CROSSFADE_REDIS");
  if (args_->list_failpoints) return {globals, list_failpoints};
  if (!run_) {
    throw Error(ErrorCode::usage_error, "A verb is missing.", "crossfade --help lists the verbs.");
  }
  return {globals, run_};
}

}  // namespace

Invocation parse(const std::vector<std::string>& arguments) { return Parser().parse(arguments); }

}  // namespace crossfade::cli

#include "completion.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossfade/core/finding.hpp"
#include "crossfade/cutover/machine.hpp"
#include "phase_argument.hpp"

namespace crossfade::cli {

namespace {

// What the value of an option may be; empty: anything, or a file for --log-file.
std::vector<std::string> values_of(std::string_view option) {
  std::vector<std::string> values;
  if (option == "--accept") {
    for (const FindingInfo& finding : finding_table()) {
      if (finding.acceptable) values.emplace_back(finding.id);
    }
  }
  if (option == "--until") {
    for (const std::string_view phase : phases_of(Event::advance)) values.emplace_back(phase);
  }
  if (option == "--to") {
    for (const std::string_view phase : phases_of(Event::rollback)) values.emplace_back(phase);
  }
  return values;
}

std::string words_of(const std::vector<OptionModel>& options) {
  std::string words;
  for (const OptionModel& option : options) words += fmt::format(" {}", fmt::join(option.names, " "));
  return words;
}

// Single quotes hold everything but themselves, in each of the three shells.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string bash_script(const CommandModel& model) {
  std::string verbs, cases, values, consumers;
  for (const VerbModel& verb : model.verbs) {
    verbs += fmt::format(" {}", verb.name);
    cases += fmt::format("    {}) words={} files={} ;;\n", verb.name,
                         quoted(fmt::format("{} {}", fmt::join(verb.words, " "), words_of(verb.options))),
                         verb.takes_file ? "yes" : "no");
  }
  const auto add_values = [&](const OptionModel& option) {
    if (!option.takes_value) return;
    for (const std::string& name : option.names) {
      const auto known = values_of(name);
      if (!known.empty()) {
        values += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$word\")); return ;;\n", name,
                              quoted(fmt::format("{}", fmt::join(known, " "))));
      } else if (name == "--log-file") {
        values += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", name);
      } else {
        values += fmt::format("    {}) return ;;\n", name);
      }
      consumers += fmt::format("{}{}", consumers.empty() ? "" : "|", name);
    }
  };
  for (const OptionModel& option : model.options) add_values(option);
  std::vector<std::string> seen;
  for (const VerbModel& verb : model.verbs) {
    for (const OptionModel& option : verb.options) {
      if (std::find(seen.begin(), seen.end(), option.names.front()) != seen.end()) continue;
      seen.push_back(option.names.front());
      add_values(option);
    }
  }
  return fmt::format(
      "# bash completion of crossfade: source <(crossfade completion bash)\n"
      "_crossfade() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} verb='' files=no "
      "words='' i\n"
      "  COMPREPLY=()\n"
      "  case $previous in\n{0}  esac\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${{COMP_WORDS[i]}} in\n"
      "      {1}) ((i++)) ;;\n"
      "      -*) ;;\n"
      "      *) verb=${{COMP_WORDS[i]}}; break ;;\n"
      "    esac\n"
      "  done\n"
      "  case $verb in\n"
      "    '') words={2} ;;\n{3}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words{4}\" -- \"$word\"))\n"
      "  if [[ $files == yes && $word != -* ]]; then COMPREPLY+=($(compgen -f -- \"$word\")); fi\n"
      "}}\n"
      "complete -o filenames -F _crossfade crossfade\n",
      values, consumers, quoted(verbs), cases, words_of(model.options));
}

// In a specification of _arguments, brackets and colons have a meaning.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_options(const std::vector<OptionModel>& options, std::string_view indent) {
  std::string text;
  for (const OptionModel& option : options) {
    for (const std::string& name : option.names) {
      std::string specification = fmt::format("*{}[{}]", name, zsh_text(option.description));
      if (option.takes_value) {
        const auto known = values_of(name);
        specification += known.empty() ? (name == "--log-file" ? ":file:_files" : ":value: ")
                                       : fmt::format(":value:({})", fmt::join(known, " "));
      }
      text += fmt::format(" \\\n{}{}", indent, quoted(specification));
    }
  }
  return text;
}

std::string zsh_script(const CommandModel& model) {
  std::string verbs, cases;
  for (const VerbModel& verb : model.verbs) {
    verbs += fmt::format("      {}\n", quoted(fmt::format("{}:{}", verb.name, verb.description)));
    std::string positional;
    if (verb.takes_file) positional = " '1:spec:_files'";
    if (!verb.words.empty()) positional = fmt::format(" '1:word:({})'", fmt::join(verb.words, " "));
    cases += fmt::format("    {})\n      _arguments{}{}{}\n      ;;\n", verb.name, positional,
                         zsh_options(verb.options, "        "), zsh_options(model.options, "        "));
  }
  return fmt::format(
      "#compdef crossfade\n"
      "# zsh completion of crossfade: crossfade completion zsh >\"${{fpath[1]}}/_crossfade\"\n"
      "_crossfade() {{\n"
      "  local -a verbs\n"
      "  local state line\n"
      "  _arguments -C{}\\\n    '1:verb:->verb' '*::argument:->argument'\n"
      "  case $state in\n"
      "  verb)\n"
      "    verbs=(\n{}    )\n"
      "    _describe verb verbs\n"
      "    ;;\n"
      "  argument)\n"
      "    case $line[1] in\n{}    esac\n"
      "    ;;\n"
      "  esac\n"
      "}}\n"
      "if [[ $funcstack[1] == _crossfade ]]; then _crossfade \"$@\"; else compdef _crossfade crossfade; fi\n",
      zsh_options(model.options, "    ") + " ", verbs, cases);
}

std::string fish_options(const std::vector<OptionModel>& options, std::string_view condition) {
  std::string text;
  for (const OptionModel& option : options) {
    text += fmt::format("complete -c crossfade -n {}", quoted(condition));
    for (const std::string& name : option.names) {
      text += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                     : fmt::format(" -s {}", name.substr(1));
    }
    if (option.takes_value) {
      const auto known = values_of(option.names.back());
      if (!known.empty()) {
        text += fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(known, " "))));
      } else {
        text += option.names.back() == "--log-file" ? " -r -F" : " -x";
      }
    }
    text += fmt::format(" -d {}\n", quoted(option.description));
  }
  return text;
}

std::string fish_script(const CommandModel& model) {
  std::string text =
      "# fish completion of crossfade: crossfade completion fish >~/.config/fish/completions/crossfade.fish\n"
      "complete -c crossfade -f\n";
  for (const VerbModel& verb : model.verbs) {
    text += fmt::format("complete -c crossfade -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                        quoted(verb.description));
  }
  text += fish_options(model.options, "true");
  for (const VerbModel& verb : model.verbs) {
    const std::string condition = fmt::format("__fish_seen_subcommand_from {}", verb.name);
    if (verb.takes_file) text += fmt::format("complete -c crossfade -n {} -F\n", quoted(condition));
    if (!verb.words.empty()) {
      text += fmt::format("complete -c crossfade -n {} -a {}\n", quoted(condition),
                          quoted(fmt::format("{}", fmt::join(verb.words, " "))));
    }
    text += fish_options(verb.options, condition);
  }
  return text;
}

}  // namespace

std::optional<Shell> shell_from_text(std::string_view text) {
  if (text == "bash") return Shell::bash;
  if (text == "zsh") return Shell::zsh;
  if (text == "fish") return Shell::fish;
  return std::nullopt;
}

std::string completion_script(const CommandModel& model, Shell shell) {
  switch (shell) {
    case Shell::bash:
      return bash_script(model);
    case Shell::zsh:
      return zsh_script(model);
    case Shell::fish:
      return fish_script(model);
  }
  std::abort();
}

}  // namespace crossfade::cli

// Shell completion, generated from what the parser knows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crossfade::cli {

// A plain copy of the parser's model.
struct OptionModel {
  std::vector<std::string> names;  // with dashes
  std::string description;
  bool takes_value = false;
};
struct VerbModel {
  std::string name, description;
  std::vector<OptionModel> options;
  std::vector<std::string> words;  // what a positional argument may be, when that is a closed list
  bool takes_file = false;         // SPEC
};
struct CommandModel {
  std::vector<OptionModel> options;  // of every verb
  std::vector<VerbModel> verbs;
};

enum class Shell { bash, zsh, fish };
std::optional<Shell> shell_from_text(std::string_view text);
std::string completion_script(const CommandModel& model, Shell shell);

}  // namespace crossfade::cli

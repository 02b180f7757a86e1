#include <fmt/format.h>

#include "checks.hpp"

namespace crossfade::checks {

namespace {

class Refusals {
 public:
  explicit Refusals(const Context& context) : context_(context) {}
  void when(bool asked, const std::string& key, const std::string& what, const std::string& instead) const {
    if (!asked) return;
    context_.refuse("not_supported_yet", key,
                    fmt::format("The spec asks for {}, which this version cannot do.", what), instead);
  }

 private:
  const Context& context_;
};

}  // namespace

void not_supported_yet(const Context& context) {
  const auto& spec = context.spec;
  const Refusals refuse(context);
  refuse.when(spec.mode() == Mode::promote, "[[column]] into", "a column under a new name (promote)",
              "Leave out into: the column keeps its name.");
  refuse.when(spec.columns.size() > 1, "[[column]]", "several columns in one migration",
              "Migrate one column after the other.");
  refuse.when(spec.shadow == ShadowKind::table, "[shadow] kind", "a shadow table", "Use kind = \"column\".");
}

}  // namespace crossfade::checks

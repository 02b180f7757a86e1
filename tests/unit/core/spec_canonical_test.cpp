#include <gtest/gtest.h>

#include "crossfade/core/spec.hpp"

namespace crossfade {
namespace {

std::string canonical(std::string_view text) { return parse_spec(text, "spec.toml").canonical_text(); }

constexpr std::string_view kSpec = R"([migration]
name = "m"
table = "public.t"
[[column]]
name = "a"
type = "bigint"
[[column]]
name = "b"
type = "text"
forward = "b || 'ü\t\"x\"'"
[expect]
changed = "5%"
[drop]
soak = "24h"
[hooks]
after_compare = "one"
before_compare = "two"
)";

TEST(SpecCanonicalTest, LayoutOrderAndCommentsDoNotMatter) {
  constexpr std::string_view kOther = R"(# a comment
hooks = { before_compare = 'two', after_compare = 'one' }
drop.soak = "1d"
expect.changed = "5.0%..5%"  # the same
[[column]]
forward = "b || 'ü\u0009\"x\"'"
type = "text"
name = "B"
[[column]]
type = "bigint"
name = '"a"'
[switch]
attempts = 50
[migration]
table = 'PUBLIC . "t"'
name = "m"
)";
  EXPECT_EQ(canonical(kSpec), canonical(kOther));
}

TEST(SpecCanonicalTest, TuningDoesNotMatter) {
  EXPECT_EQ(canonical(kSpec), canonical(std::string(kSpec) + "[tuning]\nworkers = 9\n"));
}

TEST(SpecCanonicalTest, EverythingElseMatters) {
  const std::string base = canonical(kSpec);
  const std::pair<std::string, std::string> edits[] = {
      {"name = \"m\"", "name = \"n\""},
      {"public.t", "public.\\\"T\\\""},
      {"bigint", "integer"},
      {"5%", "6%"},
      {"24h", "25h"},
      {"\"one\"", "\"three\""},
      {"after_compare", "after_dropped"},
      {"[drop]", "[drop]\narchive = \"table\""},
      {"[drop]", "[switch]\nattempts = 49\n[drop]"},
      {"[drop]", "[switch]\nlock_timeout = \"1s\"\n[drop]"},
      {"[drop]", "[switch]\nmax_comparison_age = \"2h\"\n[drop]"},
      {"[drop]", "[switch]\nfollow_foreign_keys = true\n[drop]"},
      {"[drop]", "[switch]\ntrigger_probe = \"none\"\n[drop]"},
      {"[drop]", "[switch]\ntrigger_probe = \"update\"\n[drop]"},
      {"[drop]", "errors = 1\n[drop]"},
      {"[drop]", "lossy = 0\n[drop]"},
      {"type = \"text\"", "type = \"text\"\non_misfit = \"reject\""},
      {"[expect]", "backward = \"b\"\n[expect]"},
  };
  for (const auto& [from, to] : edits) {
    std::string text(kSpec);
    text.replace(text.find(from), from.size(), to);
    EXPECT_NE(canonical(text), base) << to;
  }
}

TEST(SpecCanonicalTest, NewNamesAndTheKindOfShadowMatter) {
  const std::string promote =
      "migration = {name = \"m\", table = \"public.t\"}\ncolumn = [{name = \"a\", type = \"text\", into = "
      "\"b\"}]\n";
  std::string other = promote;
  other.replace(other.find("\"b\""), 3, "\"c\"");
  EXPECT_NE(canonical(promote), canonical(other));
  EXPECT_NE(canonical(promote), canonical(promote + "shadow.kind = \"table\"\n"));
}

TEST(SpecCanonicalTest, TheCanonicalTextIsASpecWithTheSameCanonicalText) {
  EXPECT_EQ(canonical(canonical(kSpec)), canonical(kSpec));
}

TEST(SpecCanonicalTest, TheFormIsFixed) {
  EXPECT_EQ(canonical(kSpec), R"([migration]
name = "m"
table = "\"public\".\"t\""
[[column]]
name = "\"a\""
type = "bigint"
on_misfit = "null"
[[column]]
name = "\"b\""
type = "text"
forward = "b || 'ü\u0009\"x\"'"
on_misfit = "null"
[shadow]
kind = "column"
[expect]
changed = "5%..5%"
errors = "0..0"
[switch]
lock_timeout = "200ms"
attempts = 50
max_comparison_age = "1h"
follow_foreign_keys = false
[drop]
soak = "1d"
archive = "none"
[hooks]
after_compare = "one"
before_compare = "two"
)");
}

}  // namespace
}  // namespace crossfade

#include <random>

#include <gtest/gtest.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/spec.hpp"

namespace crossfade {
namespace {

constexpr std::string_view kSpec = R"([migration]
name  = "accounts_balance_bigint"
table = "public.pgbench_accounts"
[[column]]
name      = "abalance"
type      = "bigint"
forward   = 'abalance::bigint'
on_misfit = "null"
[expect]
changed = "0%..100%"
errors  = 0
[tuning]
workers = 2
chunk_target = "100ms"
[switch]
follow_foreign_keys = false
[hooks]
before_switched = """echo "hello" """
)";

// True when the text was a spec; anything but a spec or an Error with exit status 2 fails the test.
bool survives(const std::string& text) {
  try {
    const Spec spec = parse_spec(text, "fuzz.toml");
    const std::string canonical = spec.canonical_text();
    EXPECT_EQ(parse_spec(canonical, "canonical.toml").canonical_text(), canonical) << text;
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2) << error.message() << "\n" << text;
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
    return false;
  } catch (const std::exception& other) {
    ADD_FAILURE() << other.what() << "\n" << text;
    return false;
  }
}

std::string repeated(std::string_view piece, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

TEST(SpecMalformedTest, TheUntouchedFileIsASpec) { EXPECT_TRUE(survives(std::string(kSpec))); }

TEST(SpecMalformedTest, EveryPrefixIsHandled) {
  for (std::size_t length = 0; length < kSpec.size(); ++length)
    survives(std::string(kSpec.substr(0, length)));
}

TEST(SpecMalformedTest, EveryRemovedByteIsHandled) {
  for (std::size_t at = 0; at < kSpec.size(); ++at) survives(std::string(kSpec).erase(at, 1));
}

TEST(SpecMalformedTest, OddBytesAnywhereAreHandled) {
  const std::string odd[] = {
      std::string(1, '\0'), "\n", "\"", "'", "\\", "[", "]", "=", ".", "\xff", "\xc3", "{", "#", "€", "9"};
  for (const std::string& bytes : odd) {
    for (std::size_t at = 0; at < kSpec.size(); at += 3) survives(std::string(kSpec).insert(at, bytes));
  }
}

TEST(SpecMalformedTest, RandomEditsAreHandled) {
  const unsigned seed = std::random_device()();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    std::string text(kSpec);
    for (std::size_t edits = 1 + below(6); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(20)));
          break;
        default:
          std::swap(text[at], text[below(text.size())]);
          break;
      }
      if (text.empty()) text.push_back('x');
    }
    survives(text);
  }
}

TEST(SpecMalformedTest, DeepNestingIsHandled) {
  EXPECT_FALSE(survives(repeated("a.", 32'000) + "a = 1"));
  EXPECT_FALSE(survives(std::string("[") + repeated("a.", 32'000) + "a]"));
  EXPECT_FALSE(survives(repeated("a.", 999) + "a = " + repeated("{a=", 250) + "1" + repeated("}", 250)));
  EXPECT_FALSE(survives("a = " + repeated("[", 60'000)));
  EXPECT_FALSE(survives("a = " + repeated("{a=", 20'000)));
  EXPECT_FALSE(
      survives("tuning" + repeated(".workers", 8'000) + " = 1\n" + std::string(kSpec.substr(0, 100))));
}

TEST(SpecMalformedTest, AFileThatIsTooLargeIsRefused) { EXPECT_FALSE(survives(std::string(100'000, '\n'))); }

TEST(SpecMalformedTest, ExtremeNumbersAreRefused) {
  for (const char* value : {"9223372036854775807", "-9223372036854775808", "9223372036854775808",
                            "0x7fffffffffffffff", "1e400", "nan", "-inf", "-0", "1_0"}) {
    for (const char* key : {"[expect]\nerrors = ", "[tuning]\nworkers = ", "[switch]\nattempts = "}) {
      std::string text =
          "[migration]\nname = \"m\"\ntable = \"a.b\"\n[[column]]\nname = \"c\"\ntype = \"text\"\n";
      survives(text + key + value + "\n");
    }
  }
}

}  // namespace
}  // namespace crossfade

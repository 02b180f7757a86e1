#include "crossfade/core/spec.hpp"

#include <set>

#include <gtest/gtest.h>

#include "crossfade/core/error.hpp"

namespace crossfade {
namespace {

const std::string kMigration = "[migration]\nname = \"m\"\ntable = \"public.t\"\n";
const std::string kColumn = "[[column]]\nname = \"c\"\ntype = \"bigint\"\n";
const std::string kPromoted = kColumn + "into = \"d\"\n";
const std::string kSwap = kMigration + kColumn;  // six lines
const std::string kPromote = kMigration + kPromoted;

Error refused(const std::string& text) {
  try {
    parse_spec(text, "spec.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2) << error.message();
    return error;
  }
  ADD_FAILURE() << "accepted:\n" << text;
  return {ErrorCode::internal_error, ""};
}

std::string refusal(const std::string& text) { return refused(text).message(); }

bool accepted(const std::string& text) {
  try {
    parse_spec(text, "spec.toml");
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(SpecTest, AMinimalSpecHasEveryDefault) {
  const Spec spec = parse_spec(kSwap, "spec.toml");
  EXPECT_EQ(spec.name, "m");
  EXPECT_EQ(spec.table, (QualifiedName{"public", "t"}));
  ASSERT_EQ(spec.columns.size(), 1U);
  EXPECT_EQ(spec.columns[0].name, "c");
  EXPECT_EQ(spec.columns[0].type, "bigint");
  EXPECT_FALSE(spec.columns[0].into || spec.columns[0].forward || spec.columns[0].backward);
  EXPECT_EQ(spec.columns[0].on_misfit, OnMisfit::null);
  EXPECT_EQ(spec.mode(), Mode::swap);
  EXPECT_EQ(spec.shadow, ShadowKind::column);
  EXPECT_FALSE(spec.expect_changed || spec.expect_lossy);
  EXPECT_TRUE(spec.expect_errors.met_by(0, 10));
  EXPECT_FALSE(spec.expect_errors.met_by(1, 10));
  EXPECT_EQ(spec.tuning, Tuning{});
  EXPECT_EQ(spec.lock_timeout, std::chrono::milliseconds(200));
  EXPECT_EQ(spec.switch_attempts, 50);
  EXPECT_EQ(spec.max_comparison_age, std::chrono::hours(1));
  EXPECT_FALSE(spec.follow_foreign_keys);
  EXPECT_EQ(spec.trigger_probe, TriggerTrial::all);
  EXPECT_EQ(spec.soak, std::chrono::hours(24));
  EXPECT_EQ(spec.archive, Archive::none);
  EXPECT_TRUE(spec.hooks.empty());
}

TEST(SpecTest, EveryDefaultWrittenOutIsTheDefault) {
  std::string text = kMigration;
  std::string_view section = "migration";
  for (const SpecKey& key : spec_keys()) {
    const bool needs_value =
        key.default_text == "required" || key.default_text == "absent" || key.default_text == "derived";
    if (key.section == "migration" || (key.section != "column" && needs_value)) continue;
    if (key.section != section) {
      section = key.section;
      text += key.section == "column" ? kColumn : std::string("[").append(section).append("]\n");
    }
    if (needs_value) continue;
    const bool bare = key.default_text == "false" ||
                      (!key.default_text.empty() &&
                       key.default_text.find_first_not_of("0123456789") == key.default_text.npos);
    const std::string quote = bare ? "" : "\"";
    text += std::string(key.name) + " = " + quote + std::string(key.default_text) + quote + "\n";
  }
  const Spec spec = parse_spec(text, "spec.toml");
  EXPECT_EQ(spec.canonical_text(), parse_spec(kSwap, "spec.toml").canonical_text());
  EXPECT_EQ(spec.tuning, Tuning{});
}

constexpr std::string_view kEveryKey = R"toml(
[migration]
name  = "items_price"
table = 'Shop."Items"'
[[column]]
name      = "Price_Cents"
type      = "numeric(12,2)"
into      = "price"
forward   = "price_cents / 100.0"
backward  = "round(price * 100)::integer"
on_misfit = "reject"
[[column]]
name = '"Odd ""name"""'
type = "text"
into = '"New"'
[shadow]
kind = "table"
[expect]
changed = "0%..100%"
errors  = "1..2"
lossy   = 7
[tuning]
workers = 4
rows_per_second = 2000
chunk_target = "50ms"
order = "physical"
interleave = 8
max_rejects = 3
max_replication_lag = "10s"
probe = "SELECT 1"
probe_p99 = "20ms"
max_lock_waiters = 7
max_replication_bytes = "64MB"
max_slot_wal = "2GB"
max_archive_backlog = "off"
max_wal_rate = "10MB"
yield_to_vacuum = "any"
max_dead_tuples = 1000
max_xmin_age = 5000
min_free_disk = "1GB"
disk_probe = "SELECT 2"
[switch]
lock_timeout = "1s"
attempts = 10
max_comparison_age = "30min"
follow_foreign_keys = true
trigger_probe = "update"
[drop]
soak = "2d"
archive = "table"
[hooks]
before_switched = "notify start"
after_switched = "notify end"
)toml";

TEST(SpecTest, EveryKeyOfMigrationAndColumnsIsRead) {
  const Spec spec = parse_spec(kEveryKey, "spec.toml");
  EXPECT_EQ(spec.name, "items_price");
  EXPECT_EQ(spec.table, (QualifiedName{"shop", "Items"}));
  EXPECT_EQ(spec.mode(), Mode::promote);
  ASSERT_EQ(spec.columns.size(), 2U);
  EXPECT_EQ(spec.columns[0].name, "price_cents");
  EXPECT_EQ(spec.columns[0].into, "price");
  EXPECT_EQ(spec.columns[0].type, "numeric(12,2)");
  EXPECT_EQ(spec.columns[0].forward, "price_cents / 100.0");
  EXPECT_EQ(spec.columns[0].backward, "round(price * 100)::integer");
  EXPECT_EQ(spec.columns[0].on_misfit, OnMisfit::reject);
  EXPECT_EQ(spec.columns[1].name, R"(Odd "name")");
  EXPECT_EQ(spec.columns[1].into, "New");
}

TEST(SpecTest, EveryKeyOfTheOtherSectionsIsRead) {
  const Spec spec = parse_spec(kEveryKey, "spec.toml");
  EXPECT_EQ(spec.shadow, ShadowKind::table);
  EXPECT_TRUE(spec.expect_changed->percent);
  EXPECT_TRUE(spec.expect_errors.met_by(2, 10));
  EXPECT_TRUE(spec.expect_lossy->met_by(7, 10));
  EXPECT_EQ(spec.tuning, (Tuning{4, 2000, std::chrono::milliseconds(50), SweepOrder::physical, 8, 3,
                                 std::chrono::seconds(10), "SELECT 1", std::chrono::milliseconds(20), 7,
                                 std::int64_t{64} << 20, std::int64_t{2} << 30, 0, std::int64_t{10} << 20,
                                 YieldToVacuum::any, 1000, 5000, std::int64_t{1} << 30, "SELECT 2"}));
  EXPECT_EQ(spec.lock_timeout, std::chrono::seconds(1));
  EXPECT_EQ(spec.switch_attempts, 10);
  EXPECT_EQ(spec.max_comparison_age, std::chrono::minutes(30));
  EXPECT_TRUE(spec.follow_foreign_keys);
  EXPECT_EQ(spec.trigger_probe, TriggerTrial::update);
  EXPECT_EQ(spec.soak, std::chrono::hours(48));
  EXPECT_EQ(spec.archive, Archive::table);
  ASSERT_EQ(spec.hooks.size(), 2U);
  EXPECT_EQ(spec.hooks[0], (std::pair<std::string, std::string>{"before_switched", "notify start"}));
}

TEST(SpecTest, UnknownKeyIsAnErrorWithTheNearestKeySuggested) {
  const Error error = refused(kSwap + "on_misfits = \"null\"\n");
  EXPECT_EQ(error.code(), ErrorCode::spec_unknown_key);
  EXPECT_EQ(error.message(),
            "spec.toml:7:1: key column.on_misfits: found an unknown key; allowed name, type, into, forward, "
            "backward, on_misfit");
  EXPECT_EQ(error.hint(), "Did you mean \"on_misfit\"?");
  EXPECT_EQ(error.object(), "column.on_misfits");
}

TEST(SpecTest, UnknownKeyOfAnotherSectionIsSentThere) {
  EXPECT_EQ(refused(kSwap + "[drop]\nlock_timeout = \"1s\"\n").hint(),
            "\"lock_timeout\" belongs in [switch].");
  EXPECT_EQ(refused("workers = 2\n" + kSwap).hint(), "\"workers\" belongs in [tuning].");
}

TEST(SpecTest, UnknownSectionIsAnErrorWithTheNearestSectionSuggested) {
  const Error error = refused(kSwap + "[tunning]\nworkers = 2\n");
  EXPECT_EQ(error.code(), ErrorCode::spec_unknown_key);
  EXPECT_EQ(error.hint(), "Did you mean [tuning]?");
  EXPECT_TRUE(error.message().starts_with("spec.toml:7:2: key tunning: found an unknown section"))
      << error.message();
}

TEST(SpecTest, UnknownKeysAreErrorsInEverySection) {
  for (const char* section : {"shadow", "expect", "tuning", "switch", "drop", "hooks"}) {
    EXPECT_EQ(refused(kSwap + "[" + section + "]\nzzzzzzzzzzzz = 1\n").code(), ErrorCode::spec_unknown_key)
        << section;
  }
  EXPECT_EQ(refused("[migration]\nzzzzzzzz = 1\n").code(), ErrorCode::spec_unknown_key);
}

TEST(SpecTest, ASyntaxErrorNamesFileLineAndColumn) {
  const Error error = refused(kSwap + "forward = \"never closed\n");
  EXPECT_EQ(error.code(), ErrorCode::spec_syntax);
  EXPECT_TRUE(error.message().starts_with("spec.toml:7:")) << error.message();
}

TEST(SpecTest, ADuplicateKeyIsASyntaxError) {
  EXPECT_EQ(refused(kSwap + "type = \"text\"\n").code(), ErrorCode::spec_syntax);
}

TEST(SpecTest, MissingKeysAreNamed) {
  EXPECT_EQ(refusal("[migration]\nname = \"m\"\n" + kColumn),
            "spec.toml:1:1: key migration.table: found nothing; allowed schema.table as in SQL, unquoted "
            "parts folding to "
            "lower case");
  EXPECT_EQ(refused("").code(), ErrorCode::spec_missing_key);
  EXPECT_EQ(refused("").object(), "migration");
  EXPECT_EQ(refused("[migration]\ntable = \"public.t\"\n" + kColumn).object(), "migration.name");
  EXPECT_EQ(refused(kMigration).object(), "column");
  EXPECT_EQ(refused(kMigration + "[[column]]\nname = \"c\"\n").object(), "column.type");
  EXPECT_EQ(refused(kMigration + "[[column]]\ntype = \"text\"\n").object(), "column.name");
  for (const std::string& text : {kMigration, kMigration + "[[column]]\n"}) {
    EXPECT_EQ(refused(text).code(), ErrorCode::spec_missing_key);
  }
}

TEST(SpecTest, AWrongValueNamesPositionKeyFoundAndAllowed) {
  EXPECT_EQ(refusal(kSwap + "[switch]\nlock_timeout = \"2min\"\n"),
            "spec.toml:8:16: key switch.lock_timeout: found \"2min\"; allowed 1ms..60s");
  EXPECT_EQ(refusal(kSwap + "[tuning]\nworkers = 65\n"),
            "spec.toml:8:11: key tuning.workers: found 65; allowed 1..64");
}

TEST(SpecTest, TheNameIsShortLowerCaseAndPlain) {
  const auto with_name = [](const std::string& name) {
    return "[migration]\ntable = \"public.t\"\nname = \"" + name + "\"\n" + kColumn;
  };
  EXPECT_TRUE(accepted(with_name("a")));
  EXPECT_TRUE(accepted(with_name("accounts_balance_2")));
  EXPECT_TRUE(accepted(with_name(std::string(40, 'a'))));
  for (const std::string& name :
       {std::string(41, 'a'), std::string("A"), std::string("1a"), std::string("_a"), std::string("a-b"),
        std::string("a b"), std::string("größe"), std::string("a/b")}) {
    EXPECT_EQ(refused(with_name(name)).code(), ErrorCode::spec_bad_value) << name;
  }
}

TEST(SpecTest, TheTableNeedsItsSchema) {
  const Error error = refused("[migration]\nname = \"m\"\ntable = \"accounts\"\n" + kColumn);
  EXPECT_EQ(error.code(), ErrorCode::spec_bad_value);
  EXPECT_TRUE(error.message().starts_with(
      "spec.toml:3:9: key migration.table: found \"accounts\"; allowed schema.table"))
      << error.message();
}

TEST(SpecTest, AColumnMayBeNamedOnce) {
  EXPECT_EQ(refused(kSwap + "[[column]]\nname = \"C\"\ntype = \"text\"\n").object(), "column.name");
  EXPECT_TRUE(accepted(kSwap + "[[column]]\nname = '\"C\"'\ntype = \"text\"\n"));
}

TEST(SpecTest, ANewNameIsNeitherTakenNorGivenTwice) {
  EXPECT_EQ(refused(kMigration + kColumn + "into = \"c\"\n").object(), "column.into");
  EXPECT_EQ(refused(kPromote + "[[column]]\nname = \"e\"\ntype = \"text\"\ninto = \"d\"\n").object(),
            "column.into");
  EXPECT_EQ(refused(kPromote + "[[column]]\nname = \"d\"\ntype = \"text\"\ninto = \"e\"\n").object(),
            "column.into");
  EXPECT_TRUE(accepted(kPromote + "[[column]]\nname = \"e\"\ntype = \"text\"\ninto = \"f\"\n"));
}

TEST(SpecTest, EitherEveryColumnHasANewNameOrNone) {
  EXPECT_EQ(refused(kPromote + "[[column]]\nname = \"e\"\ntype = \"text\"\n").object(), "column.into");
  EXPECT_EQ(refused(kSwap + "[[column]]\nname = \"e\"\ntype = \"text\"\ninto = \"f\"\n").object(),
            "column.into");
}

TEST(SpecTest, BackwardWithoutForwardIsRefused) {
  EXPECT_EQ(refused(kSwap + "backward = \"c\"\n").object(), "column.backward");
  EXPECT_TRUE(accepted(kSwap + "forward = \"c\"\n"));
  EXPECT_TRUE(accepted(kSwap + "forward = \"c\"\nbackward = \"c\"\n"));
}

TEST(SpecTest, AShadowTableNeedsANewName) {
  EXPECT_EQ(refused(kSwap + "[shadow]\nkind = \"table\"\n").object(), "shadow.kind");
  EXPECT_TRUE(accepted(kPromote + "[shadow]\nkind = \"table\"\n"));
  EXPECT_TRUE(accepted(kSwap + "[shadow]\nkind = \"column\"\n"));
}

TEST(SpecTest, BoundsOfTheSwitchAreKept) {
  const auto with = [](const std::string& line) { return kSwap + "[switch]\n" + line + "\n"; };
  EXPECT_TRUE(accepted(with("lock_timeout = \"1ms\"")));
  EXPECT_TRUE(accepted(with("lock_timeout = \"60s\"")));
  EXPECT_FALSE(accepted(with("lock_timeout = \"0ms\"")));
  EXPECT_FALSE(accepted(with("lock_timeout = \"60001ms\"")));
  EXPECT_FALSE(accepted(with("lock_timeout = 200")));
  EXPECT_TRUE(accepted(with("attempts = 1")));
  EXPECT_TRUE(accepted(with("attempts = 10000")));
  EXPECT_FALSE(accepted(with("attempts = 0")));
  EXPECT_FALSE(accepted(with("attempts = 10001")));
  EXPECT_FALSE(accepted(with("attempts = 9223372036854775807")));
  EXPECT_FALSE(accepted(with("attempts = \"5\"")));
  EXPECT_FALSE(accepted(with("follow_foreign_keys = \"true\"")));
  EXPECT_TRUE(accepted(with("trigger_probe = \"none\"")));
  EXPECT_FALSE(accepted(with("trigger_probe = \"insert\"")));
  EXPECT_FALSE(accepted(with("max_comparison_age = \"soon\"")));
}

TEST(SpecTest, ValuesOfAnotherTypeAreRefused) {
  const char* values[] = {"1.5", "true",    "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z",
                          "[1]", "{a = 1}", "inf"};
  for (const std::string value : values) {
    for (const std::string key : {"name", "type", "into", "forward", "on_misfit"}) {
      std::string text = kMigration + "[[column]]\n" + key + " = " + value + "\n";
      if (key != "name") text += "name = \"c\"\n";
      if (key != "type") text += "type = \"text\"\n";
      EXPECT_EQ(refused(text).code(), ErrorCode::spec_bad_value) << key << " = " << value;
    }
    for (const SpecKey& key : spec_keys()) {
      if (key.section == "migration" || key.section == "column") continue;
      if (key.name == "follow_foreign_keys" && value == "true") continue;
      const std::string line = std::string(key.name) + " = " + value + "\n";
      const Error error = refused(kSwap + "[" + std::string(key.section) + "]\n" + line);
      EXPECT_EQ(error.code(), ErrorCode::spec_bad_value) << key.section << "." << line;
      EXPECT_EQ(error.object(), std::string(key.section) + "." + std::string(key.name));
    }
  }
}

TEST(SpecTest, SectionsOfTheWrongShapeAreRefused) {
  EXPECT_EQ(refused("[[migration]]\nname = \"m\"\n" + kColumn).code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused(kMigration + "[column]\nname = \"c\"\n").code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused("column = []\n" + kMigration).code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused("column = [1]\n" + kMigration).code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused("tuning = 5\n" + kSwap).code(), ErrorCode::spec_bad_value);
}

TEST(SpecTest, BlankTextAndNulCharactersAreRefused) {
  EXPECT_EQ(refused(kSwap + "forward = \" \"\n").code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused(kSwap + "forward = \"a\\u0000b\"\n").code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused(kMigration + "[[column]]\nname = \"\"\ntype = \"text\"\n").code(),
            ErrorCode::spec_bad_value);
  EXPECT_EQ(refused(kSwap + "[hooks]\nbefore_compare = \"\"\n").code(), ErrorCode::spec_bad_value);
  EXPECT_EQ(refused(kSwap + "[tuning]\nprobe = \"a\\u0000b\"\n").code(), ErrorCode::spec_bad_value);
}

TEST(SpecTest, MessagesStayOnOneShortLineWhateverTheFileHolds) {
  const std::string message = refusal(kSwap + "on_misfit = \"" + std::string(5000, 'x') + "\"\n");
  EXPECT_LT(message.size(), 200U);
  EXPECT_EQ(refusal(kSwap + "\"a\\nb\\u001b\" = 1\n").find_first_of("\n\x1b"), std::string::npos);
}

TEST(SpecTest, EveryKeyOfTheTableHasASentenceAndIsThereOnce) {
  std::set<std::string> seen;
  for (const SpecKey& key : spec_keys()) {
    EXPECT_TRUE(seen.insert(std::string(key.section) + "." + std::string(key.name)).second) << key.name;
    EXPECT_TRUE(key.sentence.ends_with('.')) << key.name;
    EXPECT_FALSE(key.bounds.empty()) << key.name;
  }
}

TEST(SpecTest, TheTimeoutOfHooksIsNoHookAndChangesTheHashOnlyWhereItIsGiven) {
  const auto parsed = [](const std::string& text) { return parse_spec(text, "spec.toml"); };
  const Spec given = parsed(kSwap + "[hooks]\nhook_timeout = \"90s\"\n");
  EXPECT_TRUE(given.hooks.empty());
  EXPECT_EQ(given.hook_timeout, std::chrono::seconds(90));
  EXPECT_EQ(parsed(given.canonical_text()).hook_timeout, std::chrono::seconds(90));
  const Spec absent = parsed(kSwap);
  EXPECT_EQ(absent.hook_timeout, kHookTimeout);
  EXPECT_EQ(absent.canonical_text(), parsed(kSwap + "[hooks]\nhook_timeout = \"1min\"\n").canonical_text());
  EXPECT_EQ(refused(kSwap + "[hooks]\nhook_timeout = \"10ms\"\n").code(), ErrorCode::spec_bad_value);
}

TEST(SpecTest, HooksCoverEveryPhase) {
  for (const Phase phase : kAllPhases) {
    for (const std::string when : {"before_", "after_"}) {
      const std::string key = when + std::string(to_text(phase));
      EXPECT_TRUE(accepted(kSwap + "[hooks]\n" + key + " = \"true\"\n")) << key;
    }
  }
}

}  // namespace
}  // namespace crossfade

#include "crossfade/core/spec.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "crossfade/core/printable.hpp"
#include "spec_depth.hpp"
#include "spec_reader.hpp"

namespace crossfade {

namespace {

bool is_migration_name(std::string_view name) {
  constexpr std::size_t kLongest = 40;
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && name.size() <= kLongest && is_lower(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; });
}

// The position of the word among the choices; `fallback` when the key is absent.
template <class Enum>
Enum choice(const SpecReader& reader, std::string_view key, Enum fallback,
            std::initializer_list<std::pair<std::string_view, Enum>> choices) {
  const std::optional<std::string> word = reader.text(key);
  if (!word) return fallback;
  for (const auto& [text, value] : choices) {
    if (text == *word) return value;
  }
  reader.refuse(key);
}

class SpecParser {
 public:
  SpecParser(const toml::table& root, std::string_view file) : root_(root), file_(file) {}

  Spec parse() {
    refuse_unknown_sections(root_, file_);
    read_migration();
    read_columns();
    read_shadow();
    read_expect();
    if (const auto tuning = section("tuning")) tuning->tune(spec_.tuning);
    read_switch();
    read_drop();
    read_hooks();
    return std::move(spec_);
  }

 private:
  std::optional<SpecReader> section(std::string_view name) const {
    const toml::table* const table = find_section(root_, name, file_);
    if (table == nullptr) return std::nullopt;
    return SpecReader(*table, name, file_);
  }

  [[noreturn]] void refuse_missing_section(std::string_view key, std::string_view allowed) const {
    throw spec_error(ErrorCode::spec_missing_key, file_, root_.source(), key, "nothing", allowed);
  }

  void read_migration() {
    const auto migration = section("migration");
    if (!migration) refuse_missing_section("migration", "one table [migration] with name and table");
    spec_.name = migration->required_text("name");
    if (!is_migration_name(spec_.name)) migration->refuse("name");
    const auto table = migration->qualified_name("table");
    if (!table) migration->refuse_missing("table");
    spec_.table = *table;
    spec_.table_at = migration->place("table");
  }

  void read_columns() {
    const toml::node* const node = root_.get("column");
    constexpr std::string_view kAllowed = "[[column]] at least once";
    if (node == nullptr) refuse_missing_section("column", kAllowed);
    const toml::array* const tables = node->as_array();
    if (tables == nullptr || tables->empty()) {
      throw spec_error(ErrorCode::spec_bad_value, file_, node->source(), "column",
                       tables == nullptr ? describe(*node) : "an empty array", kAllowed);
    }
    for (const toml::node& element : *tables) {
      const toml::table* const table = element.as_table();
      if (table == nullptr) {
        throw spec_error(ErrorCode::spec_bad_value, file_, element.source(), "column", describe(element),
                         kAllowed);
      }
      read_column(SpecReader(*table, "column", file_));
    }
    // Only now is every old name known that `into` must not repeat.
    for (const toml::node& element : *tables)
      refuse_taken_name(SpecReader(*element.as_table(), "column", file_));
  }

  void read_column(const SpecReader& reader) {
    ColumnSpec column;
    const auto name = reader.identifier("name");
    if (!name) reader.refuse_missing("name");
    column.name = *name;
    column.name_at = reader.place("name");
    if (has_column(column.name)) reader.refuse("name", "each column once");
    column.type = reader.required_text("type");
    column.type_at = reader.place("type");
    column.into = reader.identifier("into");
    column.forward = reader.text("forward");
    column.backward = reader.text("backward");
    if (column.backward && !column.forward) reader.refuse("backward", "there is no forward");
    column.on_misfit = choice(reader, "on_misfit", column.on_misfit,
                              {{"null", OnMisfit::null}, {"reject", OnMisfit::reject}});
    if (!spec_.columns.empty() && column.into.has_value() != spec_.columns.front().into.has_value()) {
      if (!column.into) reader.refuse_missing("into");
      reader.refuse("into", "an earlier column has none");
    }
    spec_.columns.push_back(std::move(column));
  }

  void refuse_taken_name(const SpecReader& reader) const {
    const auto into = reader.identifier("into");
    if (!into) return;
    if (has_column(*into)) reader.refuse("into", "that name is an old column's");
    if (std::ranges::count(spec_.columns, into, &ColumnSpec::into) > 1)
      reader.refuse("into", "each name once");
  }

  bool has_column(std::string_view name) const {
    return std::ranges::find(spec_.columns, name, &ColumnSpec::name) != spec_.columns.end();
  }

  void read_shadow() {
    const auto shadow = section("shadow");
    if (!shadow) return;
    spec_.shadow =
        choice(*shadow, "kind", spec_.shadow, {{"column", ShadowKind::column}, {"table", ShadowKind::table}});
    if (spec_.shadow == ShadowKind::table && spec_.mode() == Mode::swap)
      shadow->refuse("kind", "no column has into");
  }

  void read_expect() {
    const auto expect = section("expect");
    if (!expect) return;
    spec_.expect_changed = expect->expectation("changed");
    spec_.expect_lossy = expect->expectation("lossy");
    if (const auto errors = expect->expectation("errors")) spec_.expect_errors = *errors;
  }

  void read_switch() {
    const auto reader = section("switch");
    if (!reader) return;
    spec_.lock_timeout = reader->duration("lock_timeout").value_or(spec_.lock_timeout);
    spec_.switch_attempts = reader->integer("attempts").value_or(spec_.switch_attempts);
    spec_.max_comparison_age = reader->duration("max_comparison_age").value_or(spec_.max_comparison_age);
    spec_.follow_foreign_keys = reader->boolean("follow_foreign_keys").value_or(spec_.follow_foreign_keys);
    spec_.trigger_probe =
        choice(*reader, "trigger_probe", spec_.trigger_probe,
               {{"all", TriggerTrial::all}, {"update", TriggerTrial::update}, {"none", TriggerTrial::none}});
  }

  void read_drop() {
    const auto drop = section("drop");
    if (!drop) return;
    spec_.soak = drop->duration("soak").value_or(spec_.soak);
    spec_.archive =
        choice(*drop, "archive", spec_.archive, {{"none", Archive::none}, {"table", Archive::table}});
  }

  void read_hooks() {
    const auto hooks = section("hooks");
    if (!hooks) return;
    for (const SpecKey& key : spec_keys()) {
      if (key.section != "hooks" || key.name == "hook_timeout") continue;
      if (auto command = hooks->text(key.name)) spec_.hooks.emplace_back(key.name, *std::move(command));
    }
    spec_.hook_timeout = hooks->duration("hook_timeout").value_or(spec_.hook_timeout);
  }

  const toml::table& root_;
  std::string_view file_;
  Spec spec_;
};

}  // namespace

Mode Spec::mode() const {
  const bool promotes =
      std::ranges::any_of(columns, [](const ColumnSpec& column) { return column.into.has_value(); });
  return promotes ? Mode::promote : Mode::swap;
}

Spec parse_spec(std::string_view text, std::string_view file) {
  if (text.size() > kMaxSpecBytes) {
    throw Error(ErrorCode::spec_syntax,
                fmt::format("{}:1:1: found {} bytes; allowed at most {}", file, text.size(), kMaxSpecBytes));
  }
  constexpr std::size_t kMostDots = 1000;
  if (count_key_dots(text) > kMostDots) {
    throw Error(
        ErrorCode::spec_syntax,
        fmt::format("{}:1:1: found more than {} dots in keys; allowed are the sections and keys of a spec",
                    file, kMostDots));
  }
  try {
    return SpecParser(toml::parse(text, file), file).parse();
  } catch (const toml::parse_error& failure) {
    const toml::source_position at = failure.source().begin;
    throw Error(ErrorCode::spec_syntax,
                fmt::format("{}:{}:{}: {}", file, at.line, at.column, printable(failure.description(), 200)));
  }
}

}  // namespace crossfade

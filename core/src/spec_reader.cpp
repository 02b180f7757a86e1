#include "spec_reader.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "crossfade/core/printable.hpp"
#include "expectation.hpp"

namespace crossfade {

namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

std::vector<std::string_view> sections() {
  std::vector<std::string_view> names;
  for (const SpecKey& key : spec_keys()) {
    if (names.empty() || names.back() != key.section) names.push_back(key.section);
  }
  return names;
}

std::vector<std::string_view> keys_of(std::string_view section) {
  std::vector<std::string_view> names;
  for (const SpecKey& key : spec_keys()) {
    if (key.section == section) names.push_back(key.name);
  }
  return names;
}

const SpecKey& spec_key(std::string_view section, std::string_view name) {
  for (const SpecKey& key : spec_keys()) {
    if (key.section == section && key.name == name) return key;
  }
  throw Error(ErrorCode::internal_error, fmt::format("spec_keys() lacks {}.{}.", section, name));
}

std::string suggestion_for(std::string_view section, std::string_view word) {
  const std::vector<std::string_view> own = keys_of(section);
  if (const auto found = nearest(word, own)) return fmt::format("Did you mean \"{}\"?", *found);
  for (const SpecKey& key : spec_keys()) {
    if (key.name == word) return fmt::format("\"{}\" belongs in [{}].", word, key.section);
  }
  return {};
}

}  // namespace

Error spec_error(ErrorCode code, std::string_view file, const toml::source_region& where,
                 std::string_view key, std::string_view found, std::string_view allowed, std::string hint) {
  // Tables that the file only implies have no position.
  const auto line = std::max<toml::source_index>(where.begin.line, 1);
  const auto column = std::max<toml::source_index>(where.begin.column, 1);
  return {code,
          fmt::format("{}:{}:{}: key {}: found {}; allowed {}", file, line, column, key, found, allowed),
          std::move(hint), std::string(key)};
}

std::string describe(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::none:
      return "nothing";
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return fmt::format("\"{}\"", printable(node.as_string()->get()));
    case toml::node_type::integer:
      return fmt::format("{}", node.as_integer()->get());
    case toml::node_type::floating_point:
      return fmt::format("{}", node.as_floating_point()->get());
    case toml::node_type::boolean:
      return fmt::format("{}", node.as_boolean()->get());
    case toml::node_type::date:
      return "a date";
    case toml::node_type::time:
      return "a time";
    case toml::node_type::date_time:
      return "a date and time";
  }
  return "something unknown";
}

const toml::table* find_section(const toml::table& root, std::string_view section, std::string_view file) {
  const toml::node* const node = root.get(section);
  if (node == nullptr || node->is_table()) return node == nullptr ? nullptr : node->as_table();
  throw spec_error(ErrorCode::spec_bad_value, file, node->source(), section, describe(*node),
                   fmt::format("one table [{}]", section));
}

void refuse_unknown_sections(const toml::table& root, std::string_view file) {
  const std::vector<std::string_view> known = sections();
  for (const auto& [key, value] : root) {
    if (std::ranges::find(known, key.str()) != known.end()) continue;
    const auto suggestion = nearest(key.str(), known);
    throw spec_error(
        ErrorCode::spec_unknown_key, file, key.source(), printable(key.str()), "an unknown section",
        fmt::format("{}", fmt::join(known, ", ")),
        suggestion ? fmt::format("Did you mean [{}]?", *suggestion) : suggestion_for({}, key.str()));
  }
}

SpecReader::SpecReader(const toml::table& table, std::string_view section, std::string_view file)
    : table_(table), section_(section), file_(file) {
  const std::vector<std::string_view> known = keys_of(section);
  for (const auto& [key, value] : table) {
    if (std::ranges::find(known, key.str()) != known.end()) continue;
    throw spec_error(ErrorCode::spec_unknown_key, file, key.source(),
                     fmt::format("{}.{}", section, printable(key.str())), "an unknown key",
                     fmt::format("{}", fmt::join(known, ", ")), suggestion_for(section, key.str()));
  }
}

std::string SpecReader::place(std::string_view key) const {
  const toml::source_position at = find(key)->source().begin;
  return fmt::format("{}:{}:{}", file_, at.line, at.column);
}

void SpecReader::refuse(std::string_view key, std::string_view why) const {
  const toml::node& node = *find(key);
  throw spec_error(ErrorCode::spec_bad_value, file_, node.source(), fmt::format("{}.{}", section_, key),
                   describe(node),
                   fmt::format("{}{}{}", spec_key(section_, key).bounds, why.empty() ? "" : "; ", why));
}

void SpecReader::refuse_missing(std::string_view key) const {
  throw spec_error(ErrorCode::spec_missing_key, file_, table_.source(), fmt::format("{}.{}", section_, key),
                   "nothing", spec_key(section_, key).bounds);
}

std::optional<std::string> SpecReader::string_of(std::string_view key) const {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_string()) refuse(key, "a string");
  std::string value = node->as_string()->get();
  if (value.find('\0') != std::string::npos) refuse(key, "without NUL characters");
  return value;
}

std::optional<std::string> SpecReader::text(std::string_view key) const {
  std::optional<std::string> value = string_of(key);
  if (value && value->find_first_not_of(kBlanks) == std::string::npos) refuse(key, "not empty");
  return value;
}

std::string SpecReader::required_text(std::string_view key) const {
  std::optional<std::string> value = text(key);
  if (!value) refuse_missing(key);
  return *std::move(value);
}

std::optional<std::string> SpecReader::identifier(std::string_view key) const {
  const std::optional<std::string> value = text(key);
  if (!value) return std::nullopt;
  try {
    return parse_identifier(*value);
  } catch (const Error& failure) {
    refuse(key, failure.message());
  }
}

std::optional<QualifiedName> SpecReader::qualified_name(std::string_view key) const {
  const std::optional<std::string> value = text(key);
  if (!value) return std::nullopt;
  try {
    return QualifiedName::parse(*value);
  } catch (const Error& failure) {
    refuse(key, failure.message());
  }
}

std::optional<int> SpecReader::integer(std::string_view key) const {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  const std::string_view bounds = spec_key(section_, key).bounds;
  const std::size_t dots = bounds.find("..");
  int low = 0, high = 0;
  std::from_chars(bounds.data(), bounds.data() + dots, low);
  std::from_chars(bounds.data() + dots + 2, bounds.data() + bounds.size(), high);
  if (!node->is_integer()) refuse(key, "a number without quotes");
  const std::int64_t value = node->as_integer()->get();
  if (value < low || value > high) refuse(key);
  return static_cast<int>(value);
}

std::optional<bool> SpecReader::boolean(std::string_view key) const {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_boolean()) refuse(key, "without quotes");
  return node->as_boolean()->get();
}

std::optional<std::chrono::milliseconds> SpecReader::duration(std::string_view key) const {
  constexpr std::string_view kForm = "a string such as \"90s\", in ms, s, min, h or d";
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto value = node->is_string() ? parse_duration(node->as_string()->get()) : std::nullopt;
  if (!value) refuse(key, kForm);
  const std::string_view bounds = spec_key(section_, key).bounds;
  const std::size_t dots = bounds.find("..");
  if (*value < parse_duration(bounds.substr(0, dots)) || *value > parse_duration(bounds.substr(dots + 2)))
    refuse(key);
  return value;
}

std::optional<Expectation> SpecReader::expectation(std::string_view key) const {
  const toml::node* const node = find(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_integer()) {
    const std::int64_t count = node->as_integer()->get();
    if (count < 0 || count > kMaxExpectedCount) refuse(key);
    const auto value = static_cast<double>(count);
    return Expectation{value, value, false, std::to_string(count)};
  }
  std::optional<Expectation> value =
      node->is_string() ? parse_expectation(node->as_string()->get()) : std::nullopt;
  if (!value) refuse(key);
  return value;
}

void SpecReader::tune(Tuning& tuning) const {
  for (const TuningKey& key : tuning_keys()) {
    const toml::node* const node = find(key.name);
    if (node == nullptr) continue;
    const bool is_number = !key.default_text.empty() &&
                           std::ranges::all_of(key.default_text, [](char c) { return c >= '0' && c <= '9'; });
    if (is_number && !node->is_integer()) refuse(key.name, "a number without quotes");
    if (!node->is_integer() && !node->is_string()) refuse(key.name);
    try {
      set_tuning(tuning, key.name,
                 node->is_string() ? node->as_string()->get() : std::to_string(node->as_integer()->get()));
    } catch (const Error&) {
      refuse(key.name);
    }
  }
}

}  // namespace crossfade

#include <algorithm>

#include <fmt/format.h>

#include "crossfade/core/spec.hpp"
#include "expectation.hpp"

namespace crossfade {

namespace {

// A TOML basic string, so that the canonical text is itself a spec file.
std::string toml_string(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

void add(std::string& out, std::string_view key, std::string_view value) {
  out += fmt::format("{} = {}\n", key, toml_string(value));
}

void add_if(std::string& out, std::string_view key, const std::optional<std::string>& value) {
  if (value) add(out, key, *value);
}

void add_if(std::string& out, std::string_view key, const std::optional<Expectation>& value) {
  if (value) add(out, key, canonical_text(*value));
}

void add_column(std::string& out, const ColumnSpec& column) {
  out += "[[column]]\n";
  add(out, "name", quote_identifier(column.name));
  add(out, "type", column.type);
  if (column.into) add(out, "into", quote_identifier(*column.into));
  add_if(out, "forward", column.forward);
  add_if(out, "backward", column.backward);
  add(out, "on_misfit", column.on_misfit == OnMisfit::reject ? "reject" : "null");
}

}  // namespace

std::string Spec::canonical_text() const {
  std::string out = "[migration]\n";
  add(out, "name", name);
  add(out, "table", table.sql());
  std::vector<ColumnSpec> sorted = columns;
  std::ranges::sort(sorted, {}, &ColumnSpec::name);
  for (const ColumnSpec& column : sorted) add_column(out, column);
  out += "[shadow]\n";
  add(out, "kind", shadow == ShadowKind::table ? "table" : "column");
  out += "[expect]\n";
  add_if(out, "changed", expect_changed);
  add_if(out, "errors", std::optional(expect_errors));
  add_if(out, "lossy", expect_lossy);
  out += "[switch]\n";
  add(out, "lock_timeout", format_duration(lock_timeout));
  out += fmt::format("attempts = {}\n", switch_attempts);
  add(out, "max_comparison_age", format_duration(max_comparison_age));
  out += fmt::format("follow_foreign_keys = {}\n", follow_foreign_keys);
  // Only where it says something: the hash of a spec that was started stays what it was.
  if (trigger_probe != TriggerTrial::all)
    add(out, "trigger_probe", trigger_probe == TriggerTrial::none ? "none" : "update");
  out += "[drop]\n";
  add(out, "soak", format_duration(soak));
  add(out, "archive", archive == Archive::table ? "table" : "none");
  out += "[hooks]\n";
  auto ordered = hooks;
  std::ranges::sort(ordered);
  for (const auto& [event, command] : ordered) add(out, event, command);
  // As trigger_probe above.
  if (hook_timeout != kHookTimeout) add(out, "hook_timeout", format_duration(hook_timeout));
  return out;
}

}  // namespace crossfade

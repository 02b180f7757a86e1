// Typed access to one table of a spec file. Every refusal names file, line, column, key, what was found and
// what is allowed; the bounds are those of spec_keys().
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <toml++/toml.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/spec.hpp"

namespace crossfade {

inline constexpr std::size_t kMaxSpecBytes = 64 * 1024;

class SpecReader {
 public:
  // section: as in spec_keys(). Refuses keys that the section does not have.
  SpecReader(const toml::table& table, std::string_view section, std::string_view file);

  std::optional<std::string> text(std::string_view key) const;  // not blank
  std::string required_text(std::string_view key) const;
  std::optional<std::string> identifier(std::string_view key) const;
  std::optional<QualifiedName> qualified_name(std::string_view key) const;
  std::optional<int> integer(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::chrono::milliseconds> duration(std::string_view key) const;
  std::optional<Expectation> expectation(std::string_view key) const;
  // Sets every tuning key that is there.
  void tune(Tuning& tuning) const;

  // "FILE:LINE:COLUMN" of the key's value. Requires: it is there.
  std::string place(std::string_view key) const;
  // Throws spec_bad_value at the key's value. `why` follows the bounds.
  [[noreturn]] void refuse(std::string_view key, std::string_view why = {}) const;
  [[noreturn]] void refuse_missing(std::string_view key) const;

 private:
  const toml::node* find(std::string_view key) const { return table_.get(key); }
  std::optional<std::string> string_of(std::string_view key) const;

  const toml::table& table_;
  std::string_view section_;
  std::string_view file_;
};

// The table of a section, or null when the file does not have it. Throws spec_bad_value when it is not a
// table.
const toml::table* find_section(const toml::table& root, std::string_view section, std::string_view file);

// Refuses sections that spec_keys() does not have.
void refuse_unknown_sections(const toml::table& root, std::string_view file);

// "FILE:LINE:COLUMN: key KEY: found FOUND; allowed ALLOWED".
Error spec_error(ErrorCode code, std::string_view file, const toml::source_region& where,
                 std::string_view key, std::string_view found, std::string_view allowed,
                 std::string hint = {});
// What a person would recognise in the file: a short form of the value.
std::string describe(const toml::node& node);

}  // namespace crossfade

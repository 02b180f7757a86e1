// The only code that quotes SQL and makes names. Golden tests cover it; nothing else may concatenate a name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossfade/core/ids.hpp"

namespace crossfade {

inline constexpr std::size_t kMaxIdentifierBytes = 63;  // NAMEDATALEN - 1

// Always quoted, so that case, reserved words and odd characters need no thought.
// Requires: no NUL byte. Throws spec_bad_value on an empty name or a NUL byte.
std::string quote_identifier(std::string_view name);
// For people: quoted only where quote_ident() of PostgreSQL would.
std::string display_identifier(std::string_view name);
// One name as SQL reads it: unquoted folds its ASCII letters to lower case. A name that PostgreSQL would cut
// is refused. Throws spec_bad_value naming `text`.
std::string parse_identifier(std::string_view text);

// A literal under standard_conforming_strings = on; uses E'' only when a backslash occurs.
// Throws spec_bad_value on a NUL byte, as does array_literal.
std::string quote_literal(std::string_view value);
// NULL for an absent value.
std::string quote_nullable(const std::optional<std::string>& value);
// A text[] input string: every element quoted, NULL unquoted.
std::string array_literal(const std::vector<std::optional<std::string>>& values);
std::string array_literal(const Key& key);
// The inverse, for text[] columns read as text. Throws internal_error on malformed input.
std::vector<std::optional<std::string>> parse_array(std::string_view text);
Key parse_key(std::string_view text);

// A schema-qualified name. `parse` reads it as SQL does: unquoted parts fold to lower case.
struct QualifiedName {
  std::string schema, name;
  bool operator==(const QualifiedName&) const = default;
  std::string sql() const;      // "schema"."name"
  std::string display() const;  // quoted only where SQL would need it
  // Throws spec_bad_value naming `text` when the schema is missing or the syntax is wrong.
  static QualifiedName parse(std::string_view text);
};

// `name`, shortened at a UTF-8 boundary so that name + suffix fits in 63 bytes.
std::string name_with_suffix(std::string_view name, std::string_view suffix);

// Every object that one migration creates, named from its id: collision-free and recognisable. A name that
// must be shortened also carries eight digits of a hash of the whole, so that two long names that begin alike
// stay apart.
class GeneratedNames {
 public:
  explicit GeneratedNames(const MigrationId& id);
  std::string shadow_column(std::string_view column) const;   // the new column before the switch
  std::string retired_column(std::string_view column) const;  // the old column after the switch
  std::string twin(std::string_view object) const;     // the twin of an index or constraint before the switch
  std::string retired(std::string_view object) const;  // the old index or constraint after the switch
  std::string not_null_check(std::string_view column) const;
  std::string function(std::string_view role) const;  // in schema crossfade, for example forward_1a2b…
  // Sorts bytewise after any sane trigger name; `event` is insert or update.
  std::string trigger(std::string_view event) const;
  std::string archive_table(std::string_view table) const;

 private:
  std::string hex_;
};

}  // namespace crossfade

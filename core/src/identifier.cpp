#include "crossfade/core/identifier.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/printable.hpp"
#include "sql_keywords.hpp"

namespace crossfade {

namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_high(char c) { return static_cast<unsigned char>(c) >= 0x80; }
bool starts_identifier(char c) { return is_lower(c) || is_upper(c) || c == '_' || is_high(c); }
bool continues_identifier(char c) { return starts_identifier(c) || is_digit(c) || c == '$'; }

void refuse_nul(std::string_view text, std::string_view what) {
  if (text.find('\0') == std::string_view::npos) return;
  throw Error(ErrorCode::spec_bad_value,
              fmt::format("The {} contains a NUL byte, which SQL cannot hold.", what));
}

// Reads dot-separated identifiers as the lexer of PostgreSQL does.
class NameReader {
 public:
  explicit NameReader(std::string_view text) : text_(text), rest_(text) { refuse_nul(text, "name"); }

  std::vector<std::string> parts() {
    std::vector<std::string> parts;
    do {
      skip_blanks();
      parts.push_back(!rest_.empty() && rest_.front() == '"' ? quoted() : unquoted());
      skip_blanks();
    } while (take_dot());
    if (!rest_.empty()) fail("has an unexpected character after a name");
    return parts;
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw Error(ErrorCode::spec_bad_value, fmt::format("The name '{}' {}.", printable(text_), why),
                "Write names as in SQL; a name with odd characters goes in double quotes.",
                std::string(text_));
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size())); }

  bool take_dot() {
    if (rest_.empty() || rest_.front() != '.') return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string unquoted() {
    if (rest_.empty() || !starts_identifier(rest_.front()))
      fail("lacks a part, or has one that must be quoted");
    std::string part;
    while (!rest_.empty() && continues_identifier(rest_.front())) {
      const char c = rest_.front();
      part += is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
      rest_.remove_prefix(1);
    }
    return checked(std::move(part));
  }

  std::string quoted() {
    std::string part;
    rest_.remove_prefix(1);
    for (;;) {
      const std::size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) fail("has a double quote that is never closed");
      part += rest_.substr(0, quote);
      rest_.remove_prefix(quote + 1);
      if (rest_.empty() || rest_.front() != '"') return checked(std::move(part));
      part += '"';
      rest_.remove_prefix(1);
    }
  }

  // PostgreSQL would cut a longer name silently, and then it might be another one's.
  std::string checked(std::string part) const {
    if (part.empty()) fail("has an empty part");
    if (part.size() > kMaxIdentifierBytes) fail("has a part of more than 63 bytes");
    return part;
  }

  std::string_view text_;
  std::string_view rest_;
};

// FNV-1a, 64 bits. Not for secrecy: tells two long names apart that are equal once shortened.
std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

// `name` with the suffix; a name that must be cut carries a hash of the whole, so that two never become one.
std::string distinct_name(std::string_view name, const std::string& suffix) {
  if (name.size() + suffix.size() <= kMaxIdentifierBytes) return name_with_suffix(name, suffix);
  const auto hash = static_cast<std::uint32_t>(name_hash(name) >> 32);
  return name_with_suffix(name, fmt::format("_{:08x}{}", hash, suffix));
}

}  // namespace

std::string quote_identifier(std::string_view name) {
  if (name.empty()) throw Error(ErrorCode::spec_bad_value, "A name in SQL cannot be empty.");
  refuse_nul(name, "name");
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string display_identifier(std::string_view name) {
  const bool plain = !name.empty() && !is_digit(name.front()) && std::ranges::all_of(name, [](char c) {
    return is_lower(c) || is_digit(c) || c == '_';
  }) && !is_reserved_keyword(name);
  return plain ? std::string(name) : quote_identifier(name);
}

std::string parse_identifier(std::string_view text) {
  NameReader reader(text);
  std::vector<std::string> parts = reader.parts();
  if (parts.size() != 1) reader.fail("has a dot where one plain name belongs");
  return std::move(parts.front());
}

std::string quote_literal(std::string_view value) {
  refuse_nul(value, "value");
  const bool has_backslash = value.find('\\') != std::string_view::npos;
  std::string quoted = has_backslash ? "E'" : "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') quoted += c;
    quoted += c;
  }
  return quoted + '\'';
}

std::string quote_nullable(const std::optional<std::string>& value) {
  return value ? quote_literal(*value) : "NULL";
}

QualifiedName QualifiedName::parse(std::string_view text) {
  NameReader reader(text);
  std::vector<std::string> parts = reader.parts();
  if (parts.size() == 1) reader.fail("lacks its schema");
  if (parts.size() > 2) reader.fail("has more parts than schema and name");
  return {std::move(parts[0]), std::move(parts[1])};
}

std::string QualifiedName::sql() const { return quote_identifier(schema) + "." + quote_identifier(name); }

std::string QualifiedName::display() const {
  return display_identifier(schema) + "." + display_identifier(name);
}

std::string name_with_suffix(std::string_view name, std::string_view suffix) {
  if (suffix.size() > kMaxIdentifierBytes) {
    throw Error(ErrorCode::internal_error,
                fmt::format("The suffix '{}' is longer than a name may be.", suffix));
  }
  std::size_t length = std::min(name.size(), kMaxIdentifierBytes - suffix.size());
  const auto splits_character = [&] {
    return length > 0 && length < name.size() && (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80;
  };
  while (splits_character()) --length;
  return std::string(name.substr(0, length)).append(suffix);
}

GeneratedNames::GeneratedNames(const MigrationId& id) : hex_(id.short_hex()) {}

std::string GeneratedNames::shadow_column(std::string_view column) const {
  return distinct_name(column, "_cfnew_" + hex_);
}

std::string GeneratedNames::retired_column(std::string_view column) const {
  return distinct_name(column, "_cfold_" + hex_);
}

std::string GeneratedNames::twin(std::string_view object) const {
  return distinct_name(object, "_cftwin_" + hex_);
}

std::string GeneratedNames::retired(std::string_view object) const {
  return distinct_name(object, "_cfold_" + hex_);
}

std::string GeneratedNames::not_null_check(std::string_view column) const {
  return distinct_name(column, "_cfnn_" + hex_);
}

std::string GeneratedNames::function(std::string_view role) const { return distinct_name(role, "_" + hex_); }

// The tilde is the last printable ASCII character; only names in other scripts sort after it.
std::string GeneratedNames::trigger(std::string_view event) const {
  return distinct_name(fmt::format("~~~crossfade_{}", event), "_" + hex_);
}

std::string GeneratedNames::archive_table(std::string_view table) const {
  return distinct_name(table, "_cfarchive_" + hex_);
}

}  // namespace crossfade

#include <algorithm>

#include <fmt/format.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/identifier.hpp"

namespace crossfade {

namespace {

void append_element(std::string& out, std::string_view value) {
  if (value.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::spec_bad_value, "A value of an array contains a NUL byte, which SQL cannot hold.");
  }
  out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

// What array_out of PostgreSQL writes for one dimension: no blanks but inside quotes.
class ArrayReader {
 public:
  explicit ArrayReader(std::string_view text) : text_(text) {}

  std::vector<std::optional<std::string>> read() {
    std::vector<std::optional<std::string>> values;
    take('{');
    if (peek() == '}') {
      take('}');
    } else {
      for (bool more = true; more; more = next_is_comma()) values.push_back(element());
    }
    if (position_ != text_.size()) fail();
    return values;
  }

 private:
  // The text itself may hold row values and is not repeated.
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::internal_error, fmt::format("An array is malformed at byte {}.", position_ + 1));
  }

  char peek() const {
    if (position_ >= text_.size()) fail();
    return text_[position_];
  }

  char take() {
    const char c = peek();
    ++position_;
    return c;
  }

  void take(char expected) {
    if (peek() != expected) fail();
    ++position_;
  }

  bool next_is_comma() {
    const char c = peek();
    if (c != ',' && c != '}') fail();
    ++position_;
    return c == ',';
  }

  std::optional<std::string> element() { return peek() == '"' ? quoted() : unquoted(); }

  std::string quoted() {
    std::string value;
    take('"');
    while (peek() != '"') {
      if (peek() == '\\') take('\\');
      value += take();
    }
    take('"');
    return value;
  }

  std::optional<std::string> unquoted() {
    constexpr std::string_view kForbidden = "{\" \t\n\r\f\v";
    std::string value;
    while (peek() != ',' && peek() != '}') {
      if (kForbidden.find(peek()) != std::string_view::npos) fail();
      if (peek() == '\\') take('\\');
      value += take();
    }
    if (value.empty()) fail();
    if (value == "NULL") return std::nullopt;
    return value;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace

std::string array_literal(const std::vector<std::optional<std::string>>& values) {
  std::string out = "{";
  for (const std::optional<std::string>& value : values) {
    if (out.size() > 1) out += ',';
    if (value) {
      append_element(out, *value);
    } else {
      out += "NULL";
    }
  }
  return out + '}';
}

std::string array_literal(const Key& key) {
  return array_literal(std::vector<std::optional<std::string>>(key.parts.begin(), key.parts.end()));
}

std::vector<std::optional<std::string>> parse_array(std::string_view text) {
  return ArrayReader(text).read();
}

Key parse_key(std::string_view text) {
  Key key;
  for (std::optional<std::string>& part : parse_array(text)) {
    if (!part) throw Error(ErrorCode::internal_error, "A key has a NULL part.");
    key.parts.push_back(std::move(*part));
  }
  return key;
}

}  // namespace crossfade

// Strong types where two values of one representation could be swapped.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace crossfade {

// A migration's uuid in PostgreSQL's text form, drawn by the server (gen_random_uuid()).
struct MigrationId {
  std::string text;
  auto operator<=>(const MigrationId&) const = default;
  // The first twelve hexadecimal digits without dashes: the suffix of generated names.
  std::string short_hex() const;
};

// The order of phase changes and takeovers, for people.
struct Epoch {
  std::int64_t value = 0;
  auto operator<=>(const Epoch&) const = default;
};

// 128 random bits as uuid text, drawn by the server at each acquisition; what writers present.
struct Token {
  std::string text;
  auto operator<=>(const Token&) const = default;
};

struct Oid {
  std::uint32_t value = 0;
  auto operator<=>(const Oid&) const = default;
};

// One key value in key-column order, in PostgreSQL's text output under the pinned settings of a session.
// Never compared in C++: all ordering is PostgreSQL's.
struct Key {
  std::vector<std::string> parts;
  bool operator==(const Key&) const = default;
};

// A half-open range of keys: greater than low, not greater than high; an absent bound is open.
struct KeyRange {
  std::optional<Key> low;
  std::optional<Key> high;
  bool operator==(const KeyRange&) const = default;
};

}  // namespace crossfade

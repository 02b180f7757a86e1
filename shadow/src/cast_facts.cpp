#include "cast_facts.hpp"

#include <fmt/format.h>
#include <array>
#include <string_view>

#include "crossfade/core/error.hpp"

namespace crossfade {

namespace {

std::string text(Oid oid) { return std::to_string(oid.value); }

struct Pair {
  std::string_view from, to;
  Totality totality;
  std::string_view low, high;
  bool one_to_one;
};

constexpr std::string_view kIntegerLow = "-2147483648", kIntegerHigh = "2147483647";
constexpr std::string_view kSmallLow = "-32768", kSmallHigh = "32767";

// Casts between built-in types without a modifier whose behaviour on every value is known. Whatever is
// missing here is `partial`, which costs an exception block and nothing else.
constexpr auto kPairs = std::to_array<Pair>({
    {"smallint", "integer", Totality::total, "", "", true},
    {"smallint", "bigint", Totality::total, "", "", true},
    {"integer", "bigint", Totality::total, "", "", true},
    {"smallint", "numeric", Totality::total, "", "", true},
    {"integer", "numeric", Totality::total, "", "", true},
    {"bigint", "numeric", Totality::total, "", "", true},
    {"smallint", "real", Totality::total, "", "", true},
    {"smallint", "double precision", Totality::total, "", "", true},
    {"integer", "double precision", Totality::total, "", "", true},
    {"real", "double precision", Totality::total, "", "", true},
    {"smallint", "text", Totality::total, "", "", true},
    {"integer", "text", Totality::total, "", "", true},
    {"bigint", "text", Totality::total, "", "", true},
    {"boolean", "text", Totality::total, "", "", true},
    {"uuid", "text", Totality::total, "", "", true},
    {"character varying", "text", Totality::total, "", "", true},
    {"text", "character varying", Totality::total, "", "", true},
    {"bpchar", "text", Totality::total, "", "", false},
    {"bigint", "integer", Totality::guarded, kIntegerLow, kIntegerHigh, true},
    {"bigint", "smallint", Totality::guarded, kSmallLow, kSmallHigh, true},
    {"integer", "smallint", Totality::guarded, kSmallLow, kSmallHigh, true},
});

// pg_attribute.atttypmod of numeric(p,s): ((p << 16) | (s & 0x7ff)) + 4.
bool numeric_widens(int from, int to) {
  if (from < 0) return false;
  const auto precision = [](int m) { return ((m - 4) >> 16) & 0xffff; };
  const auto scale = [](int m) { return (((m - 4) & 0x7ff) ^ 1024) - 1024; };
  return scale(to) >= scale(from) && precision(to) - scale(to) >= precision(from) - scale(from);
}

}  // namespace

CastKind cast_kind(SqlSession& session, const TypeFacts& from, const TypeFacts& to) {
  if (from.base == to.base) return CastKind::assignment;
  const auto cast =
      session.exec("SELECT castcontext FROM pg_cast WHERE castsource = $1::oid AND casttarget = $2::oid",
                   {text(from.base), text(to.base)});
  if (!cast.empty()) return text_of(cast[0][0]) == "e" ? CastKind::explicit_only : CastKind::assignment;
  // PostgreSQL converts any type to a string type on assignment and from one on request, through text.
  const auto strings = session
                           .exec(
                               "SELECT (SELECT typcategory = 'S' FROM pg_type WHERE oid = $1::oid),"
                               " (SELECT typcategory = 'S' FROM pg_type WHERE oid = $2::oid)",
                               {text(from.base), text(to.base)})
                           .one("types");
  if (bool_of(strings[1])) return CastKind::assignment;
  if (bool_of(strings[0])) return CastKind::input_output;
  return CastKind::none;
}

std::optional<CastProof> cast_proof(const TypeFacts& from, const TypeFacts& to) {
  if (from.is_domain || to.is_domain || to.is_array) return std::nullopt;
  if (from.base == to.base) {
    const bool wider =
        to.typmod < 0 || to.typmod == from.typmod ||
        (to.base_text == "character varying" && from.typmod >= 0 && to.typmod >= from.typmod) ||
        (to.base_text == "numeric" && numeric_widens(from.typmod, to.typmod));
    if (wider) return CastProof{Totality::total, "", "", true};
    return std::nullopt;
  }
  if (to.typmod >= 0) return std::nullopt;
  for (const auto& pair : kPairs) {
    if (pair.from == from.base_text && pair.to == to.base_text) {
      return CastProof{pair.totality, std::string(pair.low), std::string(pair.high), pair.one_to_one};
    }
  }
  return std::nullopt;
}

std::string coerced_sql(SqlSession& session, const std::string& expression, const TypeFacts& type) {
  std::string sql = fmt::format("CAST(({}) AS {})", expression, type.base_text);
  if (type.typmod >= 0) {
    // The length coercion function of the type. With three arguments the last one says "explicit cast", which
    // would cut silently; false gives what an assignment gives.
    const auto function = session.exec(
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname), p.pronargs"
        " FROM pg_cast c JOIN pg_proc p ON p.oid = c.castfunc JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE c.castsource = $1::oid AND c.casttarget = $1::oid",
        {text(type.base)});
    if (function.empty()) {
      throw Error(ErrorCode::not_supported_yet,
                  "type " + type.text + " has a modifier that cannot be applied exactly",
                  "use the type without a modifier", type.text);
    }
    sql = fmt::format("{}({}, {}{})", text_of(function[0][0]), sql, type.typmod,
                      int_of(function[0][1]) == 3 ? ", false" : "");
  }
  if (type.is_domain) sql = fmt::format("CAST({} AS {})", sql, type.text);
  return sql;
}

}  // namespace crossfade

#include "expectation.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace crossfade {

namespace {

struct Bound {
  double value;
  bool percent;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits, with a fraction only before a percent sign. from_chars alone would take signs, exponents, inf and
// nan.
std::optional<Bound> parse_bound(std::string_view text) {
  Bound bound{0, text.ends_with('%')};
  if (bound.percent) text.remove_suffix(1);
  if (text.empty() || !is_digit(text.front()) || !is_digit(text.back())) return std::nullopt;
  const auto dots = std::ranges::count(text, '.');
  if (!std::ranges::all_of(text, [](char c) { return is_digit(c) || c == '.'; })) return std::nullopt;
  if (dots > (bound.percent ? 1 : 0)) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, bound.value);
  const double highest = bound.percent ? 100 : static_cast<double>(kMaxExpectedCount);
  if (failure != std::errc{} || rest != end || bound.value > highest) return std::nullopt;
  return bound;
}

}  // namespace

std::optional<Expectation> parse_expectation(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    const auto bound = parse_bound(text);
    if (!bound || !bound->percent) return std::nullopt;
    return Expectation{bound->value, bound->value, true, std::string(text)};
  }
  const auto low = parse_bound(text.substr(0, dots));
  const auto high = parse_bound(text.substr(dots + 2));
  if (!low || !high || low->percent != high->percent || low->value > high->value) return std::nullopt;
  return Expectation{low->value, high->value, low->percent, std::string(text)};
}

std::string canonical_text(const Expectation& expectation) {
  const std::string_view sign = expectation.percent ? "%" : "";
  return fmt::format("{}{}..{}{}", expectation.low, sign, expectation.high, sign);
}

bool Expectation::met_by(std::int64_t count, std::int64_t total) const {
  if (percent && total <= 0) return true;
  const auto counted = static_cast<double>(count);
  const double measured = percent ? counted * 100 / static_cast<double>(total) : counted;
  return low <= measured && measured <= high;
}

}  // namespace crossfade

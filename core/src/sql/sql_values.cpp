#include <fmt/format.h>

#include <charconv>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {
namespace {

template <class Number>
Number number_of(const SqlValue& value, std::string_view kind) {
  const std::string text = text_of(value);
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::internal_error,
                fmt::format("The server answered \"{}\" where {} was expected.", text, kind));
  }
  return number;
}

}  // namespace

const SqlResult::Row& SqlResult::one(std::string_view what) const {
  if (rows.empty())
    throw Error(ErrorCode::internal_error, fmt::format("The server gave no row for {}.", what));
  return rows.front();
}

std::string text_of(const SqlValue& value) {
  if (!value) throw Error(ErrorCode::internal_error, "The server answered NULL where a value was expected.");
  return *value;
}

std::int64_t int_of(const SqlValue& value) { return number_of<std::int64_t>(value, "an integer"); }

double double_of(const SqlValue& value) { return number_of<double>(value, "a number"); }

bool bool_of(const SqlValue& value) {
  const std::string text = text_of(value);
  if (text != "t" && text != "f") {
    throw Error(ErrorCode::internal_error,
                fmt::format("The server answered \"{}\" where a boolean was expected.", text));
  }
  return text == "t";
}

}  // namespace crossfade

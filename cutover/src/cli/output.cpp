#include "output.hpp"

#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

namespace crossfade::cli {

namespace {

// errno, or 0 when everything was written.
int write(std::FILE* stream, std::string_view text) {
  errno = 0;
  const bool done =
      std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
  return done ? 0 : errno != 0 ? errno : EIO;
}

}  // namespace

Json text_or_null(std::string_view text) { return text.empty() ? Json() : Json(text); }

Json parsed(std::string_view text) { return Json::parse(text); }

Json error_object(const Error& error) {
  Json object{{"error",
               {{"code", static_cast<int>(error.code())},
                {"name", error.name()},
                {"message", error.message()},
                {"object", text_or_null(error.object())},
                {"hint", text_or_null(error.hint())},
                {"exit", error.exit_status()},
                {"sqlstate", text_or_null(error.sqlstate())}}}};
  if (!error.blockers().empty()) object["error"]["blockers"] = parsed(error.blockers());
  return object;
}

void Output::print(std::string_view text) const {
  const int failure = write(stdout, text);
  if (write_failure_ == 0) write_failure_ = failure;
}

void Output::object(const Json& json) const {
  // Bytes that are no UTF-8 (an argument, for example) must not turn an answer into an exception.
  print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Output::notice(std::string_view sentence) const {
  if (quiet() || json()) return;
  write(stderr, fmt::format("crossfade: {}\n", visible(sentence)));
}

void Output::ask(std::string_view question) const { write(stderr, question); }

void Output::error(const Error& error) const {
  if (json()) {
    object(error_object(error));
    return;
  }
  std::string text = fmt::format("{} {}\n", error_style_.red("crossfade:"), visible(error.message()));
  if (!error.hint().empty()) text += fmt::format("hint: {}\n", visible(error.hint()));
  write(stderr, text);
}

}  // namespace crossfade::cli

// The two doors to the outside: answers on stdout, everything else on stderr. With --json stdout holds JSON
// only, one object a line, errors included.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "crossfade/core/error.hpp"
#include "terminal.hpp"

namespace crossfade::cli {

// Keys keep the order in which they were set.
using Json = nlohmann::ordered_json;

// {"error":{"code","name","message","object","hint","exit","sqlstate"}}; what is not known is null.
Json error_object(const Error& error);
// Null for an empty text.
Json text_or_null(std::string_view text);
// The JSON that a library call returned as text.
Json parsed(std::string_view text);

class Output {
 public:
  enum class Form { text, json };
  enum class Volume { normal, quiet };
  Output(Form form, Volume volume) : form_(form), volume_(volume), style_(1), error_style_(2) {}

  bool json() const { return form_ == Form::json; }
  bool quiet() const { return volume_ == Volume::quiet; }
  const Style& style() const { return style_; }

  // To stdout as it is. Requires: not json(), unless the text is JSON.
  void print(std::string_view text) const;
  // One line on stdout.
  void object(const Json& json) const;
  // A sentence on stderr; nothing with -q or --json.
  void notice(std::string_view sentence) const;
  // A question on stderr, without a line feed. Requires: not json().
  void ask(std::string_view question) const;
  // The error object on stdout with --json, else "crossfade: …" and "hint: …" lines on stderr.
  void error(const Error& error) const;
  // errno of the first answer that could not be written (a full disk, EPIPE for a reader that has gone); 0:
  // none.
  int write_failure() const { return write_failure_; }

 private:
  Form form_;
  Volume volume_;
  Style style_, error_style_;
  mutable int write_failure_ = 0;
};

}  // namespace crossfade::cli

#include "run.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string_view>

#include <fmt/format.h>

#include "app.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/core/sql_session.hpp"

namespace crossfade::cli {

namespace {

// Known before the arguments are understood, since they may not be.
bool wants_json(const std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  return std::find(arguments.begin(), end, "--json") != end;
}

// Before anything is printed: an error about another argument must not be the first to show this one.
void refuse_passwords(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (const std::string_view option : {"--dsn", "--read-dsn"}) {
      const bool has_value = i + 1 < arguments.size() && !arguments[i + 1].starts_with('-');
      if (arguments[i] == option && has_value) refuse_password(arguments[i + 1]);
      const std::string with_value = fmt::format("{}=", option);
      if (arguments[i].starts_with(with_value)) refuse_password(arguments[i].substr(with_value.size()));
    }
  }
}

void configure_log(const Globals& globals) {
  log::Level level = globals.log_file.empty() ? log::Level::warn : log::Level::info;
  if (globals.quiet) level = log::Level::error;
  if (globals.verbosity == 1) level = log::Level::info;
  if (globals.verbosity > 1) level = log::Level::debug;
  log::configure({.level = level, .file = globals.log_file});
}

int tell(const Output& output, const Error& error) {
  log::write(log::Level::info, "command_failed",
             {{"error", std::string(error.name())},
              {"exit", std::to_string(error.exit_status())},
              {"sqlstate", error.sqlstate()}});
  output.error(error);
  return error.exit_status();
}

// Runs `action`; whatever it throws is told.
template <class Action>
int told(const Output& output, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    return tell(output, error);
  } catch (const std::exception& failure) {
    return tell(output, Error(ErrorCode::internal_error, failure.what(), "Please report this."));
  }
}

// A reader who has gone (EPIPE) has what he wanted; an answer that is lost otherwise is no success.
int with_lost_answer(const Output& output, int status) {
  if (output.write_failure() == 0 || output.write_failure() == EPIPE || status != 0) return status;
  const Error error(
      ErrorCode::internal_error,
      fmt::format("The answer could not be written: {}.", std::strerror(output.write_failure())),
      "What was asked for is done; crossfade status shows it.");
  Output(Output::Form::text, Output::Volume::normal).error(error);
  return error.exit_status();
}

int run_invocation(const Output& output, const Invocation& invocation) {
  const Globals& globals = invocation.globals;
  configure_log(globals);
  return invocation.run({globals, output});
}

}  // namespace

int run(const std::vector<std::string>& arguments) {
  const auto form = wants_json(arguments) ? Output::Form::json : Output::Form::text;
  const Output before_parsing(form, Output::Volume::normal);
  return told(before_parsing, [&] {
    install_signals();
    refuse_passwords(arguments);
    const Invocation invocation = parse(arguments);
    const Output output(form, invocation.globals.quiet ? Output::Volume::quiet : Output::Volume::normal);
    const int status = told(output, [&] { return run_invocation(output, invocation); });
    return with_lost_answer(output, status);
  });
}

}  // namespace crossfade::cli

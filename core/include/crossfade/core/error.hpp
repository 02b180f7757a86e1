// The one exception of Crossfade: a closed code with a stable number, and what a caller may do about it.
// Expected answers (findings, outcomes, guards that say "not yet") are values, not exceptions.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace crossfade {

// Numbers are stable and never reused; the tens group by exit class.
enum class ErrorCode : int {
  // exit 2: usage or spec; nothing was touched
  usage_error = 10,
  spec_syntax = 11,
  spec_unknown_key = 12,
  spec_missing_key = 13,
  spec_bad_value = 14,
  spec_unreadable = 15,
  password_in_dsn = 16,
  tuning_out_of_bounds = 17,
  unknown_tuning_key = 18,
  unknown_phase = 19,
  unknown_finding = 20,
  failpoint_syntax = 21,
  connection_pooled = 22,
  // exit 3: refused or not yet; nothing changed
  finding_refused = 30,
  not_ready = 31,
  soak_not_over = 32,
  confirmation_missing = 33,
  lock_attempts_exhausted = 34,
  spec_conflict = 35,
  table_has_migration = 36,
  rollback_refused = 37,
  illegal_transition = 38,
  not_initialized = 39,
  unknown_migration = 40,
  schema_version = 41,
  expectation_missed = 42,
  not_supported_yet = 43,
  schema_in_use = 44,
  identity_mismatch = 45,
  permission_denied = 46,
  paused = 47,
  rejects_open = 48,
  undefined_table = 49,
  undefined_column = 50,
  old_snapshot = 51,
  request_cancelled = 52,
  trigger_fails = 53,
  hook_failed = 54,
  // exit 4: failed; the state is intact, run again or roll back
  phase_failed = 60,
  statement_failed = 61,
  too_many_rejects = 62,
  table_changed = 63,
  rows_suppressed = 64,
  differences_found = 65,
  fingerprint_changed = 66,
  standby_behind = 67,
  standby_mismatch = 68,
  internal_error = 69,
  // exit 5: PostgreSQL is unavailable; the state is intact
  server_unreachable = 70,
  connection_lost = 71,
  authentication_failed = 72,
  read_only_server = 73,
  server_too_old = 74,
  // exit 6
  busy = 80,
  superseded = 81,
  // exit 7
  outcome_unknown = 90,
  // exit 130
  interrupted = 100,
  // exit 3 again: its tens are full
  worker_mismatch = 110,
  unknown_unit = 111,
};

enum class Disposition {
  retry,         // the same call may succeed; only with Effect::none
  refuse,        // the answer is no until something changes
  ask_operator,  // a person has to look
  bug,           // cannot happen; report it
};

enum class Effect {
  none,     // nothing was changed
  applied,  // the change is durable
  unknown,  // COMMIT was sent and its answer lost
};

// One row of the table of codes; docs/cli.md is compared with it by a test.
struct ErrorInfo {
  ErrorCode code;
  std::string_view name;
  int exit_status;
  Disposition disposition;
  std::string_view meaning;
};

std::span<const ErrorInfo> error_table();
const ErrorInfo& error_info(ErrorCode code);

class Error : public std::exception {
 public:
  // message: a full sentence that names the object. hint: what to do. object: the thing, quoted as SQL would.
  Error(ErrorCode code, std::string message, std::string hint = {}, std::string object = {});

  // A transient one turns the disposition of statement_failed into retry.
  Error& with_sqlstate(std::string sqlstate);
  Error& with_effect(Effect effect);
  // Who stands in the way, as a JSON array (lock_attempts.hpp).
  Error& with_blockers(std::string blockers);

  const char* what() const noexcept override { return message_.c_str(); }
  ErrorCode code() const noexcept { return code_; }
  std::string_view name() const { return error_info(code_).name; }
  int exit_status() const { return error_info(code_).exit_status; }
  Disposition disposition() const noexcept { return disposition_; }
  Effect effect() const noexcept { return effect_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& hint() const noexcept { return hint_; }
  const std::string& object() const noexcept { return object_; }
  // Five characters, or empty when the error did not come from PostgreSQL.
  const std::string& sqlstate() const noexcept { return sqlstate_; }
  // A JSON array, or empty when the error is not about locks.
  const std::string& blockers() const noexcept { return blockers_; }

  // 40001 and 40P01, lock_timeout, statement_timeout and cancel, by SQLSTATE.
  bool is_serialization_or_deadlock() const;
  bool is_lock_not_available() const;
  bool is_query_canceled() const;
  // Undone by the server for reasons of concurrency or of our own timers: smaller, careful, never a reject.
  bool is_transient() const;
  // The statement failed on a value: classes 20, 21, 22, 23, 2F, 38, 39, 54, HV, P0, and every class that
  // PostgreSQL does not define, since only the user's functions raise those. Not class 42, which is about the
  // statement and not the row, not 0A, which a changed table raises, and not CF, which our own guards raise.
  bool is_data_error() const;

 private:
  ErrorCode code_;
  Disposition disposition_;
  Effect effect_ = Effect::none;
  std::string message_, hint_, object_, sqlstate_, blockers_;
};

}  // namespace crossfade

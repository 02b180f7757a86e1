#include "crossfade/core/error.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace crossfade {

namespace {

using enum ErrorCode;
using enum Disposition;

constexpr ErrorInfo kErrors[] = {
    {usage_error, "usage_error", 2, refuse, "The command line is not one that crossfade understands."},
    {spec_syntax, "spec_syntax", 2, refuse, "The spec file is not valid TOML."},
    {spec_unknown_key, "spec_unknown_key", 2, refuse,
     "The spec file has a key that crossfade does not know."},
    {spec_missing_key, "spec_missing_key", 2, refuse, "The spec file lacks a key that has no default."},
    {spec_bad_value, "spec_bad_value", 2, refuse, "A value or a name is not one that is allowed there."},
    {spec_unreadable, "spec_unreadable", 2, refuse, "The spec file cannot be read."},
    {password_in_dsn, "password_in_dsn", 2, refuse,
     "The connection string holds a password, which other users of the host could see."},
    {tuning_out_of_bounds, "tuning_out_of_bounds", 2, refuse, "A tuning value lies outside its bounds."},
    {unknown_tuning_key, "unknown_tuning_key", 2, refuse, "There is no tuning key of that name."},
    {unknown_phase, "unknown_phase", 2, refuse, "There is no phase of that name."},
    {unknown_finding, "unknown_finding", 2, refuse, "There is no finding with that id."},
    {failpoint_syntax, "failpoint_syntax", 2, refuse, "CROSSFADE_FAILPOINTS cannot be understood."},
    {connection_pooled, "connection_pooled", 2, refuse,
     "The connection leads to a connection pooler (PgBouncer or its like) instead of PostgreSQL."},

    {finding_refused, "finding_refused", 3, refuse,
     "A preflight finding refuses, and nobody has accepted it."},
    {not_ready, "not_ready", 3, refuse, "A guard of the phase does not hold yet."},
    {soak_not_over, "soak_not_over", 3, refuse, "The time between the switch and the drop is not over."},
    {confirmation_missing, "confirmation_missing", 3, refuse,
     "The step cannot be undone and was not confirmed by name."},
    {lock_attempts_exhausted, "lock_attempts_exhausted", 3, refuse,
     "The lock was not free within the allowed number of attempts."},
    {spec_conflict, "spec_conflict", 3, refuse, "An open migration of that name has another spec."},
    {table_has_migration, "table_has_migration", 3, refuse, "The table already has an open migration."},
    {rollback_refused, "rollback_refused", 3, refuse, "The migration cannot go back from here."},
    {illegal_transition, "illegal_transition", 3, refuse,
     "The transition table has no row for this event in this phase and status."},
    {not_initialized, "not_initialized", 3, refuse, "The database has no crossfade schema."},
    {unknown_migration, "unknown_migration", 3, refuse, "There is no migration of that name or id."},
    {schema_version, "schema_version", 3, refuse,
     "The crossfade schema was written by a version that this one does not work with."},
    {expectation_missed, "expectation_missed", 3, refuse,
     "The dry run found something else than [expect] says."},
    {ErrorCode::not_supported_yet, "not_supported_yet", 3, refuse, "This version cannot do that."},
    {schema_in_use, "schema_in_use", 3, refuse,
     "The crossfade schema cannot be removed while a migration is open."},
    {identity_mismatch, "identity_mismatch", 3, refuse,
     "The state was written on another cluster, database or timeline."},
    {permission_denied, "permission_denied", 3, refuse, "The role lacks a privilege that the step needs."},
    {paused, "paused", 3, refuse, "An operator holds the migration."},
    {rejects_open, "rejects_open", 3, refuse, "Rows whose expression fails are still open."},
    {undefined_table, "undefined_table", 3, refuse,
     "The table does not exist or is not visible to the role."},
    {undefined_column, "undefined_column", 3, refuse, "The table has no column of that name."},
    {old_snapshot, "old_snapshot", 3, refuse,
     "A transaction or slot is old enough to read the shadow as it was before it was filled."},
    {request_cancelled, "request_cancelled", 3, refuse,
     "Somebody cancelled the phase change while it waited."},
    {trigger_fails, "trigger_fails", 3, refuse,
     "A trigger of the table that works now would fail after the switch or the way back."},
    {hook_failed, "hook_failed", 3, refuse, "A hook that runs before a phase failed, which is its veto."},
    {worker_mismatch, "worker_mismatch", 3, refuse,
     "A worker process is of another version than the runner, or reads the spec otherwise."},
    {unknown_unit, "unknown_unit", 3, refuse, "There is no unit of that number, or no key of that form."},

    {phase_failed, "phase_failed", 4, ask_operator, "The phase is in status failed."},
    {statement_failed, "statement_failed", 4, ask_operator, "PostgreSQL refused a statement."},
    {too_many_rejects, "too_many_rejects", 4, ask_operator,
     "More rows were rejected than max_rejects allows."},
    {table_changed, "table_changed", 4, ask_operator, "The table is no longer the one that was planned for."},
    {rows_suppressed, "rows_suppressed", 4, ask_operator,
     "A trigger, rule or policy kept rows from being written."},
    {differences_found, "differences_found", 4, ask_operator,
     "The comparison found rows whose two sides differ."},
    {fingerprint_changed, "fingerprint_changed", 4, ask_operator,
     "Someone changed the triggers or functions that keep the two sides in step."},
    {standby_behind, "standby_behind", 4, ask_operator,
     "The standby that should be read does not show in time what the primary has committed."},
    {standby_mismatch, "standby_mismatch", 4, ask_operator,
     "The server that should be read is not a standby of this primary."},
    {internal_error, "internal_error", 4, bug, "Something happened that cannot happen; please report it."},

    {server_unreachable, "server_unreachable", 5, retry, "No connection to PostgreSQL could be made."},
    {connection_lost, "connection_lost", 5, retry, "The connection to PostgreSQL went away."},
    {authentication_failed, "authentication_failed", 5, ask_operator, "PostgreSQL does not let the role in."},
    {read_only_server, "read_only_server", 5, ask_operator,
     "The server is in recovery and cannot be written."},
    {server_too_old, "server_too_old", 5, ask_operator, "The server is older than PostgreSQL 14."},

    {busy, "busy", 6, refuse, "Another runner holds the migration."},
    {superseded, "superseded", 6, refuse, "Another runner took the migration over."},

    {outcome_unknown, "outcome_unknown", 7, ask_operator,
     "It could not be determined whether the step took effect."},

    {interrupted, "interrupted", 130, refuse, "A signal ended the command, cleanly."},
};

bool has_class(std::string_view sqlstate, std::string_view two) { return sqlstate.substr(0, 2) == two; }

// Classes that PostgreSQL 15 to 17 define (errcodes.txt) and that say nothing about the row at hand, and CF,
// which the guards in our own DO blocks raise. Any other class was made up by the user's RAISE … USING
// ERRCODE.
constexpr std::array<std::string_view, 33> kNotAboutData{
    "00", "01", "02", "03", "08", "09", "0B", "0F", "0L", "0P", "0Z", "24", "25", "26", "27", "28", "2B",
    "2D", "34", "3B", "3D", "3F", "40", "42", "44", "53", "55", "57", "58", "72", "F0", "XX", "CF"};

}  // namespace

std::span<const ErrorInfo> error_table() { return kErrors; }

const ErrorInfo& error_info(ErrorCode code) {
  const auto* row = std::ranges::find(kErrors, code, &ErrorInfo::code);
  if (row == std::end(kErrors)) std::abort();
  return *row;
}

Error::Error(ErrorCode code, std::string message, std::string hint, std::string object)
    : code_(code),
      disposition_(error_info(code).disposition),
      message_(std::move(message)),
      hint_(std::move(hint)),
      object_(std::move(object)) {}

Error& Error::with_sqlstate(std::string sqlstate) {
  sqlstate_ = std::move(sqlstate);
  if (code_ == ErrorCode::statement_failed && is_transient()) disposition_ = Disposition::retry;
  return *this;
}

Error& Error::with_blockers(std::string blockers) {
  blockers_ = std::move(blockers);
  return *this;
}

Error& Error::with_effect(Effect effect) {
  effect_ = effect;
  return *this;
}

bool Error::is_serialization_or_deadlock() const { return sqlstate_ == "40001" || sqlstate_ == "40P01"; }
bool Error::is_lock_not_available() const { return sqlstate_ == "55P03"; }
bool Error::is_query_canceled() const { return sqlstate_ == "57014"; }

bool Error::is_transient() const {
  return is_serialization_or_deadlock() || is_lock_not_available() || is_query_canceled();
}

bool Error::is_data_error() const {
  if (sqlstate_.size() != 5) return false;
  return std::ranges::none_of(kNotAboutData, [&](std::string_view two) { return has_class(sqlstate_, two); });
}

}  // namespace crossfade

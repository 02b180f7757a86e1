#include "session_settings.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace crossfade {
namespace {

// Known to every supported server and settable by every role.
constexpr auto kSettings = std::to_array<std::pair<const char*, const char*>>({
    {"search_path", "pg_catalog"},
    {"row_security", "off"},  // a filtered read fails instead of hiding rows
    {"DateStyle", "ISO, YMD"},
    {"IntervalStyle", "postgres"},
    {"TimeZone", "UTC"},
    {"extra_float_digits", "3"},
    {"bytea_output", "hex"},
    {"quote_all_identifiers", "off"},
    {"standard_conforming_strings", "on"},
    {"transform_null_equals", "off"},
    {"array_nulls", "on"},
    {"xmloption", "content"},
    {"check_function_bodies", "on"},
    {"client_encoding", "UTF8"},
    {"client_min_messages", "warning"},
    {"lock_timeout", "0"},
    {"statement_timeout", "0"},
    {"idle_session_timeout", "0"},
    {"idle_in_transaction_session_timeout", "60s"},
    // A client that vanished without a word: the server ends its transaction within half a minute. (No effect
    // on a local socket, which closes with the client.)
    {"tcp_keepalives_idle", "10"},
    {"tcp_keepalives_interval", "5"},
    {"tcp_keepalives_count", "4"},
    {"tcp_user_timeout", "30s"},
    {"default_transaction_isolation", "read committed"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_deferrable", "off"},
    {"synchronous_commit", "on"},
    {"jit", "off"},
});

}  // namespace

std::string pin_settings_sql() {
  std::string sql = "SELECT ";
  for (const auto& [name, value] : kSettings)
    sql += fmt::format("pg_catalog.set_config('{}','{}',false),", name, value);
  // Newer than the oldest server, or reserved to superusers and only then able to differ.
  sql +=
      "CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 170000"
      " THEN pg_catalog.set_config('transaction_timeout','0',false) END,"
      "CASE WHEN pg_catalog.current_setting('session_replication_role') OPERATOR(pg_catalog.<>) 'origin'"
      " THEN pg_catalog.set_config('session_replication_role','origin',false) END";
  return sql;
}

std::string identity_sql() {
  return "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean,"
         " (SELECT oid FROM pg_database WHERE datname = current_database()),"
         " CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END,"
         " has_function_privilege('pg_control_system()', 'EXECUTE')"
         " AND has_function_privilege('pg_control_checkpoint()', 'EXECUTE')";
}

std::string control_file_sql() {
  return "SELECT s.system_identifier, upper(lpad(to_hex(c.timeline_id), 8, '0'))"
         " FROM pg_control_system() s, pg_control_checkpoint() c";
}

}  // namespace crossfade

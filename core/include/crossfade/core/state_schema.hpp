// Schema crossfade in the user's database: versioned, so that state and effect commit together.
#pragma once

#include <string>

#include "crossfade/core/sql_session.hpp"

namespace crossfade {

// Bumped whenever a table of the schema changes; a binary and a schema of different versions refuse each
// other.
inline constexpr int kSchemaVersion = 5;

// The binary's version, as --version prints it.
std::string crossfade_version();

enum class SchemaPresence { absent, current, older, newer };
SchemaPresence schema_presence(SqlSession& session);

// Creates the schema in one transaction; a current one is left alone (returns false). Two at once: one wins,
// the other finds it current. Throws permission_denied with the GRANT, schema_version for a newer or older
// one.
bool install_schema(SqlSession& session);
// Statements of the schema, for `plan` inside its rolled-back transaction.
std::string schema_sql();

// Drops the schema. Throws schema_in_use while a migration is open or another role's object depends on it.
void remove_schema(SqlSession& session);

// Throws not_initialized or schema_version unless the schema is current.
void require_schema(SqlSession& session);

}  // namespace crossfade

// PL/pgSQL functions that name the table and the column, by their text. A session that has run one keeps its
// expressions planned for the old type of a record's field and fails with 42804, and keeps the old type of a
// %TYPE variable. Altering the function to what it is makes every session compile it anew.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/sql_session.hpp"
#include "crossfade/shadow/binding.hpp"

namespace crossfade {

struct PlpgsqlReader {
  std::string signature;
  std::string alter_sql;  // empty when the role may not alter it
};

// Trigger functions of this table alone are left out: their triggers are made again.
std::vector<PlpgsqlReader> plpgsql_readers(SqlSession& session, Oid table, const std::string& table_name,
                                           const std::string& column);

// For the statements of a switch, in either direction.
std::string recompile_functions_sql(SqlSession& session, const Migration& migration,
                                    const QualifiedName& table);

}  // namespace crossfade

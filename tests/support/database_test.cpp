#include "support/database_test.hpp"

#include <fmt/format.h>

namespace crossfade::test {
namespace {

std::string first_field(const SqlResult& result, const std::string& text) {
  const SqlResult::Row& row = result.one(text);
  return row.at(0).value_or("NULL");
}

}  // namespace

DatabaseTest::DatabaseTest() : database_(server().create_database()) {}

PostgresServer& DatabaseTest::server() {
  static PostgresServer one;
  return one;
}

SqlResult DatabaseTest::run(LastingSession& lasting, const std::string& dsn, const std::string& text,
                            const SqlParams& params) {
  if (!lasting.session || !lasting.session->is_open() || lasting.start != server().starts()) {
    lasting.session = open_session(dsn);
    lasting.start = server().starts();
  }
  return params.empty() ? lasting.session->script(text) : lasting.session->exec(text, params);
}

SqlResult DatabaseTest::sql(const std::string& text, const SqlParams& params) {
  return run(owner_, dsn(), text, params);
}

SqlResult DatabaseTest::super_sql(const std::string& text, const SqlParams& params) {
  return run(super_, superuser_dsn(), text, params);
}

std::string DatabaseTest::value(const std::string& text, const SqlParams& params) {
  return first_field(sql(text, params), text);
}

std::string DatabaseTest::super_value(const std::string& text, const SqlParams& params) {
  return first_field(super_sql(text, params), text);
}

void DatabaseTest::wait_until_true(const std::string& text, const SqlParams& params) {
  wait_until([&] { return super_value(text, params) == "t"; }, text);
}

void DatabaseTest::wait_until_blocked(int backend_pid) {
  wait_until_true(
      fmt::format("SELECT count(*) > 0 FROM pg_locks WHERE pid = {} AND NOT granted", backend_pid));
}

}  // namespace crossfade::test

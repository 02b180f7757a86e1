// Measures libpq as tests/drivers/run.sh explains: libpq.cpp CONNINFO, a line of the table each.
#include <libpq-fe.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace {

using Connection = std::unique_ptr<PGconn, void (*)(PGconn*)>;

Connection connect(const char* conninfo) { return {PQconnectdb(conninfo), PQfinish}; }

// "ok" or the SQLSTATE.
std::string state_of(PGresult* result) {
  const std::unique_ptr<PGresult, void (*)(PGresult*)> owned(result, PQclear);
  const auto status = PQresultStatus(result);
  if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) return "ok";
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  return state == nullptr ? "lost" : state;
}

std::string run(const Connection& c, const std::string& sql) {
  return state_of(PQexec(c.get(), sql.c_str()));
}

enum class Way { prepared, unnamed };

std::string query(const Connection& c, Way way, const std::string& sql) {
  const char* value = "1";
  return state_of(way == Way::prepared
                      ? PQexecPrepared(c.get(), "q", 1, &value, nullptr, nullptr, 0)
                      : PQexecParams(c.get(), sql.c_str(), 1, nullptr, &value, nullptr, nullptr, 0));
}

void measure(const char* conninfo, Way way, const std::string& event, bool inside) {
  const auto other = connect(conninfo), c = connect(conninfo);
  const std::string reset = std::getenv("RESET_SQL"), change = std::getenv((event + "_SQL").c_str());
  const std::string sql = std::getenv((event + "_QUERY").c_str());
  if (run(other, reset) != "ok") std::exit(1);
  if (way == Way::prepared) PQclear(PQprepare(c.get(), "q", sql.c_str(), 0, nullptr));
  for (int i = 0; i < 10; ++i) {
    if (query(c, way, sql) != "ok") std::exit(1);
  }
  if (run(other, change) != "ok") std::exit(1);
  std::string results;
  for (int i = 0; i < 3; ++i) {
    if (inside) run(c, "BEGIN");
    results += (i == 0 ? "" : " ") + query(c, way, sql);
    if (inside) run(c, "ROLLBACK");
  }
  std::printf("libpq|%s|%s|%s|%s\n", way == Way::prepared ? "PQprepare" : "PQexecParams", event.c_str(),
              inside ? "inside" : "outside", results.c_str());
}

}  // namespace

int main(int, char** arguments) {
  for (const Way way : {Way::prepared, Way::unnamed}) {
    for (const char* event : {"ADD", "SWITCH"}) {
      for (const bool inside : {false, true}) measure(arguments[1], way, event, inside);
    }
  }
}

#include "crossfade/core/worker_rows.hpp"

#include <fmt/format.h>

namespace crossfade {

namespace {

// The start of another role's backend is hidden from us; then its pid decides: the careful answer.
constexpr const char* kBackendThere =
    "EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = w.pid"
    " AND coalesce(a.backend_start, w.backend_start) = w.backend_start)";

std::string live() {
  return fmt::format("w.migration_id = $1 AND w.last_seen > clock_timestamp() - interval '{} s' AND {}",
                     kWorkerSilence, kBackendThere);
}

}  // namespace

WorkerRegistration::WorkerRegistration(SqlSession& session, const MigrationId& id, WorkerRow row)
    : session_(session), id_(id), row_(std::move(row)) {
  session_.exec(
      fmt::format("DELETE FROM crossfade.worker w WHERE w.migration_id = $1 AND NOT {}", kBackendThere),
      {id_.text});
  insert();
}

WorkerRegistration::~WorkerRegistration() {
  try {
    session_.exec("DELETE FROM crossfade.worker WHERE id = $1::bigint", {std::to_string(row_.id)});
  } catch (const std::exception&) {
    // With the session the row is dead too; the next one to register takes it away.
  }
}

void WorkerRegistration::insert() {
  row_.id = int_of(
      session_
          .exec("INSERT INTO crossfade.worker (migration_id, host, operator, process_id, pid, backend_start,"
                " version, spec_hash, threads, state) SELECT $1::uuid, $2, $3, $4::integer, pg_backend_pid(),"
                " (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),"
                " $5, $6, $7::integer, $8 RETURNING id",
                {id_.text, row_.host, row_.operator_name, std::to_string(row_.process_id), row_.version,
                 row_.spec_hash, std::to_string(row_.threads), row_.state})
          .one("worker")[0]);
}

void WorkerRegistration::touch(const std::string& state) {
  row_.state = state;
  const auto touched = session_.exec_prepared(
      "UPDATE crossfade.worker SET last_seen = clock_timestamp(), state = $2 WHERE id = $1::bigint",
      {std::to_string(row_.id), state});
  if (touched.affected_rows == 0) insert();
}

std::vector<WorkerRow> live_workers(SqlSession& session, const MigrationId& id) {
  std::vector<WorkerRow> rows;
  for (const auto& row :
       session
           .exec("SELECT w.id, w.operator, w.host, w.process_id, w.pid, w.version, w.spec_hash, w.threads,"
                 " w.state, w.since, extract(epoch FROM clock_timestamp() - w.last_seen)"
                 " FROM crossfade.worker w WHERE " +
                     live() + " ORDER BY w.id",
                 {id.text})
           .rows) {
    rows.push_back({int_of(row[0]), text_of(row[1]), text_of(row[2]), static_cast<int>(int_of(row[3])),
                    static_cast<int>(int_of(row[4])), text_of(row[5]), text_of(row[6]),
                    static_cast<int>(int_of(row[7])), text_of(row[8]), text_of(row[9]), double_of(row[10])});
  }
  return rows;
}

int live_worker_threads(SqlSession& session, const MigrationId& id) {
  return static_cast<int>(
      int_of(session
                 .exec_prepared("SELECT coalesce(sum(w.threads), 0) FROM crossfade.worker w WHERE " + live(),
                                {id.text})
                 .one("workers")[0]));
}

}  // namespace crossfade

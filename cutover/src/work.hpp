// One more worker process: sweeps under the token of whoever runs the migration, and never takes its lease.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossfade/core/worker_rows.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "crossfade/shadow/sweep.hpp"
#include "runner.hpp"

namespace crossfade {

class Work {
 public:
  // Registers. Throws worker_mismatch.
  Work(Runner::Setup setup, const WorkOptions& options);

  // Until there is nothing to sweep any more.
  WorkReport run();

 private:
  struct View;
  View look();
  void require_same(const MigrationRow& leader, const std::string& runner_version);
  void sweep(const View& view);
  bool moved_on(const Migration& migration);
  void fail_the_phase(const Migration& migration, const Error& error);
  void wait(const View& view);
  void report(const Migration& migration, std::int64_t pass, const std::string& note);
  Sweep& sweep_of(const Migration& migration, const PassRow& pass);
  void keep_only(const View& view);
  void check() const;

  Runner::Setup setup_;
  WorkOptions options_;
  SqlSession session_;
  CursorCache cache_;
  ControlListener listener_;
  std::optional<WorkerRegistration> registration_;
  std::map<std::string, std::unique_ptr<Sweep>> sweeps_;  // by what each was made for
  std::string told_;                                      // what it waits for, as the listener heard it last
  WorkReport report_;
};

}  // namespace crossfade

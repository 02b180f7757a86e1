// What the files that implement Migrator share.
#pragma once

#include <string>
#include <vector>

#include "crossfade/core/cursor_cache.hpp"
#include "crossfade/core/sql_session.hpp"
#include "crossfade/core/state_store.hpp"
#include "crossfade/cutover/migrator.hpp"
#include "hooks.hpp"
#include "registration.hpp"
#include "runner.hpp"

namespace crossfade {

struct Migrator::Impl {
  MigratorOptions options;
  ProgressListener* listener = nullptr;

  SqlSession connect(const std::string& name, const std::string& role) const;
  // connect, and the schema must be there.
  SqlSession open(const std::string& name, const std::string& role) const;
  MigrationRow resolve(SqlSession& session, const MigrationRef& ref) const;
  void require_identity(const SqlSession& session, const MigrationRow& row) const;
  Runner::Setup runner_setup(const MigrationRow& row, std::atomic<bool>& stop) const;
  HookContext hook_context(std::atomic<bool>& stop) const;
  void store_acceptances(SqlSession& session, const MigrationRow& row,
                         const std::vector<Acceptance>& accept) const;
};

}  // namespace crossfade

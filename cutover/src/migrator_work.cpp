// The verbs of the sweep: work and redrive.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "crossfade/shadow/units.hpp"
#include "migrator_impl.hpp"
#include "work.hpp"

namespace crossfade {

WorkReport Migrator::work(const MigrationRef& ref, const WorkOptions& options) {
  auto session = impl_->open(ref.name, "work");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  if (options.threads < 0 || options.threads > 64) {
    throw Error(ErrorCode::usage_error, fmt::format("{} workers are not 1 to 64", options.threads));
  }
  return Work(impl_->runner_setup(row, stop_), options).run();
}

namespace {

std::string detail_of(const RedriveOptions& options) {
  auto detail = nlohmann::json::object();
  if (options.all) detail["all"] = true;
  if (options.unit) detail["unit"] = *options.unit;
  if (options.from) detail["from"] = *options.from;
  if (options.to) detail["to"] = *options.to;
  return detail.dump();
}

}  // namespace

RedriveReport Migrator::redrive(const MigrationRef& ref, const RedriveOptions& options) {
  const bool range = options.from || options.to;
  if (int{options.all} + int{options.unit.has_value()} + int{range} != 1) {
    throw Error(ErrorCode::usage_error, "redrive takes one unit, all, or a range of keys",
                "name one of --unit N, --all, --from KEY and --to KEY");
  }
  auto session = impl_->open(ref.name, "redrive");
  const auto row = impl_->resolve(session, ref);
  impl_->require_identity(session, row);
  if (!has_capture(row.phase) || row.phase == Phase::switched) {
    throw Error(ErrorCode::illegal_transition,
                fmt::format("phase {} has nothing to sweep again", to_text(row.phase)),
                row.phase == Phase::switched
                    ? fmt::format("compare, and repair what differs: crossfade diffs {} --repair", row.name)
                    : "units exist from backfill to compare",
                row.name);
  }
  if (row.status == Status::paused) {
    throw Error(ErrorCode::paused, fmt::format("migration {} is paused: {}", row.name, row.reason),
                "crossfade resume " + row.name, row.name);
  }
  Runner runner(impl_->runner_setup(row, stop_));
  if (runner.load().row.phase != row.phase) {
    throw Error(ErrorCode::superseded,
                fmt::format("another command moved migration {} to {} meanwhile", row.name,
                            to_text(runner.load().row.phase)),
                "see 'crossfade status'", row.name);
  }
  const auto m = runner.load();
  check_redrive(session, m, current_table(session, m), options);
  StateStore(session).record_action(row.id, "redrive", impl_->options.operator_name, impl_->options.host,
                                    detail_of(options));
  RedriveReport report;
  for (const auto& pass : runner.redrive(options)) {
    const auto totals = unit_totals(session, pass.id);
    report.units += totals.total;
    report.rows_read += totals.rows_read;
    report.rows_written += totals.rows_written;
  }
  const auto now = runner.load().row;
  report.name = now.name;
  report.phase = now.phase;
  report.status = now.status;
  return report;
}

}  // namespace crossfade

// Changes of the table that are followed by work: partitions that come and go, another storage.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/shadow/partition_set.hpp"
#include "crossfade/shadow/rewrite.hpp"
#include "runner.hpp"
#include "transition.hpp"

namespace crossfade {

// What was settled rests on what was there before: the same legal events as after an adopt.
void Runner::begin_again_if_settled(const std::string& reason) {
  if (load().row.status != Status::settled) return;
  change_status(session_, setup_.id, Event::fail, reason, env_.token);
  change_status(session_, setup_.id, Event::retry, "", env_.token);
}

// Another storage with the same rows is no fault of the capture either: what was planned by its blocks is
// planned anew.
bool Runner::follow_storage(const Migration& m, const std::string& fingerprint) {
  const auto changes = rewrite_changes(m, fingerprint);
  if (!changes.only) return false;
  begin_again_if_settled("the table was rewritten");
  if (!follow_rewrite(session_, m, changes, fingerprint, setup_.options->operator_name, setup_.options->host))
    return true;
  log::write(log::Level::info, "rewrite_followed",
             {{"table", m.row.table.display()}, {"what", fmt::format("{}", fmt::join(changes.what, ", "))}});
  if (setup_.listener != nullptr) {
    setup_.listener->on_notice(fmt::format(
        "{} was rewritten (VACUUM FULL, CLUSTER or the like): what is swept by blocks is planned anew",
        m.row.table.display()));
  }
  return true;
}

// Partitions that came or went are no fault of the capture: the work of the phase follows them.
bool Runner::follow(const Migration& m, const std::string& fingerprint) {
  const auto changes = partition_changes(m.row.fingerprint, fingerprint);
  if (!changes.only || !have_capture(session_, m, changes.arrived)) return false;
  begin_again_if_settled("its partitions changed");
  if (!follow_partitions(session_, m, changes, fingerprint, setup_.options->operator_name,
                         setup_.options->host))
    return true;
  std::string what;
  if (!changes.added.empty()) what = fmt::format("new: {}", fmt::join(changes.added, ", "));
  if (!changes.removed.empty()) {
    what += fmt::format("{}gone: {}, which keep column {} if they were detached", what.empty() ? "" : "; ",
                        fmt::join(changes.removed, ", "), display_identifier(m.names.new_column));
  }
  log::write(log::Level::info, "partitions_followed", {{"table", m.row.table.display()}, {"what", what}});
  if (setup_.listener != nullptr)
    setup_.listener->on_notice(fmt::format("partitions of {}: {}", m.row.table.display(), what));
  return true;
}

}  // namespace crossfade

#include <fmt/format.h>

#include "crossfade/core/identifier.hpp"
#include "crossfade/core/log.hpp"
#include "crossfade/shadow/partition_set.hpp"
#include "runner.hpp"
#include "transition.hpp"

namespace crossfade {

namespace {
std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}
}  // namespace

// Partitions that came or went are no fault of the capture: the work of the phase follows them.
bool Runner::follow(const Migration& m, const std::string& fingerprint) {
  const auto changes = partition_changes(m.row.fingerprint, fingerprint);
  if (!changes.only || !have_capture(session_, m, changes.arrived)) return false;
  // What was settled rests on the partitions of before: the same legal events as after an adopt.
  if (load().row.status == Status::settled) {
    change_status(session_, setup_.id, Event::fail, "its partitions changed", env_.token);
    change_status(session_, setup_.id, Event::retry, "", env_.token);
  }
  if (!follow_partitions(session_, m, changes, fingerprint, setup_.options->operator_name,
                         setup_.options->host))
    return true;
  std::string what;
  if (!changes.added.empty()) what = "new: " + joined(changes.added);
  if (!changes.removed.empty()) {
    what += fmt::format("{}gone: {}, which keep column {} if they were detached", what.empty() ? "" : "; ",
                        joined(changes.removed), display_identifier(m.names.new_column));
  }
  log::write(log::Level::info, "partitions_followed", {{"table", m.row.table.display()}, {"what", what}});
  if (setup_.listener != nullptr)
    setup_.listener->on_notice(fmt::format("partitions of {}: {}", m.row.table.display(), what));
  return true;
}

}  // namespace crossfade

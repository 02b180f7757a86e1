#include "status_signs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "crossfade/phases/range_meter.hpp"
#include "crossfade/shadow/archive.hpp"
#include "crossfade/shadow/fingerprint.hpp"
#include "crossfade/shadow/forerunners.hpp"
#include "crossfade/shadow/partition_set.hpp"
#include "crossfade/shadow/rejects.hpp"
#include "crossfade/shadow/rewrite.hpp"
#include "crossfade/shadow/twins.hpp"

namespace crossfade {

namespace {

// A runner finds it when it works next; whoever asks before that must not be told that all is well.
void add_changed_capture(SqlSession& session, const Migration& m, StatusReport& report) {
  if (!has_capture(m.row.phase)) return;
  const auto now = read_fingerprint(session, m);
  const auto changes = fingerprint_changes(m.row.fingerprint, now);
  // What the next command follows by itself.
  if (changes.empty() || rewrite_changes(m, now).only) return;
  if (m.binding.key.partitioned && partition_changes(m.row.fingerprint, now).only) return;
  report.commands.recapture = "crossfade recapture " + m.row.name;
  report.next.ready = false;
  // A phase that failed for it and a comparison that it ended tell it already.
  const bool told = std::ranges::any_of(report.next.waiting_for, [&](const std::string& reason) {
    return reason.find(changes.front()) != std::string::npos;
  });
  if (told) return;
  report.next.waiting_for.push_back(
      fmt::format("what the capture rests on was changed: {} (put it back, or make the capture anew: {})",
                  fmt::join(changes, ", "), report.commands.recapture));
}

void add_archive(SqlSession& session, const Migration& m, const QualifiedName& table, StatusReport& report) {
  if (m.spec.archive != Archive::table) return;
  if (m.row.phase != Phase::switched && m.row.phase != Phase::dropped) return;
  const auto archive = archive_table(m, table);
  const auto there = session.exec("SELECT to_regclass($1) IS NOT NULL", {archive.sql()}).one("archive");
  if (bool_of(there[0])) report.archive = archive.display();
}

// What the switch took off the old column, and what it has to be proved of again.
void add_owed_indexes(SqlSession& session, const Migration& m, const QualifiedName& table,
                      StatusReport& report) {
  const auto ledger = load_ledger(session, m.row.id);
  const TwinBuilder owed(m, table, ledger, BuildSet::owed);
  for (auto& missing : owed.missing(session)) report.rollback.does_first.push_back(std::move(missing));
  for (auto& missing : missing_forerunners(session, m, ledger))
    report.rollback.does_first.push_back(std::move(missing));
}

// The check that a way back needs fails writes that are otherwise misfits, and an index that it needs those
// whose old values collide.
void add_begun_way_back(SqlSession& session, const Migration& m, const QualifiedName& table,
                        StatusReport& report) {
  if (report.request && report.request->alive) return;
  const auto ledger = load_ledger(session, m.row.id);
  if (!old_not_null_has_proof(session, m) && !owed_indexes_begun(session, m, table, ledger) &&
      !forerunners_begun(session, m, ledger))
    return;
  report.warnings.push_back(
      fmt::format("a way back was begun and not ended: until then a write whose value the old column ({}) "
                  "cannot take fails; go on with "
                  "'crossfade rollback {}', or give it up with 'crossfade next {}'",
                  m.binding.column.old_type, m.row.name, m.row.name));
}

}  // namespace

void add_signs(SqlSession& session, const Migration& m, const QualifiedName& table, StatusReport& report) {
  add_archive(session, m, table, report);
  add_changed_capture(session, m, report);
  if (m.row.phase != Phase::switched) return;
  add_begun_way_back(session, m, table, report);
  add_owed_indexes(session, m, table, report);
  for (auto& warning : range_warnings(session, m, table)) report.warnings.push_back(std::move(warning));
}

}  // namespace crossfade
